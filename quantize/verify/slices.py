"""The evaluation text: prose, code and chat, none of which was used for calibration."""

from __future__ import annotations

from pathlib import Path

from quantize.errors import SourceError
from quantize.importance import texts
from quantize.importance.calibration import split_chunks
from quantize.importance.collect import CHUNK
from quantize.importance.generate import generate
from quantize.progress import ProgressCallback
from quantize.runtime import LoadedModel, Tokens, fits_in_memory

CHUNKS_PER_SLICE = 4
"""255 scored positions each: 3,060 positions in three slices."""


def default_slices(
    model: LoadedModel, *, threads: int, chunks: int | None = None, progress: ProgressCallback | None = None
) -> dict[str, list[Tokens]]:
    """Three slices; the chat is written by the base model with prompts and a seed kept for this.

    Without the chat where the base does not fit in memory, and would be read from the disk for every token.
    """
    chunks = chunks or CHUNKS_PER_SLICE
    found = {
        "prose": split_chunks(model.tokenize(texts.prose(held_out=True)))[:chunks],
        "code": split_chunks(model.tokenize(texts.code(held_out=True)))[:chunks],
    }
    if fits_in_memory(model.path):
        chat = generate(model, chunks * CHUNK, held_out=True, threads=threads, progress=progress)
        found["chat"] = split_chunks(chat)
    return found


def file_slices(model: LoadedModel, paths: list[Path], *, chunks: int | None = None) -> dict[str, list[Tokens]]:
    """One slice for each of the user's files.

    Raises:
        SourceError: a file is no text, or has too few tokens.
    """
    found = {}
    for path in paths:
        found[path.name] = split_chunks(model.tokenize(texts.from_file(path), add_bos=True))[:chunks]
        if not found[path.name]:
            raise SourceError(f"{path} is shorter than {CHUNK} tokens", hint="use a longer text")
    return found
