"""The tokens of vocabularies on disk, so that masks can be made ready before the model is loaded.

Knows files; knows no model. Each file is one vocabulary, named by what its owner says identifies it. Invariants: what
comes back is what was stored under that identity, to the byte; a file that is missing, damaged, of another vocabulary
or no file at all, or that cannot be written, only costs time, and never more memory than the file has bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from array import array
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path

from localrun.constraint.tokens import VocabularyTokens
from localrun.paths import ensure_private

KEPT = 8
"""Vocabularies that stay on disk, the last used ones; each takes 0.5 to 5 MB."""
MAX_BYTES = 2**28
"""No vocabulary is this large; a file that is was not written here."""

_MAGIC = b"localrun tokens 2\n"  # counts up when the form changes
_NUMBER = "I"  # as this machine writes it: the folder is a cache of this machine
_COUNTS = struct.Struct("=4Q")  # bytes behind the head, all tokens, those that end a generation, those that are no text
_HEAD_BYTES = len(_MAGIC) + hashlib.sha256().digest_size + _COUNTS.size
_O_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a pipe of this name has no writer, and must not be waited for


class TokenStore:
    """A folder of vocabularies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, identity: str) -> VocabularyTokens | None:
        """The tokens that were saved under `identity`; None if there are none, or not whole, or others."""
        path = self._path(identity)
        try:
            data = _read(path)
            os.utime(path)  # it was used now
        except OSError:
            return None
        return None if data is None else _unpack(identity, data)

    def save(self, identity: str, tokens: VocabularyTokens) -> None:
        """Keep `tokens` under `identity`, and drop what has not been used for longest."""
        path = self._path(identity)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk or a read-only home only costs time
            ensure_private(self._folder)
            try:
                part.write_bytes(_pack(identity, tokens))
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            self._drop_old()

    def _drop_old(self) -> None:
        files = [(file.lstat(), file) for file in self._folder.iterdir()]
        by_use = sorted((found.st_mtime_ns, file) for found, file in files if stat.S_ISREG(found.st_mode))
        for _, old in by_use[:-KEPT]:
            old.unlink(missing_ok=True)

    def _path(self, identity: str) -> Path:
        return self._folder / hashlib.sha256(identity.encode()).hexdigest()[:32]


def _read(path: Path) -> bytes | None:
    """The bytes of a file that says itself that it is this long; None for anything else."""
    with open(os.open(path, os.O_RDONLY | _O_NONBLOCK | getattr(os, "O_BINARY", 0)), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or not _HEAD_BYTES <= found.st_size <= MAX_BYTES:
            return None
        head = file.read(_HEAD_BYTES)
        if not head.startswith(_MAGIC) or _COUNTS.unpack(head[-_COUNTS.size :])[0] != found.st_size - _HEAD_BYTES:
            return None
        return head + file.read(found.st_size - _HEAD_BYTES)


def _checksum(identity: str, counts: bytes, body: bytes) -> bytes:
    """Over the identity too: the right bytes under another vocabulary's name are wrong."""
    name = identity.encode()
    return hashlib.sha256(b"%d:%b%b%b" % (len(name), name, counts, body)).digest()


def _pack(identity: str, tokens: VocabularyTokens) -> bytes:
    lengths = [len(piece) for piece in tokens.pieces]
    body = b"".join([array(_NUMBER, [*lengths, *tokens.eog, *tokens.no_text]).tobytes(), *tokens.pieces])
    counts = _COUNTS.pack(len(body), len(lengths), len(tokens.eog), len(tokens.no_text))
    return b"".join([_MAGIC, _checksum(identity, counts, body), counts, body])


def _unpack(identity: str, data: bytes) -> VocabularyTokens | None:
    counts, body = data[_HEAD_BYTES - _COUNTS.size : _HEAD_BYTES], data[_HEAD_BYTES:]
    if data[len(_MAGIC) : _HEAD_BYTES - _COUNTS.size] != _checksum(identity, counts, body):
        return None
    n_bytes, n_tokens, n_eog, n_no_text = _COUNTS.unpack(counts)
    numbers = array(_NUMBER)
    first = numbers.itemsize * (n_tokens + n_eog + n_no_text)
    if n_bytes != len(body) or first > n_bytes:
        return None
    numbers.frombytes(body[:first])
    if first + sum(numbers[:n_tokens]) != n_bytes or any(token >= n_tokens for token in numbers[n_tokens:]):
        return None
    starts = accumulate(numbers[:n_tokens], initial=first)
    pieces = [body[start:stop] for start, stop in pairwise(starts)]
    eog, no_text = numbers[n_tokens : n_tokens + n_eog], numbers[n_tokens + n_eog :]
    return VocabularyTokens(pieces, tuple(eog), tuple(no_text))
