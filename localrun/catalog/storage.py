"""The last steps of every download: room on the disk, one process at a time, checks, a name that appears at once.

Knows files; knows no server. Invariant: under its final name a file is complete and has been checked; whatever is not
lies under a name that ends in `.part`, `.incomplete` or `.tmp`.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localrun.catalog.progress import CHECKING, Progress, transfer
from localrun.errors import FetchError, IntegrityError, ModelFileError
from localrun.paths import nearest_existing

_SPARE_BYTES = 64 << 20
"""Left free beyond the download itself, so that the machine can go on working."""

_MOVE = "move the cache: HF_HOME for the hub, LOCALRUN_HOME for the rest"


def human_size(n_bytes: float) -> str:
    """`98 MB`, `4.9 GB`: decimal units, as hubs and disks count."""
    for unit in ("bytes", "kB", "MB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.0f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB" if n_bytes < 99.95 else f"{n_bytes:.0f} GB"


def check_room(folder: Path, needed: int, what: str) -> None:
    """Raise `FetchError` if the disk that holds `folder` (which need not exist) has no room for `needed` bytes."""
    place = nearest_existing(folder)
    free = shutil.disk_usage(place).free
    if needed + _SPARE_BYTES > free:
        raise FetchError(
            f"no space left for {what}: {human_size(needed)} needed and {human_size(_SPARE_BYTES)} to spare, "
            f"{human_size(free)} free in {place}",
            hint=f"free some space, or {_MOVE}",
        )


@contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Turns an `OSError` of the local disk into a `FetchError` that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError(
                f"no space left for {what} on the disk of {folder}",
                hint="free some space and run the command again: what was fetched is kept",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EIO):
            place = nearest_existing(Path(error.filename or folder))
            raise FetchError(
                f"cannot write {what} to {folder}: {error.strerror}",
                hint=f"make {place} a folder that you may write to, or {_MOVE}",
            ) from error
        raise


@contextmanager
def one_at_a_time(lock_file: Path, what: str, progress: Progress) -> Iterator[None]:
    """Lets one process at a time fetch `what`; the others wait and then find it done."""
    from filelock import FileLock, Timeout

    lock_file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.note(f"another process is fetching {what}: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def checked_sha256(path: Path, expected: str | None, size: int | None, what: str, progress: Progress) -> str | None:
    """Check size and SHA-256 of the file at `path`; the digest, if one was expected.

    Raises `IntegrityError` and leaves the file to the caller.
    """
    from localrun.gguf.identity import sha256

    actual_size = path.stat().st_size
    if size is not None and actual_size != size:
        raise IntegrityError(
            f"{what} has {actual_size} bytes, expected {size}", hint="it was cut short, or the file has changed"
        )
    if expected is None:
        return None
    with transfer(progress, CHECKING, actual_size) as shown:
        digest = sha256(path, on_progress=lambda done, _: shown.update(done))
    if digest != expected:
        raise IntegrityError(
            f"{what} has the SHA-256 {digest}, expected {expected}",
            hint="it was damaged on the way, or is not the file that was promised",
        )
    return digest


def check_gguf(path: Path, what: str) -> None:
    """Raise `IntegrityError` if what arrived is no complete GGUF file: a proxy's error page, for example."""
    from localrun.gguf.reader import parse_file

    try:
        parse_file(path)
    except ModelFileError as error:
        reason = error.message.removeprefix(str(path)).strip()
        raise IntegrityError(f"what arrived from {what} {reason}", hint=error.hint) from error


def write_source_note(model: Path, source: str, sha256: str | None) -> None:
    """Note beside a fetched file where it came from, so that it can be listed and found by that name."""
    note = source_note(model)
    temporary = note.with_name(note.name + ".tmp")
    temporary.write_text(json.dumps({"source": source, "sha256": sha256}) + "\n", "utf-8")
    temporary.replace(note)


def read_source_note(note: Path) -> tuple[Path, str] | None:
    """(model file, source) of a note; None if it cannot be read or its model is gone."""
    try:
        source = json.loads(note.read_text("utf-8"))["source"]
    except (OSError, ValueError, KeyError, TypeError):
        # A note that was damaged only hides the file from the list; it is written anew by the next fetch.
        return None
    model = note.with_name(note.name.removesuffix(NOTE_SUFFIX))
    return (model, source) if isinstance(source, str) and model.is_file() else None


NOTE_SUFFIX = ".source.json"


def source_note(model: Path) -> Path:
    return model.with_name(model.name + NOTE_SUFFIX)
