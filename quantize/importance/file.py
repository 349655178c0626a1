"""Importance matrices in files: llama.cpp's GGUF form both ways, and its older binary form to read.

Knows the formats. Invariant: what is read has been checked for shapes and numbers; a damaged file is an error that
names it, never a matrix with holes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType, GGUFValueType

from quantize.errors import DestinationError, SourceError
from quantize.importance.matrix import Entry, ImportanceMatrix
from quantize.model import MetadataValue
from quantize.writer import DEFAULT_ALIGNMENT, TensorInfo, align, encode_header, replacing

_MAX_NAME = 1 << 16
_WANTED = "--imatrix takes auto, off or a file"
_SUMS, _COUNTS = ".in_sum2", ".counts"


def write_matrix(matrix: ImportanceMatrix, path: Path) -> None:
    """Write llama.cpp's GGUF form, complete or not at all.

    Raises:
        DestinationError: the file cannot be written.
    """
    metadata = {
        "general.type": MetadataValue("imatrix", GGUFValueType.STRING),
        "imatrix.datasets": MetadataValue(list(matrix.datasets), GGUFValueType.ARRAY, GGUFValueType.STRING),
        "imatrix.chunk_count": MetadataValue(matrix.chunk_count, GGUFValueType.UINT32),
        "imatrix.chunk_size": MetadataValue(matrix.chunk_size, GGUFValueType.UINT32),
    }
    infos: list[TensorInfo] = []
    arrays: list[npt.NDArray[np.float32]] = []
    position = 0
    for name in sorted(matrix.entries):
        entry = matrix.entries[name]
        for suffix, values in ((_SUMS, entry.sums), (_COUNTS, entry.counts[:, None])):
            infos.append(TensorInfo(name + suffix, values.shape, GGMLQuantizationType.F32, position))
            arrays.append(np.ascontiguousarray(values, dtype="<f4"))
            position = align(position + values.size * 4, DEFAULT_ALIGNMENT)
    try:
        with replacing(path) as file:
            file.write(encode_header(metadata, infos, DEFAULT_ALIGNMENT))
            for values in arrays:
                file.write(values.tobytes())
                file.write(bytes(align(values.nbytes, DEFAULT_ALIGNMENT) - values.nbytes))
    except OSError as error:
        raise DestinationError(
            f"cannot write {path}: {error.strerror}", hint="check the folder and the disk"
        ) from error


def read_matrix(path: Path) -> ImportanceMatrix:
    """Read either form.

    Raises:
        SourceError: there is no such file, or it is no importance matrix, or it is damaged.
    """
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise SourceError(
            f"cannot read {path}: {error.strerror}", hint="--imatrix takes auto, off or a file"
        ) from error
    matrix = _read_gguf(path) if magic == b"GGUF" else _read_legacy(path, size)
    if not matrix.entries:
        raise SourceError(f"{path} holds no importance data", hint="is it a model? --imatrix wants an imatrix file")
    for name, entry in matrix.entries.items():
        values = (entry.sums, entry.counts)
        if not all(np.isfinite(v).all() and (v >= 0).all() for v in values):
            raise SourceError(f"{path} holds NaN, infinite or negative figures for {name}", hint="collect it again")
    return matrix


def _read_gguf(path: Path) -> ImportanceMatrix:
    from gguf import GGUFReader  # small files only; its import is slow

    try:
        reader = GGUFReader(path)
        fields = {key: field.contents() for key, field in reader.fields.items()}
        arrays = {tensor.name: np.array(tensor.data, dtype=np.float32) for tensor in reader.tensors}
    except (ValueError, KeyError, IndexError, OverflowError, OSError) as error:
        raise SourceError(f"{path} is damaged: {error}", hint="collect the importance matrix again") from error
    entries = {}
    for name in arrays:
        if name.endswith(_SUMS):
            base = name.removesuffix(_SUMS)
            counts = arrays.get(base + _COUNTS)
            if counts is None:
                raise SourceError(f"{path} has no counts for {base}", hint="collect the importance matrix again")
            entries[base] = _entry(path, base, arrays[name], counts)
    datasets = fields.get("imatrix.datasets")
    return ImportanceMatrix(
        entries,
        datasets=tuple(str(item) for item in datasets) if isinstance(datasets, list) else (),
        chunk_count=_count(fields.get("imatrix.chunk_count"), 0),
        chunk_size=_count(fields.get("imatrix.chunk_size"), 512),
        source=str(path),
    )


def _count(value: object, default: int) -> int:
    return int(value) if isinstance(value, int) else default


def _entry(path: Path, name: str, sums: npt.NDArray[np.float32], counts: npt.NDArray[np.float32]) -> Entry:
    n = counts.size
    if n == 0 or sums.size % n:
        raise SourceError(f"{path} has {sums.size} sums but {n} counts for {name}", hint="collect it again")
    return Entry(sums.reshape(n, -1), counts.reshape(-1))


def _read_legacy(path: Path, size: int) -> ImportanceMatrix:
    try:
        with open(path, "rb") as file:
            data = file.read() if size < 1 << 33 else b""
        entries = dict(_legacy_entries(data))
        position = _legacy_end(data)
        chunk_count = struct.unpack_from("<i", data, position)[0] if position + 4 <= len(data) else 0
    except (struct.error, ValueError) as error:
        raise SourceError(
            f"{path} is no importance matrix: {error}", hint="--imatrix takes auto, off or a file"
        ) from error
    return ImportanceMatrix(entries, chunk_count=max(chunk_count, 0), source=str(path))


def _legacy_entries(data: bytes) -> Iterator[tuple[str, Entry]]:
    for name, calls, values in _walk_legacy(data)[0]:
        yield name, Entry(values.reshape(1, -1), np.array([max(calls, 1)], np.float32))


def _legacy_end(data: bytes) -> int:
    return _walk_legacy(data)[1]


def _walk_legacy(data: bytes) -> tuple[list[tuple[str, int, npt.NDArray[np.float32]]], int]:
    (n_entries,) = struct.unpack_from("<i", data, 0)
    if not 0 < n_entries < 1 << 20:
        raise ValueError(f"{n_entries} entries")
    found = []
    position = 4
    for _ in range(n_entries):
        (length,) = struct.unpack_from("<i", data, position)
        if not 0 < length < _MAX_NAME:
            raise ValueError(f"a name of {length} bytes")
        name = data[position + 4 : position + 4 + length].decode("utf-8")
        position += 4 + length
        calls, n_values = struct.unpack_from("<ii", data, position)
        position += 8
        if n_values <= 0 or position + 4 * n_values > len(data):
            raise ValueError(f"{n_values} figures for {name}, but the file ends before")
        found.append((name, calls, np.frombuffer(data, "<f4", n_values, position).copy()))
        position += 4 * n_values
    return found, position
