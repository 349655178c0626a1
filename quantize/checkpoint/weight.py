"""A weight that is read by rows when asked for, and the ways to rearrange one without reading it.

Knows arrays, not names: architectures compose these functions. A rearrangement that only moves rows or columns keeps
the stored bytes available (`stored`); arithmetic drops them. Invariant: nothing
is read until `read` or `stored` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

from quantize.checkpoint.safetensors import StoredTensor
from quantize.errors import SourceError, UnsupportedError
from quantize.model import Rows

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]
Reader = Callable[[int, int], Array]

_STORAGE = {
    "F32": GGMLQuantizationType.F32,
    "F16": GGMLQuantizationType.F16,
    "BF16": GGMLQuantizationType.BF16,
    "F64": GGMLQuantizationType.F32,
}


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor, seen as rows of `shape[-1]` values."""

    label: str
    """Its name at the source, for messages."""
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    read: Callable[[int, int], Rows]
    """Rows as float32.  # (stop - start, shape[-1])"""
    stored: Callable[[int, int], Bytes] | None = None
    """Rows as the bytes of `type`, where no arithmetic is needed.  # (stop - start, row bytes)"""
    row_multiple: int = 1
    """`read` and `stored` want ranges that start and end at multiples of this."""

    @property
    def n_rows(self) -> int:
        return int(np.prod(self.shape[:-1], dtype=np.int64))


def weight_of(tensor: StoredTensor) -> Weight:
    """A plain floating-point tensor of a file. Raises UnsupportedError for any other dtype."""
    if tensor.dtype not in _STORAGE:
        raise UnsupportedError(
            f"tensor {tensor.name!r} in {tensor.file.path.name} has dtype {tensor.dtype}, which is not supported",
            hint="weights may be F32, F16, BF16, or FP8 with scales",
        )
    stored = None if tensor.dtype == "F64" else tensor.read
    return Weight(tensor.name, tensor.shape, _STORAGE[tensor.dtype], _decoder(tensor), stored)


def _decoder(tensor: StoredTensor) -> Callable[[int, int], Rows]:
    if tensor.dtype == "BF16":
        return lambda start, stop: bfloat16_to_float32(tensor.read(start, stop))
    plain = {"F32": np.float32, "F16": np.float16, "F64": np.float64}[tensor.dtype]
    return lambda start, stop: np.ascontiguousarray(tensor.read(start, stop).view(plain), dtype=np.float32)


def bfloat16_to_float32(data: Bytes) -> Rows:
    """Bfloat16 is the upper half of a float32.  # (n, 2 * cols) bytes -> (n, cols)"""
    wide = np.left_shift(data.view(np.uint16), 16, dtype=np.uint32)
    return wide.view(np.float32)


def moved(weight: Weight, move: Callable[[Reader], Reader], *, shape: tuple[int, ...], row_multiple: int) -> Weight:
    """The weight with its rows read through `move`, which must treat every column alike."""
    stored = None if weight.stored is None else move(weight.stored)
    return replace(weight, read=move(weight.read), stored=stored, shape=shape, row_multiple=row_multiple)


