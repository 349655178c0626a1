"""Identifies the content of a model file: quickly by samples, fully by SHA-256.

Knows files; knows no format. Invariant: neither identity depends on a file's name or time, so a renamed or copied
model is the same model; results are remembered only for a file that is, to the nanosecond, the one that was read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from localrun.errors import ModelFileError
from localrun.gguf.foreign import shown
from localrun.gguf.header import GGUFHeader, read_header
from localrun.gguf.known import identity_of, memory_file
from localrun.gguf.values import GGUFArray
from localrun.paths import ensure_private

_SAMPLES = 64
_SAMPLE_BYTES = 4096
_READ_BYTES = 4 << 20
_TOKENIZER = re.compile(r"tokenizer\.(?!chat_template)")
_NAMES = ("general.architecture", "general.name")
_DIGEST = re.compile(r"[0-9a-f]{64}")

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in total)."""


def fingerprint(model: Path | str | GGUFHeader) -> str:
    """An identity of a model's content, as 32 hexadecimal digits, without reading all of it. Takes its file or header.

    It covers the sizes of all its files, each whole header (so vocabulary, template, tensor names, types and
    positions) and 64 samples of 4 KiB spread evenly over each file's tensor data, the last bytes included. Two
    different models agree only if somebody changed weights between the samples on purpose; where that matters, use
    `sha256`.

    Raises `ModelFileError` if the file is no complete model.
    """
    header = model if isinstance(model, GGUFHeader) else read_header(model, runnable=False)
    digest = hashlib.sha256()
    first_tensor = {t.shard: t.offset for t in reversed(header.tensors)}
    for number, shard in enumerate(header.shards):
        try:
            with shard.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = first_tensor.get(number, size)
                digest.update(size.to_bytes(8, "little"))
                while file.tell() < start and (block := file.read(min(_READ_BYTES, start - file.tell()))):
                    digest.update(block)
                last = max(size - _SAMPLE_BYTES, start)
                for sample in range(_SAMPLES):
                    file.seek(start + (last - start) * sample // (_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE_BYTES))
        except OSError as error:
            raise ModelFileError(f"{shown(shard)} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()[:32]


def vocabulary_fingerprint(header: GGUFHeader) -> str:
    """An identity of the model's vocabulary, as 32 hexadecimal digits.

    It covers all that the engine makes tokens from: every key of the tokenizer but the chat templates, the size where
    there is no tokenizer, and the names of model and architecture, by which the engine knows the odd ones. So the
    quantizations of a model share it.

    Raises `ModelFileError` if the file has changed since its header was read.
    """
    digest = hashlib.sha256()
    for key, value in sorted(header.metadata.items()):
        if key in _NAMES or key.endswith(".vocab_size") or _TOKENIZER.match(key):
            packed = value.packed() if isinstance(value, GGUFArray) else b""
            digest.update(f"{key}\n{value!r}\n{len(packed)}\n".encode())  # of an array: its length and type
            digest.update(packed)
    return digest.hexdigest()[:32]


def sha256(path: Path | str, *, on_progress: Progress | None = None) -> str:
    """The SHA-256 of the whole file, as 64 hexadecimal digits; remembered, so a second call costs nothing.

    Reads about a gigabyte a second. Writes a small file in the cache; that it cannot be written is no error.
    """
    path = Path(path)
    if (known := known_sha256(path, trust_name=False)) is not None:
        return known
    before = path.stat()
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
            done += len(block)
            if on_progress is not None:
                on_progress(done, before.st_size)
    result = digest.hexdigest()
    if identity_of(path.stat()) == identity_of(before):
        remember_sha256(path, result)
    return result


def known_sha256(path: Path | str, *, trust_name: bool = True) -> str | None:
    """The SHA-256 of the file if it can be told without reading it: computed earlier, or part of a store's blob name.

    The Hugging Face cache and Ollama name their files by checksum; `trust_name=False` leaves that promise out.
    """
    path = Path(path)
    try:
        text = memory_file(path.stat(), "sha256").read_text("ascii").strip()
        if _DIGEST.fullmatch(text):
            return text
    except (OSError, UnicodeDecodeError):  # not computed yet, or not readable: it can be computed again
        text = ""
    return _blob_digest(path) if trust_name else None


def remember_sha256(path: Path | str, digest: str) -> None:
    """Note that the file's SHA-256 is `digest`, as a download that has just hashed it knows."""
    target = memory_file(Path(path).stat(), "sha256")
    try:
        ensure_private(target.parent)
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        temporary.write_text(digest + "\n", "ascii")
        temporary.replace(target)
    except OSError:
        # A cache that cannot be written (full disk, read-only home) only costs time.
        return


def _blob_digest(path: Path) -> str | None:
    """The checksum in the name of a store's blob, along the links from `path`.

    The links are followed one at a time: the Hugging Face cache may link a blob on to a shared one that is named by
    another kind of hash.
    """
    for _ in range(8):
        if path.name.startswith("sha256-") and _DIGEST.fullmatch(path.name[7:]):
            return path.name[7:]
        in_hub_cache = path.parent.name == "blobs" and path.parent.parent.name.startswith("models--")
        if in_hub_cache and _DIGEST.fullmatch(path.name):
            return path.name
        if not path.is_symlink():
            return None
        path = Path(os.path.normpath(path.parent / path.readlink()))
    return None
