"""What a person hears of a batch: how far it is, what became of it, and how to go on with one that was stopped.

Knows streams and counts; knows no engine. Invariants: on a terminal one line moves, elsewhere a long batch says a
handful of lines at most; nothing that is said goes to stdout, and nothing at all is said with --quiet.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from localrun.batch import Summary
from localrun.cli.live_line import LiveLine, duration
from localrun.cli.output import is_fancy, write_stderr, write_stdout

_LINES = 4
"""How many lines tell of a long batch where no line can move."""
_LONG_S = 20.0
"""What is over before is not told about while it runs."""


def count_rows(lines: BinaryIO) -> int | None:
    """How many rows there are to come, without reading them; None where that cannot be known (a pipe)."""
    try:
        if not stat.S_ISREG(os.fstat(lines.fileno()).st_mode):
            return None
        here = lines.tell()
        count = sum(1 for line in lines if line.strip())
        lines.seek(here)
    except (OSError, ValueError):  # no file at all (a test's, an odd device): the rows come as they come
        return None
    return count


class BatchTold:
    """Says on stderr what a run does."""

    def __init__(
        self,
        n_rows: int | None,
        *,
        source: str | None = None,
        resume: Path | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`source` is the file of rows; None: these are samples of one prompt, and no run can be resumed."""
        self._n_rows = n_rows
        self._source = source
        self._resume = resume
        self._quiet = quiet
        self._clock = clock
        self._line = LiveLine(sys.stderr, quiet=quiet, clock=clock)
        self._moves = is_fancy(sys.stderr)
        self._began = clock()
        self._quarters = 0

    def progress(self, summary: Summary) -> None:
        """Call it at the beginning and after every row."""
        seconds = self._clock() - self._began
        if self._moves:
            self._line.show(self._parts(summary, seconds))
        elif self._n_rows and not self._quiet and seconds >= _LONG_S:
            quarters = _LINES * (summary.n_done + summary.n_resumed) // self._n_rows
            if self._quarters < quarters < _LINES:
                self._quarters = quarters
                write_stderr(", ".join(self._parts(summary, seconds)) + "\n")

    def write_stdout(self, line: str) -> None:
        """A line of the output; on a screen that the moving line shares, it gets a line of its own."""
        if self._moves and sys.stdout.isatty():
            self._line.clear()
        write_stdout(line)

    def clear(self) -> None:
        """Leave no moving line behind."""
        self._line.clear()

    def end(self, summary: Summary, *, stats: bool) -> None:
        """Say what became of it; `stats`: the figures have been told already."""
        if self._quiet:
            return
        if summary.stopped:
            write_stderr(f"stopped after {self._counted(summary.n_done + summary.n_resumed)}\n")
            if hint := self.how_to_go_on():
                write_stderr(f"hint: {hint}\n")
        elif self._source is not None and not stats:
            write_stderr(self._verdict(summary))
        if summary.n_failed:
            write_stderr(_failures(summary))

    def how_to_go_on(self) -> str | None:
        """How the rows that are missing are answered."""
        if self._source is None:
            return None
        if self._resume is not None:
            return "the same command goes on where this one stopped"
        return "with --resume OUT in place of > OUT, the same command goes on where it stopped"

    def _parts(self, summary: Summary, seconds: float) -> list[str]:
        parts = [self._counted(summary.n_done + summary.n_resumed)]
        if summary.n_failed:
            parts.append(f"{summary.n_failed:,} failed")
        if self._n_rows and summary.n_done:
            left = self._n_rows - summary.n_done - summary.n_resumed
            if left > 0:
                parts.append(f"{duration(left * seconds / summary.n_done)} left")
        if summary.seconds and summary.completion_tokens:
            parts.append(f"{summary.completion_tokens / summary.seconds:,.0f} tokens/s")
        return parts

    def _counted(self, n_done: int) -> str:
        noun = "rows" if self._source is not None else "answers"
        return f"{n_done:,} of {self._n_rows:,} {noun}" if self._n_rows is not None else f"{n_done:,} {noun}"

    def _verdict(self, summary: Summary) -> str:
        well = summary.n_done - summary.n_failed
        there = f" ({summary.n_resumed:,} were there already)" if summary.n_resumed else ""
        where = f" in {self._resume}" if self._resume is not None else ""
        if not summary.n_done:
            return f"nothing to do: {summary.n_resumed:,} rows are there already{where}\n" if there else "no rows\n"
        rate = summary.completion_tokens / summary.seconds if summary.seconds else 0.0
        return (
            f"{well:,} {'row' if well == 1 else 'rows'} answered{there} in {duration(summary.seconds)}, "
            f"{summary.completion_tokens:,} tokens ({rate:,.0f} tokens/s)\n"
        )


def _failures(summary: Summary) -> str:
    """How many rows failed, and what is wrong with the first of them."""
    text = f"warning: {summary.n_failed:,} of {summary.n_done:,} rows failed; their lines say why\n"
    if summary.first_failure is None:
        return text
    row, error = summary.first_failure
    name = f", id {row.id!r}" if row.id is not None else ""
    text += f"first: index {row.index}{name}: {' '.join(error.message.split())}\n"
    if error.hint:
        text += f"hint: {' '.join(error.hint.splitlines()[0].split())}\n"
    return text
