"""Split models: `name-00001-of-00003.gguf` and its siblings.

Knows the naming scheme and the `split.*` keys (llama.cpp's gguf-split). Invariant: whichever file of a set is named,
the whole set is checked, and the engine is given the first file, which is the one it can load.
"""

from __future__ import annotations

import re
from pathlib import Path

from localrun.errors import ModelFileError
from localrun.gguf.foreign import MAGIC, shown
from localrun.gguf.reader import ParsedFile, parse_file

_SHARD_NAME = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
MAX_SHARDS = 1024
"""Real sets have a few dozen files."""


def shard_path(name: str, number: int) -> str | None:
    """The name of shard `number` (from 1) of the set that `name` belongs to; None if `name` is no shard's name."""
    match = _SHARD_NAME.fullmatch(name)
    return f"{match['prefix']}-{number:05d}-of-{match['count']}.gguf" if match else None


def parse_set(path: Path) -> tuple[ParsedFile, ...]:
    """The headers of all files of the model that `path` belongs to, the first one first.

    A file that is not split is a set of one. Raises `ModelFileError` for a set that is not complete, was renamed, or
    was joined with `cat`.
    """
    named = parse_file(path)
    count = _split_key(named, "split.count")
    _check_not_joined(named)
    if count <= 1:
        return (named,)
    if count > MAX_SHARDS:
        raise ModelFileError(f"{shown(path)} claims to be one of {count} files; at most {MAX_SHARDS} are accepted")
    number = _split_key(named, "split.no") + 1
    if shard_path(path.name, number) != path.name or not path.name.endswith(f"-of-{count:05d}.gguf"):
        raise ModelFileError(
            f"{shown(path)} is file {number} of a model in {count} files, but its name does not say so",
            hint=f"rename it to NAME-{number:05d}-of-{count:05d}.gguf, with the same NAME as the other files",
        )
    paths = [path.with_name(shard_path(path.name, i) or path.name) for i in range(1, count + 1)]
    missing = [p.name for p in paths if not p.exists()]
    if missing:
        raise ModelFileError(
            f"{shown(path)} is one of {count} files of a model; missing here: {_listed(missing)}",
            hint="all files of a split model lie in one folder under their own names",
        )
    files = tuple(named if p == path else parse_file(p) for p in paths)
    _check_complete(files)
    return files


def _check_complete(files: tuple[ParsedFile, ...]) -> None:
    seen: set[str] = set()
    for number, file in enumerate(files):
        if _split_key(file, "split.no") != number or _split_key(file, "split.count") != len(files):
            raise ModelFileError(
                f"{shown(file.path)} is not file {number + 1} of {len(files)} of this model",
                hint="a file of another set was given this name: fetch the set again",
            )
        for tensor in file.tensors:
            if tensor.name in seen:
                raise ModelFileError(f"{shown(file.path)} holds the tensor {tensor.name!r}, which another file has too")
            seen.add(tensor.name)
    expected = files[0].metadata.get("split.tensors.count")
    if isinstance(expected, int) and expected != len(seen):
        raise ModelFileError(
            f"{shown(files[0].path)} and its siblings hold {len(seen)} tensors, expected {expected}",
            hint="the files belong to different sets: fetch them all again",
        )


def _check_not_joined(file: ParsedFile) -> None:
    """Refuse shards joined with `cat`: right after the tensors of the first, the magic of the second follows."""
    if not file.tensors:
        return
    last = file.tensors[-1]
    end = last.offset + last.n_bytes
    padded = -(-end // file.alignment) * file.alignment
    if padded >= file.file_size:
        return
    with file.path.open("rb") as stream:
        stream.seek(end)
        tail = stream.read(padded - end + len(MAGIC))
    if tail[: len(MAGIC)] == MAGIC or tail[padded - end :] == MAGIC:
        raise ModelFileError(
            f"{shown(file.path)} is several GGUF files one after the other",
            hint="the files of a split model are not joined with `cat`: keep them as they are, side by side, "
            "and name the first one",
        )


def _split_key(file: ParsedFile, key: str) -> int:
    value = file.metadata.get(key, 0)
    if not isinstance(value, int) or value < 0:
        raise ModelFileError(f"{shown(file.path)} has {key} {value!r}, which is no count")
    return value


def _listed(names: list[str]) -> str:
    rest = len(names) - 3
    return ", ".join(names[:3]) + (f" and {rest} more" if rest > 0 else "")
