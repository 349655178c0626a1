"""Reads the header of one GGUF file: metadata and tensor infos, never tensor data.

A walk with `struct` over a memory map. Knows the format (versions 2 and 3) and the engine's own rules (`gguf.cpp`);
knows no model. Invariants: a file that passes cannot make the engine's reader fail or read outside it; memory stays
small whatever the counts in the header claim, because every count is checked against the bytes that are left, and
arrays are skipped and read on demand. Nothing here keeps a file open.
"""

from __future__ import annotations

import mmap
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from localrun.errors import ModelFileError
from localrun.gguf.foreign import MAGIC, not_gguf, shown
from localrun.gguf.types import REMOVED_TENSOR_TYPES, SCALAR_FORMATS, TENSOR_TYPES, TensorType, ValueType
from localrun.gguf.values import GGUFArray, Scalar, Value

DEFAULT_ALIGNMENT = 32
MAX_KEYS = 1 << 16
"""Real files have fewer than a hundred keys."""
MAX_TENSORS = 1 << 17
"""The largest mixture-of-experts models, one tensor an expert, have about 60,000."""
MAX_TEXT = 64 << 20
"""Bytes of keys and single strings together; chat templates are tens of kilobytes."""
MAX_ARRAY = 1 << 30
"""Elements of an array: the limit of the engine's reader (`GGUF_MAX_ARRAY_ELEMENTS`)."""
MAX_NAME = 63
"""Bytes of a tensor name (`GGML_MAX_NAME` less the final zero)."""
MAX_DIMS = 4
_INT64_MAX = (1 << 63) - 1

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {number: struct.Struct("<" + letter) for number, letter in SCALAR_FORMATS.items()}
_DIMS = [struct.Struct(f"<{n}Q") for n in range(MAX_DIMS + 1)]


class TensorInfo(NamedTuple):
    """One tensor: `shape` has the row length first, as ggml counts; `offset` is from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    n_bytes: int
    shard: int = 0
    """Which file of a split set holds it."""

    @property
    def n_elements(self) -> int:
        count = 1
        for dim in self.shape:
            count *= dim
        return count


class ParsedFile(NamedTuple):
    """The header of one file."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_offset: int
    """Where tensor data begins: the size of the header, padded."""
    file_size: int


