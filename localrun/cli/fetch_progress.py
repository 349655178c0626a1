"""Shows on stderr what fetching does: a bar on a terminal, a few plain lines elsewhere.

Knows streams; knows no server. Invariant: nothing goes to stdout, and no escape code to anything but a terminal.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from localrun.catalog.progress import CHECKING, Progress, Silent
from localrun.catalog.storage import human_size

_LINES = 4
"""How many lines tell of one transfer where there is no bar."""


def fetch_progress(*, quiet: bool = False) -> Progress:
    """The right kind for this stderr."""
    if quiet:
        return Silent()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return BarProgress()
    return LineProgress()


class LineProgress:
    """Plain lines: one at the start, one for each quarter."""

    def __init__(self) -> None:
        self._label = ""
        self._total: int | None = None
        self._quarters = 0

    def note(self, text: str) -> None:
        print(f"note: {text}", file=sys.stderr)  # noqa: T201

    def start(self, label: str, total: int | None, done: int) -> None:
        self._label, self._total = label, total
        if label == CHECKING:  # takes a second for a gigabyte: one line would be one too many
            self._quarters = _LINES
            return
        self._quarters = done * _LINES // total if total else _LINES
        size = f" ({human_size(total)}{f', {human_size(done)} are here already' if done else ''})" if total else ""
        print(f"fetching {label}{size}", file=sys.stderr)  # noqa: T201

    def update(self, done: int) -> None:
        if not self._total:
            return
        quarters = done * _LINES // self._total
        if quarters > self._quarters:
            self._quarters = quarters
            print(f"{self._label}: {100 * done // self._total} %", file=sys.stderr)  # noqa: T201

    def finish(self) -> None:
        return


class BarProgress:
    """A bar with size, speed and remaining time, which disappears at the end."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def note(self, text: str) -> None:
        print(f"note: {text}", file=sys.stderr)  # noqa: T201

    def start(self, label: str, total: int | None, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as SpeedColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), SpeedColumn(),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(label, total=total, completed=done)

    def update(self, done: int) -> None:
        self._bar.update(self._task, completed=done)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
