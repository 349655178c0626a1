"""Keeps enough rows in flight, and writes what is finished in the order of the input.

Knows rows, events and an output; knows no engine. Invariants: a row's failure is its own; no more rows are read than
can be in flight, so neither a long input nor a slow reader fills the memory; when it is stopped, every row that was
written is whole, and the next run goes on behind it; nothing is written behind the rows of another input.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from localrun.batch.output import Output, to_line
from localrun.batch.rows import Row, as_error
from localrun.errors import InputError, LocalrunError
from localrun.responder import Done, Event, Request, Result

_AHEAD = 4
"""Finished rows that wait for a slower one before them, as a multiple of the rows in flight."""


class Handle(Protocol):
    """A running answer."""

    def stop(self) -> None: ...


class Sink(Protocol):
    """Where the events of all answers go: (answer, event or the error that ended it)."""

    def put(self, item: tuple[Any, Event | LocalrunError]) -> None: ...


Start = Callable[[Request, Sink], Handle]


@dataclass(slots=True)
class Summary:
    """What a batch did. Tokens and seconds are those of this run, not of one that it resumed."""

    n_done: int = 0
    n_failed: int = 0
    first_failure: tuple[Row, LocalrunError] | None = None
    """Of the rows that failed, the one that comes first in the input."""
    n_resumed: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    stopped: bool = False


class BatchRunner:
    """Runs the rows of one batch."""

    def __init__(
        self,
        start: Start,
        output: Output,
        render: Callable[[Result], dict[str, Any]],
        *,
        n_parallel: int,
        on_progress: Callable[[Summary], None] | None = None,
    ) -> None:
        """`render` makes the object of a result's line."""
        self._start = start
        self._output = output
        self._render = render
        # One more than run: the next sequence is there when a slot becomes free.
        self._n_in_flight = n_parallel + max(1, n_parallel // 2)
        self._n_ahead = _AHEAD * self._n_in_flight
        self._on_progress = on_progress
        self._events: queue.SimpleQueue[tuple[Any, Event | LocalrunError]] = queue.SimpleQueue()
        self._running: dict[int, tuple[Row, Handle]] = {}
        self._finished: dict[int, str] = {}
        self._stopping = threading.Event()
        self.summary = Summary(n_resumed=output.n_done)

    def stop(self) -> None:
        """Start no more rows and end those that run. Any thread may call it."""
        self._stopping.set()
        for _, handle in list(self._running.values()):
            handle.stop()

    def run(self, rows: Iterator[Row]) -> Summary:
        """Run everything behind what the output has already. Raises `InputError` if that is of another input."""
        began = time.perf_counter()
        next_written = self._output.n_done
        self._skip_answered(rows)
        exhausted = False
        while True:
            while not exhausted and self._may_start():
                row = next(rows, None)
                if row is None:
                    exhausted = True
                else:
                    self._begin(row)
            next_written = self._write_ready(next_written)
            if not self._running and (exhausted or self._stopping.is_set()):
                break
            if self._running:
                handle, event = self._events.get()
                self.summary.seconds = time.perf_counter() - began
                self._take(handle, event)
        self._write_ready(next_written)
        self.summary.stopped = self._stopping.is_set()
        return self.summary

    def _skip_answered(self, rows: Iterator[Row]) -> None:
        """Take the rows that the output has already, and make sure that they are the same ones."""
        n_done, last = self._output.n_done, None
        for n_read in range(n_done):
            last = next(rows, None)
            if last is None:
                raise InputError(
                    f"the output has {n_done:,} rows already, and the input has {n_read:,}",
                    hint="--resume takes the file that an earlier run of the same batch wrote",
                )
        if last is not None and last.input != self._output.answered_input:
            raise InputError(
                f"the {n_done:,} rows of the output are of another input (other rows, PROMPT, files or system prompt)",
                hint="name another file after --resume, or give the input and the words that it began with",
            )

    def _may_start(self) -> bool:
        if self._stopping.is_set() or len(self._running) >= self._n_in_flight:
            return False
        return len(self._finished) < self._n_ahead

    def _begin(self, row: Row) -> None:
        if row.request is None:
            assert row.error is not None
            self._finish(row, row.error)
            return
        try:
            handle = self._start(row.request, self._events)
        except Exception as error:  # whatever it is, it is this row's: the others still have to be answered
            self._finish(row, as_error(error))
            return
        self._running[id(handle)] = (row, handle)

    def _take(self, handle: Any, event: Event | LocalrunError) -> None:
        if id(handle) not in self._running:
            return
        row, _ = self._running[id(handle)]
        if isinstance(event, Done):
            del self._running[id(handle)]
            if event.result.finish == "interrupted" and self._stopping.is_set():
                return  # not finished: the next run does it again
            self._finish(row, event.result)
        elif isinstance(event, LocalrunError):
            del self._running[id(handle)]
            self._finish(row, event)

    def _finish(self, row: Row, outcome: Result | LocalrunError) -> None:
        if isinstance(outcome, Result):
            usage = outcome.usage
            self.summary.completion_tokens += usage.completion_tokens
            self.summary.prompt_tokens += usage.prompt_tokens
            self.summary.cached_tokens += usage.cached_ram_tokens + usage.cached_disk_tokens
        try:
            line = self._line(row, outcome)
        except Exception as error:  # an answer or an id that cannot be written costs its own row, not the batch
            outcome = as_error(error)
            line = self._line(replace(row, id=None), outcome)
        if not isinstance(outcome, Result):
            self.summary.n_failed += 1
            if self.summary.first_failure is None or row.index < self.summary.first_failure[0].index:
                self.summary.first_failure = (row, outcome)
        self.summary.n_done += 1
        self._finished[row.index] = line
        if self._on_progress is not None:
            self._on_progress(self.summary)

    def _line(self, row: Row, outcome: Result | LocalrunError) -> str:
        line: dict[str, Any] = {"index": row.index, "id": row.id}
        if row.input is not None:
            line["input"] = row.input
        if isinstance(outcome, Result):
            line |= {**self._render(outcome), "error": None}
        else:
            line["error"] = {"code": outcome.exit_code, "message": outcome.message, "hint": outcome.hint}
        return to_line(line)

    def _write_ready(self, index: int) -> int:
        while index in self._finished:
            self._output.write(self._finished.pop(index))
            index += 1
        return index
