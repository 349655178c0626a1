"""Where the lines of a batch go: a stream, or a file that an interrupted run left behind.

Knows files and JSON lines; knows no requests. Invariant: a line is written whole or not at all, in the order of the
input; a run that is resumed loses no row and writes none twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from localrun.errors import InputError, OutputWriteError


class Output(Protocol):
    """Takes finished lines in order."""

    @property
    def n_done(self) -> int:
        """How many rows are there already."""
        ...

    def write(self, data: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class StreamOutput:
    """Lines to a function that writes text (stdout)."""

    n_done = 0

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def write(self, data: dict[str, Any]) -> None:
        self._write(to_line(data))

    def close(self) -> None:
        return


class ResumedFile:
    """Lines appended to a file. What an interrupted run wrote stays; half a last line is cut off."""

    def __init__(self, path: Path) -> None:
        """Raises `InputError` for a file that holds something else than such lines."""
        self._path = path
        try:
            self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise OutputWriteError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self.n_done = self._count()
        except InputError:
            self._file.close()
            raise

    def write(self, data: dict[str, Any]) -> None:
        try:
            self._file.write(to_line(data).encode())
            self._file.flush()
        except OSError as error:
            raise OutputWriteError(f"{self._path} could not be written: {error.strerror}") from error

    def close(self) -> None:
        """Make sure that everything is on the disk."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def _count(self) -> int:
        done, end = 0, 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            try:
                index = json.loads(line)["index"]
            except (ValueError, KeyError, TypeError):
                raise self._foreign(done) from None
            if index != done:
                raise self._foreign(done)
            done, end = done + 1, end + len(line)
        self._file.seek(end)
        self._file.truncate()
        return done

    def _foreign(self, done: int) -> InputError:
        return InputError(
            f"{self._path} is not the output of a batch: its line {done + 1} is not row {done}",
            hint="--resume takes the file that an earlier run of the same batch wrote",
        )


def to_line(data: dict[str, Any]) -> str:
    """One JSON line."""
    return json.dumps(data, ensure_ascii=False) + "\n"
