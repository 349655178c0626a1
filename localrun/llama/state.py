"""The state of a sequence as llama.cpp writes it: what is in it, and how to take part of it.

Knows the layout of the engine's release that we pin (`llama_kv_cache::state_write`), and checks every count and size
against it. A block of the prefix cache is such a state of a few tokens, so the engine reads it back as it is.
Invariants: the cells of a block are in the order of their positions; what does not look as expected is refused, never
guessed.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from localrun.errors import EngineError

if TYPE_CHECKING:
    from localrun.engine.ports import Block

_HEAD = 8  # the state's magic number and the sequence id it was saved from, which reading ignores
_U32 = struct.Struct("<I")
_CELL = struct.Struct("<iIi")  # position, number of sequences (1), sequence id
_K_LAYER = struct.Struct("<iQ")  # type, bytes of a row
_V_LAYER = struct.Struct("<iQ")
_V_LAYER_TRANSPOSED = struct.Struct("<iII")  # type, bytes of an element, elements of a column
_NO_CELLS = _U32.pack(1) + _U32.pack(0)


class UnknownLayoutError(EngineError):
    """The engine's state does not look as expected: blocks cannot be made of it."""


class Layer(NamedTuple):
    """The keys or the values of one layer: `head` as it is written before them, and their bytes."""

    head: Block
    data: memoryview
    """(n_columns, n_cells, width) bytes: keys and plain values are one column, transposed values many narrow ones."""
    n_columns: int
    width: int

    def pick(self, runs: list[tuple[int, int]]) -> list[Block]:
        """The bytes of the cells in `runs` of indices."""
        data, width = self.data, self.width
        column = len(data) // max(1, self.n_columns)
        starts = range(0, len(data), column or 1)  # a layer may have no bytes at all
        return [data[at + width * a : at + width * b] for at in starts for a, b in runs]


@dataclass(frozen=True, slots=True)
class Section:
    """One memory's part of a state."""

    positions: list[int]
    """Of the cells, as they lie there."""
    raw: memoryview
    transposed: bool = False
    keys: Sequence[Layer] = ()
    values: Sequence[Layer] = ()

    @property
    def end(self) -> int:
        """The position behind the last one."""
        return max(self.positions, default=-1) + 1

    @property
    def in_order(self) -> bool:
        return all(a < b for a, b in pairwise(self.positions))

    def between(self, first: int, last: int) -> list[Block]:
        """Parts that joined are a section of the cells with positions in [first, last), in order."""
        positions = self.positions
        inside = [i for i in sorted(range(len(positions)), key=positions.__getitem__) if first <= positions[i] < last]
        if inside == list(range(len(positions))):
            return [self.raw]
        if not inside:
            return [_NO_CELLS]
        parts: list[Block] = [_U32.pack(1), _U32.pack(len(inside))]
        parts += [_CELL.pack(positions[i], 1, 0) for i in inside]
        parts += [_U32.pack(int(self.transposed)), _U32.pack(len(self.keys))]
        runs = _runs(inside)
        for layer in (*self.keys, *self.values):
            parts += [layer.head, *layer.pick(runs)]
        return parts


def _runs(indices: list[int]) -> list[tuple[int, int]]:
    """Indices as ranges [a, b) of neighbours."""
    runs: list[tuple[int, int]] = []
    for i in indices:
        if runs and runs[-1][1] == i:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    return runs


def parse(state: Block) -> list[Section]:
    """The sections of a state. Raises `UnknownLayoutError`."""
    view = memoryview(state)
    sections, at = [], _HEAD
    while at < len(view):
        section, at = _parse_section(view, at)
        sections.append(section)
    return sections


def between(state: Block, sections: list[Section], bounds: Sequence[tuple[int, int]]) -> Block:
    """A state of the cells with positions inside the bounds of their section; the state itself if that is all."""
    parts = [section.between(*bound) for section, bound in zip(sections, bounds, strict=True)]
    if all(part == [section.raw] for part, section in zip(parts, sections, strict=True)):
        return state
    return bytearray().join([memoryview(state)[:_HEAD], *(piece for part in parts for piece in part)])


def _parse_section(state: memoryview, at: int) -> tuple[Section, int]:
    start = at
    try:
        n_streams, n_cells = _U32.unpack_from(state, at)[0], _U32.unpack_from(state, at + 4)[0]
        at += 8
        if n_streams != 1:
            raise UnknownLayoutError(f"the engine keeps its memory in {n_streams} streams")
        if n_cells == 0:
            return Section([], state[start:at]), at
        cells = [_CELL.unpack_from(state, at + _CELL.size * i) for i in range(n_cells)]
        at += _CELL.size * n_cells
        if any(count != 1 for _, count, _ in cells):
            raise UnknownLayoutError("the engine's cells have an extension")
        transposed, n_layers = _U32.unpack_from(state, at)[0], _U32.unpack_from(state, at + 4)[0]
        at += 8
        if transposed > 1 or n_layers > 4096:
            raise UnknownLayoutError("the engine's state has an unknown form")
        keys, values = [], []
        for _ in range(n_layers):
            row = _K_LAYER.unpack_from(state, at)[1]
            layer, at = _take(state, at, _K_LAYER.size, n_cells, 1, row)
            keys.append(layer)
        for _ in range(n_layers):
            if transposed:
                _, element, column = _V_LAYER_TRANSPOSED.unpack_from(state, at)
                layer, at = _take(state, at, _V_LAYER_TRANSPOSED.size, n_cells, column, element)
            else:
                row = _V_LAYER.unpack_from(state, at)[1]
                layer, at = _take(state, at, _V_LAYER.size, n_cells, 1, row)
            values.append(layer)
    except struct.error as error:
        raise UnknownLayoutError("the engine's state ends early") from error
    return Section([position for position, _, _ in cells], state[start:at], bool(transposed), keys, values), at


def _take(state: memoryview, at: int, head: int, n_cells: int, n_columns: int, width: int) -> tuple[Layer, int]:
    size = n_cells * n_columns * width
    start = at + head
    if size > len(state) - start:
        raise UnknownLayoutError("the engine's state ends early")
    return Layer(state[at:start], state[start : start + size], n_columns, width), start + size


def save_sequence(lib: Any, handle: Any, seq: int) -> bytearray:
    """The whole state of a sequence. Source: `llama_state_seq_get_data`."""
    size = lib.llama_state_seq_get_size(handle, seq)
    data = bytearray(size)
    view = (ctypes.c_uint8 * size).from_buffer(data)
    written = lib.llama_state_seq_get_data(handle, view, size, seq)
    del view
    if written == 0 or written > size:
        raise EngineError(f"the engine could not save {size:,} bytes of KV state")
    del data[written:]
    return data


def restore_sequence(lib: Any, handle: Any, seq: int, state: Block) -> bool:
    """Replace the cells of `seq` by saved ones; False where the engine refuses them.

    Source: `llama_state_seq_set_data`.
    """
    if memoryview(state).readonly:
        state = bytearray(state)  # ctypes takes the address of writable memory only
    size = len(state)
    view = (ctypes.c_uint8 * size).from_buffer(state)
    return bool(lib.llama_state_seq_set_data(handle, view, size, seq) == size)
