"""Checks of the output before anything is written: never the source, in a folder that is there, on a disk with room.

Knows paths and the file system. Invariant: a run that passes these checks cannot destroy what it reads, nor anything
but results of earlier runs, unless it is told to, and then no more than plain files of the names it was given.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from quantize.earlier import may_be_replaced
from quantize.errors import DestinationError, NoSpaceError
from quantize.journal import is_journal, journal_path
from quantize.plan import Plan
from quantize.split import SHARD
from quantize.writer import partial_path

REPORT_SUFFIXES = (".json", ".html", ".htm")

_TYPE_SUFFIX = re.compile(r"[-._](?:f32|f16|bf16|(?:i?q|tq)\d[a-z0-9_]*|mxfp4(?:_moe)?)$", re.IGNORECASE)


def source_files(source: Path) -> list[Path]:
    """Every file of a checkpoint folder, a GGUF file, or a set of GGUF shards."""
    if source.is_dir():
        return sorted(path for path in source.iterdir() if path.is_file())
    shard = SHARD.search(source.name)
    if shard is None:
        return [source]
    pattern = f"{source.name[: shard.start()]}-*-of-{shard[1]}.gguf"
    return sorted(path for path in source.parent.glob(_escape(pattern)) if path.is_file())


def default_output(source: Path, recipe: str, *, name: str | None = None) -> Path:
    """`Llama-1B-Q4_K_M.gguf` in the current folder, for a source called `Llama-1B` or `Llama-1B-BF16.gguf`."""
    stem = name or (source.resolve().name if source.is_dir() else SHARD.sub("", source.name).removesuffix(".gguf"))
    return Path(f"{_TYPE_SUFFIX.sub('', stem)}-{recipe.upper()}.gguf")


def check_output_name(path: Path) -> None:
    """Refuse what names no file at all, such as an empty text. Raises DestinationError."""
    if not path.name:
        raise DestinationError(f"-o '{path}' is no name of a file", hint="for example -o model.gguf")


def check_report_names(paths: Iterable[Path]) -> None:
    """Refuse reports of a kind that is not known by its ending. Raises DestinationError."""
    for path in paths:
        if path.suffix.lower() not in REPORT_SUFFIXES:
            raise DestinationError(f"--report '{path}' is neither .json nor .html", hint="for example report.html")


def check_destination(
    source: Path,
    plan: Plan,
    *,
    base: Plan | None = None,
    beside: Sequence[tuple[str, Path]] = (),
    inputs: Sequence[Path] = (),
    force: bool = False,
) -> list[str]:
    """Refuse what would fail later, or destroy the source or a file that no earlier run made. Returns warnings.

    Args:
        base: the temporary model beside the output, where there is one.
        beside: other files that will be written, each with the flag that names it.
        inputs: other files that will be read.
        force: replace any regular file that is not read.

    Raises:
        DestinationError: the output is something that is read, or is no place to write to.
        NoSpaceError: the disk is too small.
    """
    folder = plan.files[0].path.resolve().parent
    _check_folder(folder, "-o")
    read = [*source_files(source), *inputs]
    known = {_identity(path): path for path in read if path.exists()}
    written: dict[object, Path] = {}
    planned = [*(("-o", file.path) for file in plan.files), *beside]
    for flag, path in planned:
        _check_folder(path.resolve().parent, flag)
        if not path.name:
            raise DestinationError(f"{flag} '{path}' is no name of a file", hint=f"choose another with {flag}")
        # A partial file is written over as the output itself is.
        for target in (path, partial_path(path)) if flag == "-o" else (path,):
            identity = _identity(target)
            if identity in known:
                what = "the source" if known[identity] in read[: len(read) - len(inputs)] else "read as"
                raise DestinationError(
                    f"the output {target} is {what} {known[identity]}", hint=f"choose another name with {flag}"
                )
            if identity in written:
                raise DestinationError(
                    f"{flag} {target} is {written[identity]}, which is written too", hint="choose another name"
                )
            written[identity] = target
        _check_replaceable(path, flag)
    if not force:
        _check_strangers(planned)
    _check_partial(plan)
    if base is not None:
        _check_base(base)
    _check_space(folder, plan, 0 if base is None else base.size)
    return [
        f"{file.path} exists and will be replaced when the new file is complete"
        for file in plan.files
        if file.path.exists()
    ]


def _check_folder(folder: Path, flag: str) -> None:
    if not folder.is_dir():
        raise DestinationError(f"there is no folder {folder}", hint=f"make it first, or choose another with {flag}")
    if not os.access(folder, os.W_OK):
        raise DestinationError(f"the folder {folder} cannot be written", hint=f"choose another with {flag}")


def _check_replaceable(path: Path, flag: str) -> None:
    """Refuse what a rename would put out of the world: a device such as /dev/null, a pipe, a socket."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise DestinationError(
            f"cannot write {path}: {error.strerror}", hint=f"choose another name with {flag}"
        ) from error
    if stat.S_ISDIR(mode):
        raise DestinationError(f"{path} is a folder", hint=f"{flag} wants the name of a file")
    if not stat.S_ISREG(mode):
        raise DestinationError(f"{path} is no regular file", hint=f"{flag} wants the name of a file on a disk")


def _check_strangers(planned: Iterable[tuple[str, Path]]) -> None:
    """Refuse to replace files that no earlier run made."""
    for flag, path in planned:
        if not may_be_replaced(path, flag):
            raise DestinationError(
                f"{path} exists, and no earlier run made it", hint=f"choose another name with {flag}, or add --force"
            )


def _check_partial(plan: Plan) -> None:
    """Refuse to write over unfinished files that no run of ours left: those have our journal beside them."""
    journal = journal_path(partial_path(plan.files[0].path))
    if os.path.lexists(journal) and not is_journal(journal):
        raise _strange(journal)
    for file in plan.files:
        partial = partial_path(file.path)
        if os.path.lexists(partial) and (not _is_plain(partial) or not journal.exists()):
            raise _strange(partial)


def _check_base(base: Plan) -> None:
    """The same for the temporary model: one that a killed run left behind begins as the new one will."""
    _check_partial(base)
    for file in base.files:
        if not os.path.lexists(file.path):
            continue
        if not _is_plain(file.path):
            raise _strange(file.path)
        with file.path.open("rb") as stream:
            if stream.read(len(file.header)) != file.header:
                raise _strange(file.path)


def _strange(path: Path) -> DestinationError:
    return DestinationError(
        f"{path} is in the way: it is not from an unfinished run", hint="move it away, or choose another name with -o"
    )


def _is_plain(path: Path) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode)


def _check_space(folder: Path, plan: Plan, extra_bytes: int) -> None:
    there = sum(_allocated(partial_path(file.path)) for file in plan.files)
    wanted = plan.size - there + extra_bytes
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise NoSpaceError(
            f"no space left for {plan.files[0].path}: {wanted / 1e9:.2f} GB needed, "
            f"{free / 1e9:.2f} GB free in {folder}",
            hint="free space, choose another disk with -o, or use a smaller type",
        )


def _allocated(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _identity(path: Path) -> object:
    """Equal for two names of one file, by link too; for a file that is not there, its place."""
    try:
        status = os.stat(path)
    except OSError:
        return path.resolve()
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
