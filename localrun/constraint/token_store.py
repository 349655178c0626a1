"""The tokens of vocabularies on disk, so that masks can be made ready before the model is loaded.

Knows files; knows no model. Each file is one vocabulary, named by what its owner says identifies it. Invariants: what
comes back is what was stored, to the byte; a file that is missing, damaged or cannot be written only costs time.
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path

from localrun.constraint.tokens import VocabularyTokens
from localrun.paths import ensure_private

KEPT = 8
"""Vocabularies that stay on disk, the last used ones; each takes 0.5 to 5 MB."""

_MAGIC = b"localrun tokens 1\n"  # counts up when the form changes
_NUMBER = "I"  # as this machine writes it: the folder is a cache of this machine
_COUNTS = struct.Struct("=3I")  # all tokens, those that end a generation, those that are no text
_HEAD_BYTES = len(_MAGIC) + hashlib.sha256().digest_size


class TokenStore:
    """A folder of vocabularies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, identity: str) -> VocabularyTokens | None:
        """The tokens that were saved under `identity`; None if there are none, or not whole."""
        path = self._path(identity)
        try:
            data = path.read_bytes()
            os.utime(path)  # it was used now
        except OSError:
            return None
        head, body = data[:_HEAD_BYTES], data[_HEAD_BYTES:]
        return _unpack(body) if head == _head(body) else None

    def save(self, identity: str, tokens: VocabularyTokens) -> None:
        """Keep `tokens` under `identity`, and drop what has not been used for longest."""
        body = _pack(tokens)
        path = self._path(identity)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk or a read-only home only costs time
            ensure_private(self._folder)
            try:
                part.write_bytes(_head(body) + body)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            by_use = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
            for old in by_use[:-KEPT]:
                old.unlink(missing_ok=True)

    def _path(self, identity: str) -> Path:
        return self._folder / hashlib.sha256(identity.encode()).hexdigest()[:32]


def _head(body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(body).digest()


def _pack(tokens: VocabularyTokens) -> bytes:
    lengths = [len(piece) for piece in tokens.pieces]
    counts = _COUNTS.pack(len(lengths), len(tokens.eog), len(tokens.no_text))
    return b"".join([counts, array(_NUMBER, [*lengths, *tokens.eog, *tokens.no_text]).tobytes(), *tokens.pieces])


def _unpack(body: bytes) -> VocabularyTokens:
    n_tokens, n_eog, n_no_text = _COUNTS.unpack_from(body)
    numbers = array(_NUMBER)
    first = _COUNTS.size + numbers.itemsize * (n_tokens + n_eog + n_no_text)
    numbers.frombytes(body[_COUNTS.size : first])
    starts = accumulate(numbers[:n_tokens], initial=first)
    pieces = [body[start:stop] for start, stop in pairwise(starts)]
    eog, no_text = numbers[n_tokens : n_tokens + n_eog], numbers[n_tokens + n_eog :]
    return VocabularyTokens(pieces, tuple(eog), tuple(no_text))
