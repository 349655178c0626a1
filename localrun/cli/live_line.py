"""One line on a terminal that is rewritten while something lasts, and is gone afterwards.

Knows a stream and its width; knows no engine. Invariants: nothing is written to what is no terminal; a line never
wraps (what does not fit is left out from the end); after `clear` the line is as empty as before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TextIO

from localrun.cli.output import is_fancy
from localrun.responder import Done, LoadProgress, PrefillProgress, ReasoningPiece, TextPiece, TokenChosen

_INTERVAL_S = 0.1
_USUAL_WIDTH = 80
_PATIENCE_S = 0.5
"""A prompt that is read within this time is not told about."""


class LiveLine:
    """Parts of a text, the most important first. Any thread may show and clear."""

    def __init__(
        self, stream: TextIO, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic, columns: int = 0
    ) -> None:
        """`columns`: the width if it is known; 0 asks the terminal each time."""
        self._stream = stream
        self._shows = not quiet and is_fancy(stream)
        self._clock = clock
        self._columns = columns
        self._lock = threading.Lock()
        self._last: float | None = None

    def show(self, parts: Sequence[str]) -> None:
        """Put `parts` in the line's place; passed over if the last ones have only just been shown."""
        now = self._clock()
        with self._lock:
            if not self._shows or (self._last is not None and now - self._last < _INTERVAL_S):
                return
            self._last = now
            self._write(f"\r\x1b[K{_fitted(parts, self._width())}")

    def clear(self) -> None:
        """Leave nothing behind."""
        with self._lock:
            if self._last is not None:
                self._last = None
                self._write("\r\x1b[K")

    def _width(self) -> int:
        if self._columns:
            return self._columns
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _USUAL_WIDTH
        except (OSError, ValueError):
            return _USUAL_WIDTH

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._shows = False  # nobody reads it


def _fitted(parts: Sequence[str], width: int) -> str:
    """As many parts as fit beside the cursor, the first one in any case."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + len(part) + 3 >= width:
            break
        text += f" · {part}"
    return text[: width - 1]


class ReadingLine:
    """Tells how much of a long prompt has been read, from a moment after the first event until the first piece.

    A context manager: at its end the line is gone, whatever ended it.
    """

    def __init__(
        self, line: LiveLine, *, patience_s: float = _PATIENCE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._line = line
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._first: tuple[float, PrefillProgress] | None = None
        self._latest: PrefillProgress | None = None
        self._timer: threading.Timer | None = None
        self._over = False

    def hear(self, event: object) -> None:
        """Call it with each event before the event itself is shown."""
        if isinstance(event, PrefillProgress):
            self._read(event)
        elif isinstance(event, TextPiece | ReasoningPiece | TokenChosen | Done):
            self._end()  # the answer has begun, and has the screen to itself
        elif not isinstance(event, LoadProgress):
            self._line.clear()

    def __enter__(self) -> ReadingLine:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._end()

    def _read(self, event: PrefillProgress) -> None:
        with self._lock:
            if self._over:
                return
            self._latest = event
            if self._first is None:
                self._first = (self._clock(), event)
                # A timer: a chunk of a large model takes many seconds, and nothing is heard meanwhile.
                self._timer = threading.Timer(self._patience_s, self._show)
                self._timer.daemon = True
                self._timer.start()
                return
        self._show()

    def _show(self) -> None:
        with self._lock:
            if self._over or self._first is None or self._latest is None:
                return
            begun, first = self._first
            seconds = self._clock() - begun
            if seconds >= self._patience_s:
                self._line.show(reading_parts(self._latest, self._latest.done - first.done, seconds))

    def _end(self) -> None:
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            self._line.clear()


def reading_parts(progress: PrefillProgress, n_read: int, seconds: float) -> list[str]:
    """What is told of a prompt of which `n_read` tokens took `seconds`."""
    parts = [f"reading {progress.done:,} of {progress.total:,} tokens"]
    if n_read > 0 and progress.done < progress.total:
        parts.append(f"{duration((progress.total - progress.done) * seconds / n_read)} left")
    if progress.cached:
        parts.append(f"reused {progress.cached:,}")
    return parts


def duration(seconds: float) -> str:
    """A time to wait, as short as it is useful."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
