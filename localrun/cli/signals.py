"""Ctrl-C, SIGTERM and SIGHUP: as an exception, and while an answer is in the making as a request to stop.

Knows signals; knows no engine. Invariants: while an answer is made the first signal calls `stop` and lets the answer
end by itself, and the second ends the process; a signal is never forgotten, wherever its exception got lost.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
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


@lru_cache(maxsize=1)
def received_before() -> Received:
    """The first signal that this process was sent outside `stop_on_signal`."""
    return Received()


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: handled like Ctrl-C, with an exit code of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = _EXIT_BASE + number


def end_on_signal() -> None:
    """From now on, SIGINT, SIGTERM and SIGHUP end the process at once: for the time in which there is nothing to lose.

    An exception would not do: raised inside an import, it may be dropped, or leave the import lock to other threads.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        os._exit(_EXIT_BASE + number)

    for number in _heard():
        signal.signal(number, end)


@contextmanager
def signals_later() -> Iterator[None]:
    """For a moment in which threads import: signals are heard at its end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _heard())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def raise_on_signal() -> None:
    """From now on, SIGINT raises `KeyboardInterrupt`, SIGTERM and SIGHUP `Terminated`; a second SIGINT ends all."""

    def on_interrupt(number: int, _frame: FrameType | None) -> None:
        if received_before().number == number:
            os._exit(_EXIT_BASE + number)  # the second Ctrl-C waits for nobody
        received_before().number = number
        raise KeyboardInterrupt

    def on_terminate(number: int, _frame: FrameType | None) -> None:
        received_before().number = number
        raise Terminated(number)

    for number in _heard():
        signal.signal(number, on_interrupt if number == signal.SIGINT else on_terminate)


def _heard() -> list[signal.Signals]:
    """Without SIGHUP under `nohup`, which stays in force."""
    hangup = hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangup else [])]


@contextmanager
def stop_on_signal(stop: Callable[[], None]) -> Iterator[Received]:
    """While it lasts, SIGINT, SIGTERM and SIGHUP call `stop`; a second one ends the process at once."""
    # Python drops an exception that a signal raises inside a finalizer or a callback; the signal itself is known.
    received = Received(received_before().number)
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread hears signals
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if received.number:
            os._exit(_EXIT_BASE + number)
        received.number = number
        begin_stop()

    def begin_stop() -> None:
        # In a thread: the handler may have interrupted code that holds the lock `stop` needs.
        threading.Thread(target=stop, name="localrun-stop", daemon=True).start()

    before = {number: signal.signal(number, handle) for number in _heard()}
    try:
        if received.number:
            begin_stop()
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
