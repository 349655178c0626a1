"""Receives the C library's log and hands it to `logging`.

Knows log levels, continuation lines and when nobody listened. Invariant: a callback from C never raises, and the last
error lines are kept so that a failed load can say why.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("localrun.engine.native")

# ggml_log_level: 0 none, 1 debug, 2 info, 3 warn, 4 error, 5 continuation of the line before.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.WARNING}
_CONTINUED = 5
_ERROR = 4


class EngineLog:
    """Collects whole lines. `errors` are the latest error lines, oldest first; `listeners` hear every line.

    A load has some 2,000 lines, most of them for nobody: what is done for each counts.
    """

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=20)
        self.listeners: list[Callable[[str], None]] = []
        self._level = 2
        self._line = ""
        self._callback: Any = None
        self._off = threading.Lock()
        self._n_begun = 0
        self._n_ended = 0

    def callback(self, kind: Any) -> Any:
        """The ctypes callback of type `kind`: one for ever, since a thread of C may be about to call it."""
        if self._callback is None:
            self._callback = kind(self._receive)
        return self._callback

    def clear_errors(self) -> None:
        """Forget the error lines; call before an operation whose failure will be explained by them."""
        self.errors.clear()

    @contextmanager
    def off(self) -> Iterator[None]:
        """The block in which nobody listens; whoever opens it sees to it that no line comes."""
        with self._off:
            self._n_begun += 1
            try:
                yield
            finally:
                self._n_ended += 1

    @contextmanager
    def kept_on(self) -> Iterator[None]:
        """A block in which no line is lost; waits until somebody listens again."""
        with self._off:
            yield

    @property
    def is_off(self) -> bool:
        """Whether nobody listens right now."""
        return self._n_begun > self._n_ended

    def mark(self) -> int:
        """A moment, for `missed_since`."""
        return self._n_ended

    def missed_since(self, mark: int) -> bool:
        """Whether lines may have been lost since that moment."""
        return self._n_begun > mark

    def _receive(self, level: int, text: bytes | None, _user: ctypes.c_void_p) -> None:
        if level != _CONTINUED:
            self._level = level
        self._line += (text or b"").decode("utf-8", "replace")
        while "\n" in self._line:
            line, self._line = self._line.split("\n", 1)
            if line := line.rstrip():
                self._emit(line)

    def _emit(self, line: str) -> None:
        if self._level == _ERROR:
            self.errors.append(line)
        for listener in self.listeners:
            listener(line)
        level = _LEVELS.get(self._level, logging.DEBUG)
        if logger.isEnabledFor(level):
            logger.log(level, "%s", line)
