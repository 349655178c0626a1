"""Ctrl-C and SIGTERM while an answer is in the making.

Knows signals; knows no engine. Invariant: the first signal calls `stop` and lets the answer end by itself; the second
ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_EXIT_BASE = 128


@dataclass(slots=True)
class Received:
    """The signal that came, if one did."""

    number: int = 0

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended because of it: 130 for Ctrl-C, 143 for SIGTERM."""
        return _EXIT_BASE + (self.number or signal.SIGINT)


@contextmanager
def stop_on_signal(stop: Callable[[], None]) -> Iterator[Received]:
    """While it lasts, SIGINT, SIGTERM and SIGHUP call `stop`; a second one ends the process at once."""
    received = Received()
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread hears signals
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if received.number:
            os._exit(_EXIT_BASE + number)
        received.number = number
        # In a thread: the handler may have interrupted code that holds the lock `stop` needs.
        threading.Thread(target=stop, name="localrun-stop", daemon=True).start()

    heard = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
