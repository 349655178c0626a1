"""The thread that owns an engine.

Knows threads and deadlines; knows no policy. Invariants: after it has started, nobody else touches the backend; others
leave commands and set flags; a command that was taken is obeyed, so that whoever handed in a sequence hears its end.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from localrun.engine.engine import Engine
from localrun.engine.events import Failed
from localrun.engine.ports import Backend
from localrun.engine.sequence import Sequence, Status
from localrun.errors import EngineError

logger = logging.getLogger(__name__)
T = TypeVar("T")


class EngineWorker:
    """Runs an engine's steps while there is work, and sleeps while there is none."""

    def __init__(self, engine: Engine, backend: Backend) -> None:
        self._engine = engine
        self._backend = backend
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gate = threading.Lock()
        """Held while a command is put or the worker's state changes: nothing is put that nobody would read."""
        self._closing = False
        """No sequence is taken any more."""
        self._over = False
        """No command is read any more."""
        self._failed = False
        self._timers: list[tuple[threading.Timer, Sequence]] = []
        self._thread = threading.Thread(target=self._run, name="localrun-engine", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # Ctrl-C while it began: nobody will have it to close it
            self.close()
            raise

    @property
    def failed(self) -> bool:
        """Whether a bug has ended it. Any thread may ask."""
        return self._failed

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. Its events come on the worker's thread. Raises `EngineError` after `close`."""
        with self._gate:
            if self._closing:
                raise EngineError("the engine is closed")
            self._commands.put(lambda: self._engine.submit(sequence))
            if sequence.params.timeout_s is not None:
                self._start_timer(sequence, sequence.params.timeout_s)

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence soon, inside a decode if nobody else needs that decode. Any thread may call it."""
        sequence.cancelled = True
        self._hurry()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the worker's thread, between steps. Raises `EngineError` when the thread has ended."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # handed to whoever waits, whatever it is
                future.set_exception(error)

        with self._gate:
            if self._over:
                raise EngineError("the engine is closed")
            self._commands.put(run)
        return future

    def close(self) -> None:
        """End what runs, and the thread. Idempotent; any thread may call it, and each returns when it is over."""
        with self._gate:
            self._closing = True
            timers = [timer for timer, _ in self._timers]
        for sequence in self._engine.everybody():
            sequence.cancelled = True
        self._backend.abort()
        self._commands.put(_nothing)
        for timer in timers:
            timer.cancel()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _start_timer(self, sequence: Sequence, seconds: float) -> None:
        for timer, owner in self._timers:
            if owner.status is Status.FINISHED:
                timer.cancel()
        self._timers = [(timer, owner) for timer, owner in self._timers if owner.status is not Status.FINISHED]
        timer = threading.Timer(seconds, self._expire, [sequence])
        timer.daemon = True
        self._timers.append((timer, sequence))
        timer.start()

    def _expire(self, sequence: Sequence) -> None:
        sequence.expired = True
        self._hurry()

    def _hurry(self) -> None:
        if self._engine.all_stopping:
            self._backend.abort()
        self._commands.put(_nothing)

    def _run(self) -> None:
        try:
            while not self._closing:
                if not self._engine.busy:
                    self._backend.rest()
                self._obey(block=not self._engine.busy)
                if not self._closing:
                    self._engine.step()
            self._obey_the_last()
            self._engine.close()
        except Exception as error:  # a bug of ours must reach the owners, who would wait for ever
            logger.exception("the engine's worker failed")
            self._fail_everybody(error)

    def _obey(self, *, block: bool) -> None:
        """Run the commands that are there; with `block`, wait for the first."""
        while True:
            try:
                command = self._commands.get(block=block)
            except queue.Empty:
                return
            block = False
            try:
                command()
            except Exception:  # a submit tells its owner, a call its future: what is left is a bug in one of those
                logger.exception("a command of the engine's worker failed")

    def _obey_the_last(self) -> None:
        """Run what was put before the gate closed, and whatever that puts."""
        while not self._over:
            self._obey(block=False)
            with self._gate:
                self._over = self._closing and self._commands.empty()

    def _fail_everybody(self, error: Exception) -> None:
        with self._gate:
            self._closing = self._failed = True
        self._obey_the_last()
        failure = EngineError(f"the engine stopped because of a bug: {type(error).__name__}: {error}")
        for sequence in self._engine.everybody():
            sequence.notify(Failed(failure))


def _nothing() -> None:
    """Wakes the worker."""
