"""A GGUF file, or a set of split ones, as a model to be written again.

Own reader: the one of gguf-py makes an array of every token, which takes seconds. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Invariant: every tensor that is handed out lies inside its
file, and a set of split files is complete.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from quantize.checkpoint.file import ReadableFile
from quantize.checkpoint.weight import bfloat16_to_float32
from quantize.errors import SourceError, UnsupportedError
from quantize.metadata import Metadata
from quantize.model import MetadataValue, Model, Rows, Tensor

_AGAIN = "The file is damaged or was not downloaded completely: download it again."
_SHARD = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<total>\d{5})\.gguf")
_SCALARS = {
    GGUFValueType.UINT8: "B", GGUFValueType.INT8: "b", GGUFValueType.UINT16: "H", GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I", GGUFValueType.INT32: "i", GGUFValueType.FLOAT32: "f", GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q", GGUFValueType.INT64: "q", GGUFValueType.FLOAT64: "d",
}  # fmt: skip
_STALE = ("split.", "quantize.imatrix.", "localrun.quantize.")
"""Keys that describe how the file was made, not the model."""
_PLAIN = {
    GGMLQuantizationType.F32: np.float32, GGMLQuantizationType.F16: np.float16, GGMLQuantizationType.F64: np.float64,
    GGMLQuantizationType.I8: np.int8, GGMLQuantizationType.I16: np.int16, GGMLQuantizationType.I32: np.int32,
    GGMLQuantizationType.I64: np.int64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Info:
    """A tensor as the header lists it."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    """From the start of the file."""

    @property
    def row_bytes(self) -> int:
        block, size = GGML_QUANT_SIZES[self.type]
        return int((self.shape[-1] if self.shape else 1) // block * size)

    @property
    def n_bytes(self) -> int:
        return prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True, slots=True)
class _GgufFile:
    file: ReadableFile
    metadata: Metadata
    infos: tuple[_Info, ...]

    def value(self, key: str, default: Any = None) -> Any:
        entry = self.metadata.get(key)
        return default if entry is None else entry.value


def is_gguf(path: Path) -> bool:
    """Whether a file begins as GGUF files do."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def read_metadata(path: Path) -> Metadata:
    """The keys of one GGUF file. Raises SourceError for what is none."""
    return _read(path).metadata


def open_gguf(path: Path) -> Model:
    """Read the header of a GGUF file, and of its other parts when it is split.

    Raises SourceError when a part is missing (naming them all), damaged or cut short; UnsupportedError for a file that
    is no model, or holds a tensor type that is not known.
    """
    files = _all_parts(_read(path))
    first = files[0]
    architecture = first.value("general.architecture")
    kind = first.value("general.type", "model")
    if not isinstance(architecture, str):
        raise SourceError(f"{path.name} does not say which architecture the model has")
    infos = [(file, info) for file in files for info in file.infos]
    if kind != "model" or not infos:
        raise UnsupportedError(
            f"{path.name} is no model: it is of type {kind!r}" if kind != "model" else f"{path.name} holds no tensors"
        )
    names = [info.name for _, info in infos]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"tensor {twice!r} is stored twice")
    metadata = {key: value for key, value in first.metadata.items() if not key.startswith(_STALE)}
    return Model(
        architecture=architecture,
        metadata=metadata,
        tensors=tuple(_tensor(file.file, info) for file, info in infos),
        source_bytes=sum(info.n_bytes for _, info in infos),
        tied_output="output.weight" not in names,
    )


