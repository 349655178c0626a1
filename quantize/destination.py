"""Checks of the output before anything is written: never the source, in a folder that is there, on a disk with room.

Knows paths and the file system. Invariant: a run that passes these checks cannot destroy its own source.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from quantize.errors import DestinationError, NoSpaceError
from quantize.plan import Plan
from quantize.writer import partial_path

_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_TYPE_SUFFIX = re.compile(r"[-._](?:f32|f16|bf16|(?:i?q|tq)\d[a-z0-9_]*|mxfp4(?:_moe)?)$", re.IGNORECASE)


def source_files(source: Path) -> list[Path]:
    """Every file of a checkpoint folder, a GGUF file, or a set of GGUF shards."""
    if source.is_dir():
        return sorted(path for path in source.iterdir() if path.is_file())
    shard = _SHARD.search(source.name)
    if shard is None:
        return [source]
    pattern = f"{source.name[: shard.start()]}-*-of-{shard[1]}.gguf"
    return sorted(path for path in source.parent.glob(_escape(pattern)) if path.is_file())


def default_output(source: Path, recipe: str, *, name: str | None = None) -> Path:
    """`Llama-1B-Q4_K_M.gguf` in the current folder, for a source called `Llama-1B` or `Llama-1B-BF16.gguf`."""
    stem = name or (source.resolve().name if source.is_dir() else _SHARD.sub("", source.name).removesuffix(".gguf"))
    return Path(f"{_TYPE_SUFFIX.sub('', stem)}-{recipe.upper()}.gguf")


def check_destination(source: Path, plan: Plan, *, extra_bytes: int = 0) -> list[str]:
    """Refuse what would fail or destroy the source later. Returns warnings.

    Args:
        extra_bytes: room for temporary files beside the output.

    Raises:
        DestinationError: the output is the source, or is no place to write to.
        NoSpaceError: the disk is too small.
    """
    folder = plan.files[0].path.resolve().parent
    if not folder.is_dir():
        raise DestinationError(f"there is no folder {folder}", hint="make it first, or choose another with -o")
    if not os.access(folder, os.W_OK):
        raise DestinationError(f"the folder {folder} cannot be written", hint="choose another with -o")
    sources = {_identity(path): path for path in source_files(source)}
    warnings = []
    for file in plan.files:
        for path in (file.path, partial_path(file.path)):
            if path.exists() and _identity(path) in sources:
                raise DestinationError(
                    f"the output {path} is the source {sources[_identity(path)]}", hint="choose another name with -o"
                )
        if file.path.is_dir():
            raise DestinationError(f"{file.path} is a folder", hint="-o wants the name of a file")
        if file.path.exists():
            warnings.append(f"{file.path} exists and will be replaced when the new file is complete")
    _check_space(folder, plan, extra_bytes)
    return warnings


def _check_space(folder: Path, plan: Plan, extra_bytes: int) -> None:
    there = sum(_allocated(partial_path(file.path)) for file in plan.files)
    wanted = plan.size - there + extra_bytes
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise NoSpaceError(
            f"{wanted / 1e9:.2f} GB are needed in {folder}, {free / 1e9:.2f} GB are free",
            hint="free space, choose another disk with -o, or use a smaller type",
        )


def _allocated(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _escape(pattern: str) -> str:
    return re.sub(r"([\[\]?])", r"[\1]", pattern)


def fingerprint(files: Iterable[Path], *more: str) -> str:
    """Text that changes when a source file does (name, size, time of change), or anything in `more`."""
    parts = []
    for path in files:
        status = os.stat(path)
        parts.append(f"{path.name}:{status.st_size}:{status.st_mtime_ns}")
    return "\n".join([*parts, *more])
