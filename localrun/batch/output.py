"""Where the lines of a batch go: a stream, or a file that an interrupted run left behind.

Knows files and JSON lines; knows no requests. Invariants: a line is written whole or not at all, in the order of the
input; a run that is resumed loses no row and writes none twice; a file that is no output of a batch stays as it is.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from localrun.errors import InputError, OutputWriteError

_BEGINNING = b'{"index": %d, '
"""How every line begins that `to_line` makes of a row."""


class Output(Protocol):
    """Takes finished lines in order."""

    @property
    def n_done(self) -> int:
        """How many rows are there already."""
        ...

    @property
    def answered_input(self) -> str | None:
        """The fingerprint of the input up to the last of those rows; None if there are none."""
        ...

    def write(self, line: str) -> None: ...

    def close(self) -> None: ...


class StreamOutput:
    """Lines to a function that writes text (stdout)."""

    n_done = 0
    answered_input: str | None = None

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def write(self, line: str) -> None:
        self._write(line)

    def close(self) -> None:
        return


class ResumedFile:
    """Lines appended to a file. What an interrupted run wrote stays; half a last line is cut off."""

    def __init__(self, path: Path) -> None:
        """Raises `InputError` for what is no regular file, or holds something else than such lines."""
        self._path = path
        self.answered_input: str | None = None
        try:
            if path.exists() and not stat.S_ISREG(path.stat().st_mode):
                raise InputError(f"{path} is not a regular file", hint="--resume takes a file that it can go on with")
            self._file = open(path, "r+b", opener=_made_if_missing)  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise OutputWriteError.of(str(path), error) from error
        try:
            self.n_done = self._count()
        except BaseException:
            self._file.close()
            raise

    def write(self, line: str) -> None:
        try:
            self._file.write(line.encode())
            self._file.flush()
        except OSError as error:
            raise OutputWriteError.of(str(self._path), error) from error

    def close(self) -> None:
        """Make sure that everything is on the disk."""
        if self._file.closed:
            return
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
        except OSError as error:
            raise OutputWriteError.of(str(self._path), error) from error

    def _count(self) -> int:
        """How many rows the file has. Cuts off the beginning of another one behind them, and nothing else."""
        done, end = 0, 0
        for line in self._file:
            if not line.endswith(b"\n"):
                begins = _BEGINNING % done
                if not line.startswith(begins) and not begins.startswith(line):
                    raise self._foreign(done)
                break
            row = _row(line, done)
            if row is None:
                raise self._foreign(done)
            self.answered_input = row["input"]
            done, end = done + 1, end + len(line)
        self._file.seek(end)
        self._file.truncate()
        return done

    def _foreign(self, done: int) -> InputError:
        return InputError(
            f"{self._path} is not the output of a batch: its line {done + 1} is not row {done}",
            hint="--resume takes the file that an earlier run of the same batch wrote",
        )


def _made_if_missing(path: str, flags: int) -> int:
    """Opens a file without ever emptying it."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def _row(line: bytes, index: int) -> dict[str, Any] | None:
    """The object of a line that a batch wrote for row `index`; None for anything else."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or type(data.get("index")) is not int or data["index"] != index:
        return None
    return data if "error" in data and isinstance(data.get("input"), str) else None


def to_line(data: dict[str, Any]) -> str:
    """One JSON line that can be written as UTF-8; a lone surrogate becomes a question mark.

    Raises `ValueError` for a number that JSON has not.
    """
    line = json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"
    return line.encode(errors="replace").decode()
