"""One safetensors file: its header checked against its size, its tensors readable by rows.

Layout (https://github.com/huggingface/safetensors): u64 header length, JSON header, tensor bytes. Knows nothing of what
the tensors mean. Invariant: every tensor that is handed out lies inside the file and overlaps no other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from quantize.checkpoint.file import ReadableFile
from quantize.errors import SourceError

_WIDTHS = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "BOOL": 1,
    "I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1,
}  # fmt: skip
"""Bytes of one value of each type that a header may name and that has whole bytes."""

_HEADER_LIMIT = 100_000_000
"""The format's own limit for the JSON header, so a damaged length field never asks for terabytes."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it lies in a file."""

    name: str
    dtype: str
    """The header's own word, e.g. `BF16`."""
    shape: tuple[int, ...]
    offset: int
    """Where its bytes start in the file."""
    file: ReadableFile

    @property
    def n_rows(self) -> int:
        return prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        return (self.shape[-1] if self.shape else 1) * _WIDTHS[self.dtype]

    @property
    def n_bytes(self) -> int:
        return self.n_rows * self.row_bytes

    def read(self, start: int, stop: int) -> Bytes:
        """The bytes of these rows.  # (stop - start, row_bytes)"""
        data = self.file.read(self.offset + start * self.row_bytes, (stop - start) * self.row_bytes)
        return np.frombuffer(data, np.uint8).reshape(stop - start, self.row_bytes)


def read_safetensors(path: Path) -> list[StoredTensor]:
    """The tensors of one file, sorted by name. Raises SourceError when the file is damaged or cut short."""
    file = ReadableFile(path)
    start, header = _read_header(file)
    tensors = [_tensor(file, start, name, header[name]) for name in sorted(header) if name != "__metadata__"]
    _check_layout(file, start, tensors)
    return tensors


def _read_header(file: ReadableFile) -> tuple[int, dict[str, object]]:
    again = "The file is damaged or was not downloaded completely: download it again."
    if file.read(0, min(file.size, 20)).startswith(b"version https://git"):
        raise SourceError(f"{file.path.name} is a Git LFS pointer, not the weights", hint="run `git lfs pull` there")
    if file.size < 8:
        raise SourceError(f"{file.path.name} is no safetensors file: it has {file.size} bytes", hint=again)
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(_HEADER_LIMIT, file.size - 8):
        raise SourceError(
            f"{file.path.name} is damaged: it claims a header of {length} bytes, the file has {file.size}", hint=again
        )
    try:
        header = json.loads(file.read(8, length).decode("utf-8")) if length else None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SourceError(f"{file.path.name} has a damaged header: {error}", hint=again) from error
    if not isinstance(header, dict):
        raise SourceError(f"{file.path.name} has a damaged header: expected an object", hint=again)
    return 8 + length, header


def _tensor(file: ReadableFile, start: int, name: str, entry: object) -> StoredTensor:
    """Check one entry of the header. Raises SourceError for anything that contradicts itself or the file."""
    where = f"{file.path.name}, tensor {name!r}"
    if not isinstance(entry, dict):
        raise SourceError(f"{where}: the header entry is damaged")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _WIDTHS:
        raise SourceError(f"{where}: unknown dtype {dtype!r}")
    if not _whole_numbers(shape):
        raise SourceError(f"{where}: bad shape {shape!r}")
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        raise SourceError(f"{where}: bad offsets {offsets!r}")
    expected = prod(shape) * _WIDTHS[dtype]
    if offsets[1] - offsets[0] != expected:
        raise SourceError(
            f"{where}: {offsets[1] - offsets[0]} bytes stored, {dtype} of shape {tuple(shape)} needs {expected}"
        )
    return StoredTensor(name, dtype, tuple(shape), start + offsets[0], file)


def _whole_numbers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)


def _check_layout(file: ReadableFile, start: int, tensors: list[StoredTensor]) -> None:
    """Tensors must not overlap and must end inside the file."""
    end = start
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset < end and tensor.n_bytes:
            raise SourceError(f"{file.path.name} is damaged: tensor {tensor.name!r} overlaps another one")
        end = max(end, tensor.offset + tensor.n_bytes)
    if end > file.size:
        raise SourceError(
            f"{file.path.name} is cut short: it has {file.size} bytes, its header describes {end}",
            hint="the download did not finish: download this file again",
        )
