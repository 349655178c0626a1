"""One answer on its way: what the engine says → what the caller hears.

Knows the engine's events and the responder's; knows no model file. Invariant: the events end with exactly one `Done`,
or with an error that is raised (in a shared sink: delivered) in its place.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from localrun.engine.events import Chosen, Diverged, EngineEvent, Failed, Finished, Notice, Progress
from localrun.engine.sequence import Sequence
from localrun.errors import EngineError, InvalidOutputError, LocalrunError
from localrun.local.reuse import explain
from localrun.responder import (
    Done,
    Event,
    PrefillProgress,
    Request,
    Result,
    Timings,
    TokenChosen,
    Usage,
    Warning_,
    WarningRaised,
)

if TYPE_CHECKING:
    from localrun.local.constraining import RequestConstraint
    from localrun.local.output import AnswerOutput
    from localrun.local.responder import LocalResponder


class Sink(Protocol):
    """Takes the events of several answers. Called on the engine's thread."""

    def put(self, item: tuple[Answer, Event | LocalrunError]) -> None: ...


class _OwnSink:
    """A queue of one answer's events."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Event | LocalrunError] = queue.SimpleQueue()

    def put(self, item: tuple[Answer, Event | LocalrunError]) -> None:
        self.items.put(item[1])


class Answer:
    """An answer in the making. Iterate over its events, or give it a sink."""

    def __init__(
        self,
        owner: LocalResponder,
        request: Request,
        *,
        submitted: float,
        sink: Sink | None,
        constraint: RequestConstraint | None,
    ) -> None:
        self.request = request
        self._owner = owner
        self._own = _OwnSink() if sink is None else None
        self._sink: Sink = sink if sink is not None else self._own  # type: ignore[assignment]
        self._submitted = submitted
        self._constraint = constraint
        self._warnings: list[Warning_] = []
        self._reuse = ""
        self._ended = False
        self._sequence: Sequence
        self._output: AnswerOutput

    def begin(self, sequence: Sequence, output: AnswerOutput, warnings: list[Warning_]) -> None:
        """Called once, before the sequence is submitted."""
        self._sequence = sequence
        self._output = output
        self._owner.remember(self)
        for warning in warnings:
            self.warn(warning)

    def __iter__(self) -> Iterator[Event]:
        """The events up to `Done`. Raises the error that ended the answer instead."""
        assert self._own is not None, "an answer with a shared sink is not iterated"
        while True:
            item = self._own.items.get()
            if isinstance(item, LocalrunError):
                raise item
            yield item
            if isinstance(item, Done):
                return

    def stop(self) -> None:
        """End it soon; it finishes as interrupted and keeps its text. Any thread may call it."""
        self._owner.cancel(self._sequence)

    def close(self) -> None:
        """Cancel it if it still runs. Idempotent."""
        if not self._ended:
            self.stop()
        self._owner.forget(self)

    def warn(self, warning: Warning_) -> None:
        """Add a warning to the result, and tell it now."""
        self._warnings.append(warning)
        self.put(WarningRaised(warning))

    def put(self, event: Event) -> None:
        """Deliver one event."""
        self._sink.put((self, event))

    def notify(self, event: EngineEvent) -> None:
        """What the engine says; called on its thread."""
        if isinstance(event, Progress):
            self.put(PrefillProgress(event.done, event.total, event.cached))
        elif isinstance(event, Chosen):
            self.put(TokenChosen(event.piece, event.logprob, event.top))
        elif isinstance(event, Notice):
            self.warn(Warning_(event.code, event.message))
        elif isinstance(event, Diverged):
            self._reuse = explain(event, self._sequence.tokens, self._owner.vocabulary)
        else:
            self._ended = True
            self._owner.forget(self)
            if isinstance(event, Failed):
                self._sink.put((self, event.error))
            else:
                self._finish(event)

    def _finish(self, event: Finished) -> None:
        text = self._output.text
        if self._output.over_budget:
            budget = self.request.params.think_budget
            self.warn(Warning_("think_budget", f"the reasoning was closed at its budget of {budget} tokens"))
        complete = event.reason in ("stop", "stop_string")
        if self._constraint is not None and complete:
            try:
                given = self.request.prefill if self.request.constrains_prefill else ""
                self._constraint.validate(given + text)
            except InvalidOutputError as error:
                self._sink.put((self, error))
                return
        if complete and self._constraint is not None and self._constraint.choices:
            # On the engine's thread, but after its step: comparing the choices decodes.
            try:
                self._owner.after_step(lambda: self._finish_choice(event, text))
            except EngineError as error:
                self._sink.put((self, error))
            return
        self.put(Done(self._result(event, text)))

    def _finish_choice(self, event: Finished, text: str) -> None:
        assert self._constraint is not None
        sequence = self._sequence
        before = sequence.tokens[: len(sequence.tokens) - sequence.n_constrained]
        try:
            scores = self._owner.choice_scores(self._constraint, before)
        except LocalrunError as error:
            self._sink.put((self, error))
            return
        self.put(Done(replace(self._result(event, text), choices=scores)))

    def _result(self, event: Finished, text: str) -> Result:
        n_computed = event.n_prompt - event.n_cached_ram - event.n_cached_disk
        n_generated = len(event.tokens)
        owner = self._owner
        return Result(
            text=text,
            reasoning=self._output.reasoning,
            finish=event.reason,
            stop=self._output.stopped,
            seed=self._sequence.seed,
            model=owner.identity,
            usage=Usage(
                prompt_tokens=event.n_prompt,
                cached_ram_tokens=event.n_cached_ram,
                cached_disk_tokens=event.n_cached_disk,
                completion_tokens=n_generated,
                reasoning_tokens=self._output.reasoning_tokens,
                draft_tokens=event.n_draft,
                draft_accepted=event.n_draft_accepted,
            ),
            timings=Timings(
                load_s=owner.load_s,
                prefill_s=event.prefill_s,
                ttft_s=self._ttft(),
                decode_s=event.decode_s,
                total_s=time.perf_counter() - self._submitted,
                prefill_tps=_rate(n_computed, event.prefill_s),
                decode_tps=_rate(n_generated - 1, event.decode_s),
            ),
            warnings=tuple(self._warnings),
            reuse=self._reuse,
            context_used=event.n_context,
            context_limit=owner.context_limit,
        )

    def _ttft(self) -> float:
        first = self._sequence.times.first_token
        return max(0.0, first - self._submitted) if first else 0.0


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count > 0 and seconds > 0 else 0.0
