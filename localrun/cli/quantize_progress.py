"""How far a quantization is, on stderr, and what is left of one that is stopped.

Knows streams and the stages of a run; reads no weight. Invariant: on a terminal one line moves, elsewhere a handful of
lines is written; what is said after it begins on a line of its own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from localrun.cli.output import is_fancy, write_stderr

if TYPE_CHECKING:
    from quantize.progress import Progress


def how_far(*, quiet: bool) -> Lines | Bar | None:
    """What shows the progress; None for who wants to hear nothing."""
    if quiet:
        return None
    return Bar() if is_fancy(sys.stderr) else Lines()


class _HowFar:
    """Which stage a run is in, and what is left of it when it is stopped there."""

    def __init__(self) -> None:
        self.stage = ""
        self._is_written = False

    def note(self, progress: Progress) -> None:
        self.stage = progress.stage
        self._is_written |= progress.stage == "quantize" and progress.done >= progress.total

    @property
    def what_is_left(self) -> str:
        if self._is_written:
            return "the model is written, its quality was not measured"
        if self.stage == "quantize":
            return "the same command goes on from there"
        return "nothing is left behind: the same command begins anew"  # only the pass over the weights keeps its work


class Lines(_HowFar):
    """A line at the beginning of each stage and at every quarter of it."""

    def __init__(self) -> None:
        super().__init__()
        self._quarter = 0

    def end_line(self) -> None:
        """Every line is whole."""

    def update(self, progress: Progress) -> None:
        if progress.stage != self.stage:
            self._quarter = 0
            write_stderr(f"{progress.stage} …\n")
        self.note(progress)
        quarter = 4 * progress.done // max(progress.total, 1)
        if quarter > self._quarter:
            self._quarter = quarter
            write_stderr(_line(progress) + "\n")


class Bar(_HowFar):
    """One line on a terminal that is rewritten, at most ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = -1.0
        self._is_open = False

    def end_line(self) -> None:
        """What is said next begins on a line of its own."""
        if self._is_open:
            write_stderr("\n")
            self._is_open = False

    def update(self, progress: Progress) -> None:
        ended = progress.done >= progress.total
        if progress.stage == self.stage and progress.seconds - self._shown < 0.1 and not ended:
            return
        self.note(progress)
        self._shown, self._is_open = progress.seconds, not ended
        write_stderr(f"\r\x1b[K{_line(progress)}" + ("\n" if ended else ""))


def _line(progress: Progress) -> str:
    parts = [f"{progress.stage}: {100 * progress.done // max(progress.total, 1)} %", progress.detail]
    if progress.bytes_written and progress.seconds > 0:
        parts.append(f"{progress.bytes_written / progress.seconds / 1e6:.0f} MB/s")
    if progress.eta is not None and progress.done < progress.total:
        parts.append(f"{_time(progress.eta)} left")
    return ", ".join(parts)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