def _all_parts(opened: _GgufFile) -> list[_GgufFile]:
    """The file itself, or all files of its set in order."""
    count = opened.value("split.count", 1)
    if count <= 1:
        return [opened]
    path = opened.file.path
    match = _SHARD.fullmatch(path.name)
    if match is None or int(match["total"]) != count:
        raise SourceError(
            f"{path.name} is one of {count} files, but its name does not say which",
            hint=f"rename the files to NAME-00001-of-{count:05d}.gguf and so on",
        )
    paths = [path.with_name(f"{match['stem']}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1)]
    missing = [p.name for p in paths if not p.is_file()]
    if missing:
        raise SourceError(f"{len(missing)} of {count} files are missing: {', '.join(missing)}", hint=_AGAIN)
    files = [opened if p == path else _read(p) for p in paths]
    for number, file in enumerate(files):
        if file.value("split.no") != number or file.value("split.count") != count:
            raise SourceError(f"{file.file.path.name} says it is part {file.value('split.no')}, expected {number}")
    expected, found = files[0].value("split.tensors.count"), sum(len(f.infos) for f in files)
    if expected is not None and expected != found:
        raise SourceError(f"the {count} files hold {found} tensors, expected {expected}", hint=_AGAIN)
    return files


def _tensor(file: ReadableFile, info: _Info) -> Tensor:
    def raw(start: int, stop: int) -> npt.NDArray[np.uint8]:
        data = file.read(info.offset + start * info.row_bytes, (stop - start) * info.row_bytes)
        return np.frombuffer(data, np.uint8).reshape(stop - start, info.row_bytes)

    fixed = len(info.shape) < 2 or (info.type in _PLAIN and info.type.name.startswith("I"))
    return Tensor(info.name, info.shape, info.type, _decoder(info, raw), info.type if fixed else None, raw)


def _decoder(info: _Info, raw: Callable[[int, int], npt.NDArray[np.uint8]]) -> Callable[[int, int], Rows]:
    if info.type == GGMLQuantizationType.BF16:
        return lambda start, stop: bfloat16_to_float32(raw(start, stop))
    if info.type in _PLAIN:
        plain = _PLAIN[info.type]
        return lambda start, stop: np.ascontiguousarray(raw(start, stop).view(plain), dtype=np.float32)

    def dequantize(start: int, stop: int) -> Rows:
        from quantize.ggml import dequantize_rows  # loads the engine's library

        return dequantize_rows(info.type, raw(start, stop), info.shape[-1])

    return dequantize


def _read(path: Path) -> _GgufFile:
    file = ReadableFile(path)
    if file.size < 24:
        raise SourceError(f"{path.name} is no GGUF file: it has {file.size} bytes", hint=_AGAIN)
    # Only the header's pages are touched, and the map ends here.
    with mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_READ) as data:
        try:
            metadata, infos = _Header(data, path.name).read()
        except struct.error as error:
            raise SourceError(f"{path.name} is cut short within its header", hint=_AGAIN) from error
    return _GgufFile(file, metadata, tuple(infos))


class _Header:
    """A walk through the bytes before the tensors."""

    def __init__(self, data: mmap.mmap, name: str) -> None:
        self.data, self.name, self.at = data, name, 0

    def read(self) -> tuple[Metadata, list[_Info]]:
        magic, version, n_tensors, n_keys = self.take("4sIQQ")
        if magic != b"GGUF":
            raise SourceError(f"{self.name} is no GGUF file: it begins with {magic!r}")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
            what = "is in big-endian order" if swapped else f"has version {version}"
            raise UnsupportedError(f"{self.name} {what}, which is not supported")
        if n_tensors + n_keys > len(self.data) // 8:
            raise SourceError(f"{self.name} claims {n_tensors} tensors and {n_keys} keys", hint=_AGAIN)
        metadata: Metadata = {}
        for _ in range(n_keys):
            key = self.string()
            kind = self.kind()
            element = self.kind() if kind == GGUFValueType.ARRAY else None
            value = self.value(kind) if element is None else self.array(element)
            metadata[key] = MetadataValue(value, kind, element)
        listed = [self.info() for _ in range(n_tensors)]
        return metadata, self.placed(listed, metadata)

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def kind(self) -> GGUFValueType:
        (number,) = self.take("I")
        try:
            return GGUFValueType(number)
        except ValueError:
            raise SourceError(f"{self.name} has a value of unknown type {number}", hint=_AGAIN) from None

    def string(self) -> str:
        """Token texts need not be valid UTF-8; nothing may be lost on the way back into a file."""
        (length,) = self.take("Q")
        self.at += length
        if self.at > len(self.data):
            raise SourceError(f"{self.name} is cut short within its header", hint=_AGAIN)
        return self.data[self.at - length : self.at].decode("utf-8", "surrogateescape")

    def value(self, kind: GGUFValueType) -> Any:
        if kind == GGUFValueType.STRING:
            return self.string()
        if kind not in _SCALARS:
            raise UnsupportedError(f"{self.name} has an array of arrays, which is not supported")
        return self.take(_SCALARS[kind])[0]

    def array(self, element: GGUFValueType) -> list[Any]:
        (count,) = self.take("Q")
        if count > len(self.data):
            raise SourceError(f"{self.name} claims an array of {count} values", hint=_AGAIN)
        if element in _SCALARS:
            return list(self.take(f"{count}{_SCALARS[element]}"))
        return [self.value(element) for _ in range(count)]

    def info(self) -> _Info:
        name = self.string()
        (n_dims,) = self.take("I")
        if n_dims > 4:
            raise SourceError(f"{self.name}: tensor {name!r} has {n_dims} axes", hint=_AGAIN)
        sizes = self.take(f"{n_dims}Q")
        number, offset = self.take("IQ")
        try:
            kind = GGMLQuantizationType(number)
            block = GGML_QUANT_SIZES[kind][0]
        except (ValueError, KeyError):
            raise UnsupportedError(f"{self.name}: tensor {name!r} is of unknown type {number}") from None
        shape = tuple(reversed(sizes))
        if not all(shape) or (shape and shape[-1] % block):
            raise SourceError(f"{self.name}: tensor {name!r} of type {kind.name} has shape {shape}", hint=_AGAIN)
        return _Info(name, shape, kind, offset)

    def placed(self, listed: list[_Info], metadata: Metadata) -> list[_Info]:
        """Offsets from the start of the file, checked against its size."""
        entry = metadata.get("general.alignment")
        alignment = 32 if entry is None else entry.value
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise SourceError(f"{self.name} has the alignment {alignment!r}", hint=_AGAIN)
        start = -(-self.at // alignment) * alignment
        infos = [_Info(i.name, i.shape, i.type, start + i.offset) for i in listed]
        end = max((i.offset + i.n_bytes for i in infos), default=0)
        if end > len(self.data):
            raise SourceError(
                f"{self.name} is cut short: it has {len(self.data)} bytes, its header describes {end}", hint=_AGAIN
            )
        return infos
