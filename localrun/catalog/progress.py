"""How fetching tells what it does, without knowing who listens.

Invariant: `start` and `finish` come in pairs (`finish` also after an error), and `update` only between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

CHECKING = "checking"
"""The label of a checksum being computed over what has arrived."""


class Progress(Protocol):
    """Shows the progress of one fetch at a time."""

    def note(self, text: str) -> None:
        """Something the user should know: another source is tried, another process is waited for."""

    def start(self, label: str, total: int | None, done: int) -> None:
        """A transfer of `total` bytes begins; `done` of them are here already."""

    def update(self, done: int) -> None:
        """So many bytes are here now."""

    def finish(self) -> None:
        """The transfer has ended, well or not."""


class Silent:
    """Shows nothing."""

    def note(self, text: str) -> None:
        return

    def start(self, label: str, total: int | None, done: int) -> None:
        return

    def update(self, done: int) -> None:
        return

    def finish(self) -> None:
        return


@contextmanager
def transfer(progress: Progress, label: str, total: int | None, done: int = 0) -> Iterator[Progress]:
    """Pairs `start` and `finish`."""
    progress.start(label, total, done)
    try:
        yield progress
    finally:
        progress.finish()
