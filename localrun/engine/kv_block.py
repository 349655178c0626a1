"""One KV block as a file.

A header, the token ids, then the keys and values as the engine wrote them. Knows the format; knows no key and no
folder. Invariant: what `verified` gives is what was packed, for exactly these tokens.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from pathlib import Path

from localrun.engine.ports import Block

SUFFIX = ".kv"
_MAGIC = b"LRKV\x02\x00\x00\x00"
_HEADER = struct.Struct("<8sIIQ")  # magic, tokens, checksum of tokens and payload, bytes of payload


def packed_header(tokens: bytes, payload: Block) -> bytes:
    """What stands before the tokens and the payload in a file."""
    return _HEADER.pack(_MAGIC, len(tokens) // 4, zlib.crc32(payload, zlib.crc32(tokens)), len(payload))


def verified(data: memoryview, tokens: bytes) -> memoryview | None:
    """The payload of a block file, if it is a whole block of exactly these tokens."""
    if len(data) < _HEADER.size:
        return None
    magic, n_tokens, checksum, n_payload = _HEADER.unpack_from(data)
    start = _HEADER.size + len(tokens)
    if magic != _MAGIC or 4 * n_tokens != len(tokens) or len(data) != start + n_payload:
        return None
    if data[_HEADER.size : start] != tokens or zlib.crc32(data[_HEADER.size :]) != checksum:
        return None
    return data[start:]


def stored_tokens(path: Path) -> list[int]:
    """The token ids of a block file, without its payload; empty for what is no block."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or head[:8] != _MAGIC:
                return []
            n_tokens = min(_HEADER.unpack(head)[1], 1 << 16)
            data = file.read(4 * n_tokens)
    except OSError:
        return []
    return array("i", data[: len(data) // 4 * 4]).tolist()


def has_its_size(path: Path) -> bool:
    """Whether a file is as long as its header tells; true for one that is gone."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:  # another process has evicted it
        return True
    except OSError:
        return False
    if len(head) < _HEADER.size:
        return False
    magic, n_tokens, _, n_payload = _HEADER.unpack(head)
    return bool(magic == _MAGIC and size == _HEADER.size + 4 * n_tokens + n_payload)
