"""The KV of a range of tokens as blocks of bytes, and back.

llama.cpp saves a sequence as one state: for each memory (one, or two where some layers have a sliding window) the
positions, then for each layer the keys of all cells, then for each layer the values, transposed where flash attention
is off. One call for the whole range is fast; a call for each block is not (the transposed values are read in thousands
of small pieces). So a range is saved and restored by one call, and cut into blocks or joined from them here.

Knows the layout of the engine's release that we pin (`llama_kv_cache::state_write`), and checks every count and size
against it. Invariants: a block holds exactly its tokens in the order of their positions; what does not look as
expected is refused, never guessed.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from localrun.errors import EngineError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

_HEAD = 8  # the state's magic number and the sequence id it was saved from
_U32 = struct.Struct("<I")
_CELL = struct.Struct("<iIi")  # position, number of sequences (1), sequence id
_K_LAYER = struct.Struct("<iQ")  # type, bytes of a row
_V_LAYER = struct.Struct("<iQ")
_V_LAYER_TRANSPOSED = struct.Struct("<iII")  # type, bytes of an element, elements of a column


class UnknownLayoutError(EngineError):
    """The engine's state does not look as expected: blocks cannot be made of it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The keys or the values of one layer: `head` as it is written before them, and their bytes."""

    head: bytes
    data: Bytes
    """(n_cells, row) for keys and plain values, (column, n_cells, element) for transposed values."""

    def cells(self, start: int, stop: int) -> Layer:
        return Layer(self.head, self.data[start:stop] if self.data.ndim == 2 else self.data[:, start:stop])


@dataclass(frozen=True, slots=True)
class Section:
    """One memory's part of a state: cells in the order of their positions."""

    positions: list[int]
    transposed: bool
    keys: list[Layer]
    values: list[Layer]

    def cells(self, start: int, stop: int) -> Section:
        """The cells with indices [start, stop)."""
        return Section(
            self.positions[start:stop],
            self.transposed,
            [layer.cells(start, stop) for layer in self.keys],
            [layer.cells(start, stop) for layer in self.values],
        )

    def between(self, first: int, last: int) -> Section:
        """The cells with positions in [first, last)."""
        inside = [i for i, position in enumerate(self.positions) if first <= position < last]
        return self.cells(inside[0], inside[-1] + 1) if inside else self.cells(0, 0)

    def to_bytes(self, seq: int) -> list[bytes | Bytes]:
        """Parts that joined are the section as llama.cpp reads it."""
        parts: list[bytes | Bytes] = [_U32.pack(1), _U32.pack(len(self.positions))]
        if not self.positions:
            return parts
        parts += [_CELL.pack(position, 1, seq) for position in self.positions]
        parts += [_U32.pack(int(self.transposed)), _U32.pack(len(self.keys))]
        for layer in (*self.keys, *self.values):
            parts += [layer.head, layer.data]
        return parts


def parse(state: bytes | bytearray | memoryview) -> list[Section]:
    """The sections of a state (with its first eight bytes left out). Raises `UnknownLayoutError`."""
    sections, at = [], 0
    while at < len(state):
        section, at = _parse_section(memoryview(state), at)
        sections.append(section)
    return sections


def split(sections: list[Section], start: int, stop: int, block: int) -> list[bytes]:
    """Blocks of `block` tokens from position `start` to `stop` (a whole number of blocks)."""
    blocks = []
    for first in range(start, stop, block):
        parts: list[bytes | Bytes] = []
        for section in sections:
            parts += section.between(first, first + block).to_bytes(0)
        blocks.append(b"".join(part if isinstance(part, bytes) else part.tobytes() for part in parts))
    return blocks


def join(blocks: list[list[Section]], head: bytes, seq: int, *, windows: list[int]) -> bytearray:
    """One state of many blocks. `windows[i]` limits section i to its last positions (0: all of them)."""
    parts: list[bytes | Bytes] = [head]
    last = blocks[-1][0].positions[-1] + 1
    for number, window in enumerate(windows):
        sections = [block[number] for block in blocks]
        if window:
            sections = [section.between(last - window, last) for section in sections]
        parts += _joined([section for section in sections if section.positions] or sections[:1]).to_bytes(seq)
    return bytearray().join(part if isinstance(part, bytes) else part.tobytes() for part in parts)