def interleave_rotary_halves(weight: Weight, n_head: int) -> Weight:
    """Reorder the rows of each head from (two halves) to (pairs), as llama.cpp's NORM rotary embedding wants them.

    Same permutation as `LlamaModel.permute` of llama.cpp's converter. A bias (one axis) is permuted along it.
    """
    n_out = weight.shape[0]
    if n_out % (2 * n_head):
        raise SourceError(f"tensor {weight.label!r} has {n_out} rows, no multiple of two halves of {n_head} heads")
    head = n_out // n_head
    if len(weight.shape) == 1:

        def bias(start: int, stop: int) -> Rows:
            whole = weight.read(start, stop)
            return np.ascontiguousarray(whole.reshape(n_head, 2, head // 2).swapaxes(1, 2).reshape(1, n_out))

        return replace(weight, read=bias, stored=None)

    def move(read: Reader) -> Reader:
        def rows(start: int, stop: int) -> Array:
            data = read(start, stop)
            halves = data.reshape((stop - start) // head, 2, head // 2, data.shape[-1])
            return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(data.shape)

        return rows

    return moved(weight, move, shape=weight.shape, row_multiple=head)


def plus_one(weight: Weight) -> Weight:
    """Add one to every value, in float32: norms that are stored as their distance from one."""
    return replace(weight, read=lambda start, stop: weight.read(start, stop) + np.float32(1), stored=None)


def row_range(weight: Weight, start: int, stop: int) -> Weight:
    """Rows `start` to `stop` of a two-axis weight, or those values of a one-axis one."""
    if len(weight.shape) == 1:
        return replace(
            weight,
            shape=(stop - start,),
            read=lambda a, b: np.ascontiguousarray(weight.read(a, b)[:, start:stop]),
            stored=None,
        )

    def move(read: Reader) -> Reader:
        return lambda a, b: read(start + a, start + b)

    return moved(weight, move, shape=(stop - start, *weight.shape[1:]), row_multiple=weight.row_multiple)


def stack(weights: Sequence[Weight], label: str) -> Weight:
    """Matrices of one shape on a new first axis: one tensor for all experts of a layer."""
    first = weights[0]
    odd = next((w for w in weights if w.shape != first.shape or w.type != first.type), None)
    if odd is not None:
        raise SourceError(
            f"experts differ: {first.label!r} is {first.type.name} {first.shape}, "
            f"{odd.label!r} is {odd.type.name} {odd.shape}"
        )
    per_expert = first.n_rows

    def join(readers: Sequence[Reader]) -> Reader:
        return lambda start, stop: across(start, stop, per_expert, lambda e, a, b: readers[e](a, b))

    stored = [w.stored for w in weights if w.stored is not None]
    return Weight(
        label,
        (len(weights), *first.shape),
        first.type,
        join([w.read for w in weights]),
        join(stored) if len(stored) == len(weights) else None,
        first.row_multiple,
    )


def across(start: int, stop: int, per_group: int, read: Callable[[int, int, int], Array]) -> Array:
    """Rows of a stack of groups: `read(group, first, last)` for each group that the range touches, joined."""
    pieces = []
    while start < stop:
        group, first = divmod(start, per_group)
        last = min(per_group, first + stop - start)
        pieces.append(read(group, first, last))
        start += last - first
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def rows_within_experts(weight: Weight, first: int, step: int, count: int) -> Weight:
    """Of each expert's rows, `count` rows from `first` in steps of `step`.

    (experts, rows, cols) -> (experts, count, cols). Splits a fused gate-and-up tensor: halves have step 1,
    interleaved rows step 2.
    """
    n_experts, n_rows, n_cols = weight.shape

    def move(read: Reader) -> Reader:
        def some(expert: int, start: int, stop: int) -> Array:
            begin = expert * n_rows + first + start * step
            data = read(begin, begin + (stop - start - 1) * step + 1)
            return np.ascontiguousarray(data[::step])

        return lambda start, stop: across(start, stop, count, some)

    multiple = count if weight.row_multiple > 1 else 1
    return moved(weight, move, shape=(n_experts, count, n_cols), row_multiple=multiple)


def transpose_experts(weight: Weight) -> Weight:
    """Swap the last two axes.  # (experts, inputs, outputs) -> (experts, outputs, inputs)

    A whole expert is read at a time, hence the row multiple.
    """
    n_experts, n_in, n_out = weight.shape

    def turned(expert: int, start: int, stop: int) -> Rows:
        whole = weight.read(expert * n_in, (expert + 1) * n_in)
        return np.ascontiguousarray(whole[:, start:stop].T)

    return replace(
        weight,
        shape=(n_experts, n_out, n_in),
        read=lambda start, stop: across(start, stop, n_out, turned),
        stored=None,
        row_multiple=n_out,
    )
