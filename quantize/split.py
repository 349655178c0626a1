"""Output in several files: names and keys that llama.cpp's loader expects of them.

Knows sizes and names only. Invariant: shards follow the order of the tensors, and none is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gguf.constants import GGUFValueType

from quantize.errors import RecipeError
from quantize.model import MetadataValue

_UNITS = {"": 1, "B": 1, "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
SHARD = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_MAX_SHARDS = 65_535  # `split.no` is a 16-bit number


def parse_size(text: str) -> int:
    """`2GB`, `500M`, `1.5GiB` → bytes.

    Raises:
        RecipeError: the text is no positive size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = int(float(found[1]) * _UNITS.get(found[2].upper(), 0)) if found else 0
    if size <= 0:
        raise RecipeError(f"'{text}' is no size", hint="for example 2GB, 500MB or 1.5GiB")
    return size


def split_by_size(sizes: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Ranges of tensors that fit into `limit` bytes each; a tensor that is larger has a shard for itself.

    Raises:
        RecipeError: there would be too many shards.
    """
    groups: list[tuple[int, int]] = []
    start, total = 0, 0
    for index, size in enumerate(sizes):
        if index > start and total + size > limit:
            groups.append((start, index))
            start, total = index, 0
        total += size
    groups.append((start, len(sizes)))
    if len(groups) > _MAX_SHARDS:
        raise RecipeError(f"{len(groups)} files are too many", hint="use a larger --split")
    return groups


def shard_path(output: Path, number: int, count: int) -> Path:
    """`model.gguf` → `model-00001-of-00003.gguf`."""
    stem = output.name.removesuffix(".gguf")
    return output.with_name(f"{stem}-{number + 1:05d}-of-{count:05d}.gguf")


def first_shard(path: Path) -> Path:
    """The first of the files that `path` is one of; itself if it is no part of a set."""
    found = SHARD.search(path.name)
    return path if found is None else path.with_name(f"{path.name[: found.start()]}-00001-of-{found[1]}.gguf")


def shard_metadata(number: int, count: int, n_tensors: int) -> dict[str, MetadataValue]:
    return {
        "split.no": MetadataValue(number, GGUFValueType.UINT16),
        "split.count": MetadataValue(count, GGUFValueType.UINT16),
        "split.tensors.count": MetadataValue(n_tensors, GGUFValueType.INT32),
    }