def _joined(sections: list[Section]) -> Section:
    import numpy as np

    if len(sections) == 1:
        return sections[0]
    first = sections[0]

    def layers(name: str) -> list[Layer]:
        made = []
        for i, layer in enumerate(getattr(first, name)):
            # Transposed values lie cell by cell inside each column: joining them moves small pieces, as whole elements.
            pieces = [_as_elements(getattr(section, name)[i].data) for section in sections]
            whole = np.concatenate(pieces, axis=0 if layer.data.ndim == 2 else 1)
            made.append(Layer(layer.head, np.ascontiguousarray(whole)))
        return made

    positions = [position for section in sections for position in section.positions]
    return Section(positions, first.transposed, layers("keys"), layers("values"))


def _as_elements(data: Bytes) -> Any:
    """(column, n, 2 bytes) as (column, n) of 16-bit elements, where that is what they are."""
    if data.ndim == 3 and data.shape[2] == 2:
        import numpy as np

        return np.ascontiguousarray(data).view(np.uint16)[:, :, 0]
    return data


def _parse_section(state: memoryview, at: int) -> tuple[Section, int]:
    import numpy as np

    try:
        n_streams, n_cells = _U32.unpack_from(state, at)[0], _U32.unpack_from(state, at + 4)[0]
        at += 8
        if n_streams != 1:
            raise UnknownLayoutError(f"the engine keeps its memory in {n_streams} streams")
        if n_cells == 0:
            return Section([], False, [], []), at
        cells = [_CELL.unpack_from(state, at + _CELL.size * i) for i in range(n_cells)]
        at += _CELL.size * n_cells
        if any(count != 1 for _, count, _ in cells):
            raise UnknownLayoutError("the engine's cells have an extension")
        transposed, n_layers = _U32.unpack_from(state, at)[0], _U32.unpack_from(state, at + 4)[0]
        at += 8
        if transposed > 1 or n_layers > 4096:
            raise UnknownLayoutError("the engine's state has an unknown form")
        raw = np.frombuffer(state, dtype=np.uint8)
        keys, values = [], []
        for _ in range(n_layers):
            row = _K_LAYER.unpack_from(state, at)[1]
            layer, at = _take(raw, state, at, _K_LAYER.size, (n_cells, row))
            keys.append(layer)
        for _ in range(n_layers):
            if transposed:
                _, element, column = _V_LAYER_TRANSPOSED.unpack_from(state, at)
                layer, at = _take(raw, state, at, _V_LAYER_TRANSPOSED.size, (column, n_cells, element))
            else:
                row = _V_LAYER.unpack_from(state, at)[1]
                layer, at = _take(raw, state, at, _V_LAYER.size, (n_cells, row))
            values.append(layer)
    except struct.error as error:
        raise UnknownLayoutError("the engine's state ends early") from error
    return _in_order(Section([position for position, _, _ in cells], bool(transposed), keys, values)), at


def _take(raw: Bytes, state: memoryview, at: int, head: int, shape: tuple[int, ...]) -> tuple[Layer, int]:
    size = 1
    for n in shape:
        size *= n
    start = at + head
    if size > len(state) - start:
        raise UnknownLayoutError("the engine's state ends early")
    return Layer(bytes(state[at:start]), raw[start : start + size].reshape(shape)), start + size


def _in_order(section: Section) -> Section:
    """Cells lie in the memory where there was room; positions count."""
    positions = section.positions
    if all(a < b for a, b in pairwise(positions)):
        return section
    order = sorted(range(len(positions)), key=positions.__getitem__)
    pick = [Layer(layer.head, layer.data[order]) for layer in section.keys]
    values = [
        Layer(layer.head, layer.data[order] if layer.data.ndim == 2 else layer.data[:, order])
        for layer in section.values
    ]
    return Section([positions[i] for i in order], section.transposed, pick, values)


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


def restore_sequence(lib: Any, handle: Any, seq: int, data: bytearray) -> bool:
    """Replace the cells of `seq` by saved ones; False where the engine refuses them.

    Source: `llama_state_seq_set_data`.
    """
    size = len(data)
    view = (ctypes.c_uint8 * size).from_buffer(data)
    return bool(lib.llama_state_seq_set_data(handle, view, size, seq) == size)
