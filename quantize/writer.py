"""Bytes of a GGUF file, version 3: its header from metadata and tensor infos, and the file that is filled in place.

Knows the format and the file system, nothing of models or recipes. Invariant: a file is as long as it will ever be
before the first weight is written, and carries its final name only when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from gguf.constants import GGMLQuantizationType, GGUFValueType

from quantize.errors import DestinationError, NoSpaceError
from quantize.model import MetadataValue

DEFAULT_ALIGNMENT = 32
_VERSION = 3

_FORMATS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as the header lists it."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    """From the start of the data section; a multiple of the alignment."""


def align(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def encode_header(metadata: Mapping[str, MetadataValue], infos: Sequence[TensorInfo], alignment: int) -> bytes:
    """Everything before the data section, padded to the alignment.

    Raises:
        DestinationError: a value that its GGUF type cannot hold.
    """
    parts = [struct.pack("<4sIQQ", b"GGUF", _VERSION, len(infos), len(metadata))]
    for key, value in metadata.items():
        parts.append(_string(key))
        try:
            parts.extend(_value(value))
        except (struct.error, TypeError, ValueError, AttributeError) as error:
            raise DestinationError(f"metadata {key}={value.value!r:.80} is no {value.type.name}: {error}") from error
    for info in infos:
        dims = info.shape[::-1] or (1,)
        parts.append(_string(info.name))
        parts.append(struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, int(info.type), info.offset))
    header = b"".join(parts)
    return header + bytes(align(len(header), alignment) - len(header))


def _string(text: object) -> bytes:
    raw = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(value: MetadataValue) -> Iterable[bytes]:
    yield struct.pack("<I", int(value.type))
    if value.type == GGUFValueType.ARRAY:
        yield from _array(value)
    elif value.type == GGUFValueType.STRING:
        yield _string(value.value)
    else:
        yield struct.pack("<" + _FORMATS[value.type], value.value)


def _array(value: MetadataValue) -> Iterable[bytes]:
    if value.element is None:
        raise TypeError("an array without the type of its elements")
    items = cast(Sequence[object], value.value)
    yield struct.pack("<IQ", int(value.element), len(items))
    if value.element == GGUFValueType.STRING:
        yield from map(_string, items)
    elif value.element == GGUFValueType.ARRAY:
        raise TypeError("arrays of arrays are not supported")
    else:
        kind = np.dtype("<" + _FORMATS[value.element])
        array = np.asarray(items)
        if kind.kind in "iu" and array.size and not np.can_cast(array.dtype, kind, "same_kind"):
            _check_range(array, kind)
        yield array.astype(kind).tobytes()


def _check_range(array: np.ndarray, kind: np.dtype) -> None:
    limits = np.iinfo(kind)
    if array.dtype.kind not in "iub" or int(array.min()) < limits.min or int(array.max()) > limits.max:
        raise ValueError(f"values from {array.min()} to {array.max()} do not fit")


class PartialFile:
    """A file under its temporary name, filled at any position from any thread, renamed when it is complete.

    Opening keeps what is there when the size agrees, so that an interrupted run can go on. Owns the descriptor.
    """

    def __init__(self, final: Path, size: int) -> None:
        """Open or create `final` + `.part` and reserve its space.

        Raises:
            NoSpaceError: the disk is too small; nothing is left behind.
            DestinationError: the folder is missing or not writable.
        """
        self.final = final
        self.path = partial_path(final)
        self.size = size
        # A link of this name would lead to somebody's file.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
        try:
            self._fd = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise _destination_error(final, error) from error
        self.was_complete_size = os.fstat(self._fd).st_size == size
        try:
            if not self.was_complete_size:
                os.ftruncate(self._fd, 0)
            _reserve(self._fd, size)
        except OSError as error:
            self.close()
            self.path.unlink(missing_ok=True)
            raise _destination_error(final, error) from error

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        """Write all of `data`. Thread-safe.

        Raises:
            DestinationError: the disk is full or failed.
        """
        view = memoryview(data).cast("B")
        try:
            while len(view):
                written = os.pwrite(self._fd, view, position)
                position, view = position + written, view[written:]
        except OSError as error:
            raise _destination_error(self.final, error) from error

    def read_at(self, position: int, size: int) -> bytes:
        return os.pread(self._fd, size, position)

    def sync(self) -> None:
        """Wait until what was written is on the disk.

        Raises:
            DestinationError: the disk is full or failed.
        """
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise _destination_error(self.final, error) from error

    def finish(self) -> None:
        """Give the complete file its name, replacing an older file of that name in one step."""
        self.sync()
        self.close()
        os.replace(self.path, self.final)
        _sync_folder(self.final.parent)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def partial_path(final: Path) -> Path:
    return final.with_name(final.name + ".part")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well, and is removed when it does not.

    Raises OSError. Its name is drawn, so that no other file is written over.
    """
    scratch = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with open(scratch, "xb") as file:
            yield file
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def _reserve(fd: int, size: int) -> None:
    if size == 0:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    else:
        os.ftruncate(fd, size)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the file system lets folders be opened."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _destination_error(path: Path, error: OSError) -> DestinationError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NoSpaceError(f"no space left for {path}", hint="free space, or choose another disk with -o")
    if error.errno == errno.EFBIG:
        return DestinationError(f"{path} is too large for this file system", hint="use --split 4GB")
    return DestinationError(f"cannot write {path}: {error.strerror}", hint="check the folder and its permissions")
