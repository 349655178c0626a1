"""One choice of a response: events of the engine → what the client is told, and what to ask the engine next.

Knows answers and tool calls; knows neither JSON on the wire nor tasks. An answer that may call tools is asked for in
steps: text until a call begins, the call under its schema, text again. The engine keeps the prefix in memory, so a step
costs one or two tokens of prompt. Invariant: after `Ended` nothing follows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from localrun.errors import InterruptedByUserError, LocalrunError
from localrun.responder import (
    Done,
    Event,
    PrefillProgress,
    ReasoningPiece,
    Request,
    Result,
    TextPiece,
    TokenChosen,
    Usage,
    Warning_,
)
from localrun.serve.tool_fields import Tools
from localrun.serve.tool_format import CallReader, ToolFormat, call_constraint

_FINISHES = {"stop": "stop", "stop_string": "stop", "length": "length", "context": "length", "timeout": "length"}
_TIMED_OUT = Warning_("timeout", "the answer was ended by its timeout")


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model calls a tool."""

    number: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments of a call."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The choice is complete. `finish` is OpenAI's word."""

    finish: str
    result: Result


Told = TextPiece | ReasoningPiece | TokenChosen | PrefillProgress | CallBegun | CallArguments | Ended


class Turn:
    """The state of one choice."""

    def __init__(self, request: Request, tools: Tools | None = None, form: ToolFormat | None = None) -> None:
        self._original = request
        self._tools, self._form = tools, form
        self._said = request.prefill
        self._n_calls = 0
        self._call: CallReader | None = None
        self._results: list[Result] = []
        self.ended: Ended | None = None
        self.error: LocalrunError | None = None
        self.request: Request | None = request
        """What to ask the engine now; None while it answers."""
        if tools is not None and form is not None:
            self.request = self._ask_for_call() if tools.forced else self._ask_for_text()

    @property
    def over(self) -> bool:
        return self.ended is not None or self.error is not None

    @property
    def result(self) -> Result | None:
        """What has come of it, its end included; None for one that has not got so far."""
        return _joined(self._results) if self.over and self._results else None

    def take(self, event: Event | LocalrunError) -> Iterator[Told]:
        """What the client is told of an event."""
        if isinstance(event, LocalrunError):
            self.error = event
        elif isinstance(event, Done):
            yield from self._done(event.result)
        elif isinstance(event, TextPiece) and self._call is not None:
            yield from self._called(self._call, event.text)
        elif isinstance(event, TextPiece):
            yield from self._text(event.text)
        elif isinstance(event, ReasoningPiece | TokenChosen) or (
            isinstance(event, PrefillProgress) and not self._results
        ):
            yield event

    def _text(self, text: str) -> Iterator[Told]:
        if self._n_calls and not text.strip():
            return  # the line breaks between calls
        yield TextPiece(text)

    def _called(self, call: CallReader, text: str) -> Iterator[Told]:
        known = call.name is not None
        pieces = list(call.push(text))
        if call.name is not None and not known:
            yield CallBegun(self._n_calls, f"call_{os.urandom(12).hex()}", call.name)
        for piece in pieces:
            yield CallArguments(self._n_calls, piece)

    def _done(self, result: Result) -> Iterator[Told]:
        self._results.append(result)
        if result.finish == "interrupted":
            self.error = InterruptedByUserError("the server was stopped before the answer was complete")
            return
        complete = result.finish in ("stop", "stop_string")
        if self._call is not None:
            if rest := self._call.finish() if complete else "":
                yield CallArguments(self._n_calls, rest)
            if complete:
                yield from self._call_complete(self._call)
                return
        elif self._form is not None and result.stop is not None and result.stop == self._form.tag:
            self._said += result.text
            self.request = self._ask_for_call()
            return
        yield self._end("tool_calls" if self._n_calls and complete else _FINISHES.get(result.finish, "stop"))

    def _call_complete(self, call: CallReader) -> Iterator[Told]:
        assert self._form is not None
        assert self._tools is not None
        self._n_calls += 1
        self._said += self._form.opening + call.text + self._form.closing
        self._call = None
        if self._tools.parallel and not self._tools.forced and self._left != 0:
            self.request = self._ask_for_text()
            return
        yield self._end("tool_calls")

    def _ask_for_text(self) -> Request:
        assert self._form is not None
        assert self._form.tag is not None, "without a tag a call is asked for at once"
        params = self._original.params
        params = replace(params, stop=(*params.stop, self._form.tag), max_tokens=self._left)
        return replace(self._original, params=params, prefill=self._said, prefill_reasoning=self._reasoning)

    def _ask_for_call(self) -> Request:
        assert self._form is not None
        assert self._tools is not None
        self._call = CallReader(self._form)
        constraint = call_constraint(self._form, self._tools.callable_)
        params = replace(self._original.params, stop=(), max_tokens=self._left, constraint=constraint)
        prefill = self._said + self._form.opening
        return replace(
            self._original,
            params=params,
            prefill=prefill,
            prefill_reasoning=self._reasoning,
            constrains_prefill=False,
        )

    @property
    def _left(self) -> int | None:
        """Tokens that the answer may still have."""
        limit = self._original.params.max_tokens
        return None if limit is None else max(0, limit - sum(r.usage.completion_tokens for r in self._results))

    @property
    def _reasoning(self) -> str:
        return self._original.prefill_reasoning + "".join(result.reasoning for result in self._results)

    def _end(self, finish: str) -> Ended:
        result = _joined(self._results)
        if result.finish == "timeout":
            result = replace(result, warnings=(*result.warnings, _TIMED_OUT))
        self.ended = Ended(finish, result)
        return self.ended


def _joined(results: list[Result]) -> Result:
    """The steps of an answer as one result."""
    first, last = results[0], results[-1]
    if first is last:
        return first
    usage = Usage(
        prompt_tokens=first.usage.prompt_tokens,
        cached_ram_tokens=first.usage.cached_ram_tokens,
        cached_disk_tokens=first.usage.cached_disk_tokens,
        completion_tokens=sum(r.usage.completion_tokens for r in results),
        reasoning_tokens=sum(r.usage.reasoning_tokens for r in results),
    )
    timings = replace(
        first.timings,
        decode_s=sum(r.timings.decode_s for r in results),
        total_s=sum(r.timings.total_s for r in results),
    )
    warnings: dict[Warning_, None] = dict.fromkeys(warning for r in results for warning in r.warnings)
    return replace(
        last,
        text="".join(r.text for r in results),
        reasoning="".join(r.reasoning for r in results),
        usage=usage,
        timings=timings,
        warnings=tuple(warnings),
    )
