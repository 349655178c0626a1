"""Which slabs of an unfinished output are on the disk, so that an interrupted run goes on where it stopped.

A text file beside the partial one: a line that identifies the run, then a line for each slab. Knows slabs as numbers.
Invariant: a slab is noted only after its bytes were synced, so a note can be trusted after a crash; a last line that
was cut short is ignored. The lock on the file keeps a second run of the same output away.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

from quantize.errors import DestinationError

_FORMAT = 1
_MARK = "localrun-quantize-journal"


class Journal:
    """Notes of one run. Owns its file."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        """Open the notes of the same run, or begin new ones.

        Args:
            fingerprint: of everything the output depends on.

        Raises:
            DestinationError: another process is writing this output, or the file cannot be written.
        """
        self.path = path
        try:
            self._file = open(path, "a+", encoding="ascii", newline="\n")  # noqa: SIM115  # closed in `close`
        except OSError as error:
            raise DestinationError(
                f"cannot write {path}: {error.strerror}", hint="check the folder and its permissions"
            ) from error
        try:
            self._lock()
        except DestinationError:
            self._file.close()
            raise
        header = json.dumps({_MARK: _FORMAT, "fingerprint": fingerprint})
        self._header = header
        found = self._read(header)
        self.done = found or set()
        """Numbers of the slabs that are on the disk."""
        if found is None:
            self.forget()

    def note(self, slabs: list[int]) -> None:
        """Remember these slabs, whose bytes have been synced."""
        self._append([str(slab) for slab in slabs])

    def forget(self) -> None:
        """Begin anew: nothing is on the disk."""
        self.done = set()
        self._file.truncate(0)
        self._append([self._header])

    def close(self) -> None:
        self._file.close()

    def _append(self, lines: list[str]) -> None:
        self._file.write("".join(line + "\n" for line in lines))
        self._file.flush()

    def _read(self, header: str) -> set[int] | None:
        self._file.seek(0)
        text = self._file.read()
        lines = text.split("\n")[:-1]  # what follows the last line end was cut short
        if not lines or lines[0] != header:
            return None
        if not text.endswith("\n"):
            self._append([""])
        return {int(line) for line in lines[1:] if line.isdigit()}

    def _lock(self) -> None:
        if sys.platform == "win32":
            return
        import fcntl  # not on Windows

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DestinationError(
                f"another process is writing {self.path.name.removesuffix('.part.journal')}", hint="wait for it to end"
            ) from error


def journal_path(partial: Path) -> Path:
    return partial.with_name(partial.name + ".journal")


def is_journal(path: Path) -> bool:
    """Whether a run of ours made this file. An empty one counts: the run ended before its first line."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    with path.open("rb") as file:
        head = file.read(64)
    return not head or head.startswith(f'{{"{_MARK}"'.encode())