def parse_file(path: Path) -> ParsedFile:
    """Read and check the header of the GGUF file at `path`.

    Raises `ModelFileError` if it is not GGUF, cut short, damaged or of an unsupported version or type.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelFileError(f"{shown(path)} is a folder", hint="name the .gguf file in it")
        if not stat.S_ISREG(mode):
            raise ModelFileError(f"{shown(path)} is not a regular file", hint="a model must be a file on disk")
        with path.open("rb") as file:
            head = file.read(256)
            if not head.startswith(MAGIC):
                raise not_gguf(path, head)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Walk(path, data).parse()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelFileError(f"{shown(path)} cannot be read: {reason}") from error


class _Walk:
    """A cursor over one mapped file. Each method moves `at` past what it read."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.at = len(MAGIC)
        self.text_left = MAX_TEXT

    def parse(self) -> ParsedFile:
        version = self._version()
        n_tensors, n_keys = self._u64(), self._u64()
        # A key takes at least 13 bytes (length, one character, type, one byte), a tensor 24.
        self._check_count("keys", n_keys, MAX_KEYS, 13)
        self._check_count("tensors", n_tensors, MAX_TENSORS, 24)
        metadata = self._metadata(n_keys)
        alignment = self._alignment(metadata)
        infos = [self._tensor(number) for number in range(n_tensors)]
        data_offset = -(-self.at // alignment) * alignment if infos else self.at
        tensors = self._place(infos, data_offset, alignment)
        return ParsedFile(self.path, version, metadata, tensors, alignment, data_offset, self.size)

    def _version(self) -> int:
        version = self._u32()
        if version and version & 0xFFFF == 0:
            raise self._error("is a big-endian GGUF file", "this machine needs the little-endian version of the model")
        if version == 1:
            raise self._error("is GGUF version 1, which the engine no longer reads", "fetch a newer GGUF of the model")
        if version not in (2, 3):
            raise self._error(f"claims GGUF version {version}; known are 2 and 3", _NEWER)
        return version

    def _check_count(self, what: str, count: int, most: int, least_bytes: int) -> None:
        if count * least_bytes > self.size - self.at:
            raise self._error(f"is cut short or damaged: it claims {count} {what}, but has {self.size} bytes", _DAMAGED)
        if count > most:
            raise self._error(f"claims {count} {what}; at most {most} are accepted", None)

    def _metadata(self, n_keys: int) -> dict[str, Value]:
        metadata: dict[str, Value] = {}
        for number in range(n_keys):
            key = self._string(f"the name of key {number}")
            if not key:
                raise self._error(f"has an empty name for key {number}", _DAMAGED)
            if key in metadata:
                raise self._error(f"has the key {key!r} twice", _DAMAGED)
            metadata[key] = self._value(key)
        return metadata

    def _value(self, key: str) -> Value:
        number = self._u32()
        if number == ValueType.STRING:
            return self._string(f"the value of {key!r}")
        if number == ValueType.ARRAY:
            return self._array(key)
        if number not in _SCALARS:
            raise self._error(f"has the key {key!r} of the unknown type {number}", _NEWER)
        return self._scalar(_SCALARS[number])

    def _array(self, key: str) -> GGUFArray:
        element_type, count = self._u32(), self._u64()
        if element_type in _SCALARS:
            least_bytes = _SCALARS[element_type].size
        elif element_type == ValueType.STRING:
            least_bytes = 8
        else:
            raise self._error(f"has the key {key!r}, an array of the unknown type {element_type}", _NEWER)
        if count > MAX_ARRAY or count * least_bytes > self.size - self.at:
            raise self._error(
                f"is cut short or damaged: the array {key!r} claims {count} elements, "
                f"{self.size - self.at} bytes are left",
                _DAMAGED,
            )
        start = self.at
        if element_type == ValueType.STRING:
            self._skip_strings(key, count)
        else:
            self.at += count * least_bytes
        return GGUFArray(self.path, element_type, count, start, self.at)

    def _skip_strings(self, key: str, count: int) -> None:
        """Move past `count` strings. The hot loop: a vocabulary has hundreds of thousands."""
        data, at, length_at = self.data, self.at, _U64.unpack_from
        try:
            for _ in range(count):
                at += 8 + length_at(data, at)[0]
        except (struct.error, OverflowError):
            at = self.size + 1
        if at > self.size:
            raise self._error(f"is cut short or damaged inside the array {key!r}", _DAMAGED)
        self.at = at

    def _alignment(self, metadata: Mapping[str, Value]) -> int:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        valid = isinstance(alignment, int) and 0 < alignment < 1 << 32 and alignment & (alignment - 1) == 0
        if not valid or not isinstance(alignment, int):
            raise self._error(f"has general.alignment {alignment!r}, which is no power of two", _DAMAGED)
        return alignment

    def _tensor(self, number: int) -> TensorInfo:
        """One tensor info; its `offset` is still relative to the data section."""
        name = self._string(f"the name of tensor {number}")
        if len(name.encode("utf-8", "replace")) > MAX_NAME:
            raise self._error(f"has a tensor name of {len(name)} characters; {MAX_NAME} bytes are allowed", _DAMAGED)
        n_dims = self._u32()
        if n_dims > MAX_DIMS:
            raise self._error(f"has the tensor {name!r} with {n_dims} dimensions; {MAX_DIMS} are allowed", _DAMAGED)
        dims_format = _DIMS[n_dims]
        self._need(dims_format.size)
        shape: tuple[int, ...] = dims_format.unpack_from(self.data, self.at)
        self.at += dims_format.size
        n_elements = 1
        for dim in shape:
            n_elements *= max(dim, 1)
        if n_elements > _INT64_MAX:
            raise self._error(f"has the tensor {name!r} of the impossible shape {list(shape)}", _DAMAGED)
        tensor_type = self._tensor_type(name)
        row = shape[0] if shape else 1
        if row % tensor_type.block_size:
            raise self._error(
                f"has the tensor {name!r} with rows of {row} elements, "
                f"but {tensor_type.name} needs multiples of {tensor_type.block_size}",
                _DAMAGED,
            )
        if 0 in shape:
            n_elements = 0
        n_bytes = n_elements // tensor_type.block_size * tensor_type.block_bytes
        return TensorInfo(name, shape, tensor_type, self._u64(), n_bytes)

    def _tensor_type(self, name: str) -> TensorType:
        number = self._u32()
        if number in TENSOR_TYPES:
            return TENSOR_TYPES[number]
        if number in REMOVED_TENSOR_TYPES:
            raise self._error(
                f"has the tensor {name!r} of type {number} ({REMOVED_TENSOR_TYPES[number]}), which the engine dropped",
                "it was made by an old tool: fetch a newer GGUF of the model",
            )
        raise self._error(f"has the tensor {name!r} of the unknown type {number}", _NEWER)

    def _place(self, infos: list[TensorInfo], data_offset: int, alignment: int) -> tuple[TensorInfo, ...]:
        """Make offsets absolute; check that tensors follow each other as the engine demands and lie in the file."""
        seen: set[str] = set()
        placed = []
        expected = 0
        end = self.at
        for info in infos:
            if info.name in seen:
                raise self._error(f"has the tensor {info.name!r} twice", _DAMAGED)
            seen.add(info.name)
            if info.offset != expected:
                raise self._error(
                    f"has the tensor {info.name!r} at offset {info.offset}, expected {expected}", _DAMAGED
                )
            end = data_offset + expected + info.n_bytes
            expected += -(-info.n_bytes // alignment) * alignment
            placed.append(info._replace(offset=data_offset + info.offset))
        needed = max(end, data_offset) if infos else self.at
        if needed > self.size:
            raise self._error(f"is cut short: it needs {needed} bytes and has {self.size}", _CUT_SHORT)
        return tuple(placed)

    def _string(self, what: str) -> str:
        length = self._u64()
        if length > self.size - self.at:
            raise self._error(
                f"is cut short or damaged: {what} claims {length} bytes, {self.size - self.at} are left", _DAMAGED
            )
        self.text_left -= length
        if self.text_left < 0:
            raise self._error(f"holds more than {MAX_TEXT >> 20} MiB of names and texts", None)
        raw = self.data[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8", "replace")

    def _scalar(self, scalar: struct.Struct) -> Scalar:
        self._need(scalar.size)
        value: Scalar = scalar.unpack_from(self.data, self.at)[0]
        self.at += scalar.size
        return value

    def _u32(self) -> int:
        self._need(4)
        value: int = _U32.unpack_from(self.data, self.at)[0]
        self.at += 4
        return value

    def _u64(self) -> int:
        self._need(8)
        value: int = _U64.unpack_from(self.data, self.at)[0]
        self.at += 8
        return value

    def _need(self, n_bytes: int) -> None:
        if self.at + n_bytes > self.size:
            raise self._error(
                f"is cut short inside its header: it needs at least {self.at + n_bytes} bytes and has {self.size}",
                _CUT_SHORT,
            )

    def _error(self, what: str, hint: str | None) -> ModelFileError:
        return ModelFileError(f"{shown(self.path)} {what}", hint=hint)


_CUT_SHORT = "the download is not complete: fetch the file again"
_DAMAGED = "fetch the file again; if it stays so, it was damaged where it was made"
_NEWER = "the file was made by a newer or another tool: update localrun, or fetch another GGUF of the model"
