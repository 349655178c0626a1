"""One KV block as a file.

A header, the token ids, then the keys and values as the engine wrote them. Knows the format; knows no engine and no
folder. Invariants: what `read` gives is what was packed, under exactly this key for exactly these tokens, and whatever
else lies under a block's name costs neither memory nor a wait.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from localrun.engine.ports import Block

SUFFIX = ".kv"
LARGEST_PAYLOAD = 1 << 30
"""Bytes of keys and values, or of a whole state, in one file."""
_MAGIC = b"LRKV\x03\x00\x00\x00"
_HEADER = struct.Struct("<8sIIQ")  # magic, tokens, checksum, bytes of payload


class UnsoundBlockError(ValueError):
    """A file is no whole block of the tokens that were asked for."""


class _Header(NamedTuple):
    n_tokens: int
    checksum: int
    n_payload: int


def packed_header(key: str, tokens: bytes, payload: Block) -> bytes:
    """What stands before the tokens and the payload in the file of `key`."""
    return _HEADER.pack(_MAGIC, len(tokens) // 4, _checksum(key, tokens, payload), len(payload))


def read_block(path: Path, key: str, tokens: bytes) -> memoryview:
    """The payload of a block file. Raises `UnsoundBlockError` for what is no block of `key`, and `OSError`."""
    with _opened(path) as (file, header):
        if 4 * header.n_tokens != len(tokens) or header.n_payload > LARGEST_PAYLOAD:
            raise UnsoundBlockError(path)
        data = bytearray(len(tokens) + header.n_payload)
        at, view = 0, memoryview(data)
        while n_read := os.readv(file, [view[at:]]) if at < len(data) else 0:
            at += n_read
    held, payload = view[: len(tokens)], view[len(tokens) :]
    if at != len(data) or held != tokens or _checksum(key, tokens, payload) != header.checksum:
        raise UnsoundBlockError(path)
    return payload


def stored_tokens(path: Path) -> list[int]:
    """The token ids of a block file, without its payload; empty for what is no block."""
    try:
        with _opened(path) as (file, header):
            data = os.read(file, 4 * min(header.n_tokens, 1 << 16))
    except (OSError, UnsoundBlockError):
        return []
    return array("i", data[: len(data) // 4 * 4]).tolist()


def has_its_size(path: Path) -> bool:
    """Whether a file is a block that is as long as its header tells; true for one that is gone."""
    try:
        with _opened(path):
            return True
    except FileNotFoundError:  # another process has evicted it
        return True
    except (OSError, UnsoundBlockError):
        return False


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, _Header]]:
    """A block file behind its header, which fits its size."""
    # Not to wait for the other end of what may be a pipe.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(file)
        head = os.read(file, _HEADER.size) if stat.S_ISREG(info.st_mode) else b""
        if len(head) < _HEADER.size:
            raise UnsoundBlockError(path)
        magic, *counts = _HEADER.unpack(head)
        header = _Header(*counts)
        if magic != _MAGIC or info.st_size != _HEADER.size + 4 * header.n_tokens + header.n_payload:
            raise UnsoundBlockError(path)
        yield file, header
    finally:
        os.close(file)


def _checksum(key: str, tokens: bytes, payload: Block) -> int:
    return zlib.crc32(payload, zlib.crc32(tokens, zlib.crc32(key.encode())))
