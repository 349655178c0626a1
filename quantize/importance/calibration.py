"""The calibration chunks: by default text that the model writes, prose and code, or a user's file.

Knows proportions; the texts are made elsewhere. Invariant: every chunk is full.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from quantize.errors import SourceError
from quantize.importance import texts
from quantize.importance.collect import CHUNK
from quantize.importance.generate import generate
from quantize.progress import ProgressCallback
from quantize.runtime import LoadedModel, Tokens, fits_in_memory

N_CHUNKS = 32
"""Chunks by default: 16,384 tokens, a minute or two for a small model on a CPU."""

N_CHUNKS_FROM_FILE = 128

_NOTHING = np.empty(0, np.int32)


def default_chunks(
    model: LoadedModel, *, threads: int, n_chunks: int | None = None, progress: ProgressCallback | None = None
) -> tuple[list[Tokens], tuple[str, ...]]:
    """A fifth of the model's own text, the rest prose and code. Returns the chunks and what to call them.

    A model that does not fit in memory writes nothing: it would be read from the disk for every token.
    """
    n_chunks = n_chunks or N_CHUNKS
    own = max(n_chunks // 5, 1) if fits_in_memory(model.path) else 0
    found = max((n_chunks - own) // 2, 1)
    streams = [
        (own, generate(model, own * CHUNK, held_out=False, threads=threads, progress=progress) if own else _NOTHING),
        (found, model.tokenize(texts.prose(held_out=False))),
        (found, model.tokenize(texts.code(held_out=False))),
    ]
    names = ("written by the model", "Python language reference", "Python library")
    chunks = [chunk for share, stream in streams for chunk in split_chunks(stream)[:share]]
    return chunks, tuple(f"localrun: {name}" for name in names[0 if own else 1 :])


def file_chunks(model: LoadedModel, path: Path) -> tuple[list[Tokens], tuple[str, ...]]:
    """Chunks of a user's text.

    Raises:
        SourceError: the file is no text, or shorter than one chunk.
    """
    tokens = model.tokenize(texts.from_file(path))
    chunks = split_chunks(tokens)[:N_CHUNKS_FROM_FILE]
    if not chunks:
        raise SourceError(f"{path} has {len(tokens)} tokens, too few", hint=f"{CHUNK} are needed, 25,000 are good")
    return chunks, (str(path),)


def split_chunks(tokens: Tokens) -> list[Tokens]:
    """Full chunks; the rest is left out."""
    return [np.ascontiguousarray(tokens[i : i + CHUNK]) for i in range(0, len(tokens) - CHUNK + 1, CHUNK)]
