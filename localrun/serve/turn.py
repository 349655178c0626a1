"""One choice of a response: events of the engine → what the client is told, and what to ask the engine next.

Knows answers and tool calls; knows neither JSON on the wire nor tasks. An answer that may call tools is asked for in
steps: text until a call begins, the parts of the call each under its constraint, text again. The engine keeps the
prefix in memory, so a step costs a few tokens of prompt. Invariant: after `Ended` nothing follows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
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
from localrun.serve.calling import CallArguments, CallBegun, CallWriter, Said, Step, choice, new_id, short_id
from localrun.serve.tool_fields import Tools
from localrun.serve.tool_form import ToolForm

_FINISHES = {"stop": "stop", "stop_string": "stop", "length": "length", "context": "length", "timeout": "length"}
_TIMED_OUT = Warning_("timeout", "the answer was ended by its timeout")


@dataclass(frozen=True, slots=True)
class Ended:
    """The choice is complete. `finish` is OpenAI's word."""

    finish: str
    result: Result


Told = TextPiece | ReasoningPiece | TokenChosen | PrefillProgress | CallBegun | CallArguments | Ended


class Turn:
    """The state of one choice."""

    def __init__(self, request: Request, tools: Tools | None = None, form: ToolForm | None = None) -> None:
        self._original = request
        self._said = Said(request.prefill)
        self._n_calls = 0
        self._results: list[Result] = []
        self._out: list[Told] = []
        """What is to be told next."""
        self.ended: Ended | None = None
        self.error: LocalrunError | None = None
        self.request: Request | None = request
        """What to ask the engine now; None while it answers."""
        self._step = Step(show=self._tell_text, is_answer=True)
        self._steps: Generator[Step, Result, None] | None = None
        if tools is not None and form is not None:
            if tools.forced:  # a call that must come is not thought about
                self._original = replace(request, params=replace(request.params, think=False))
            self._steps = self._answer(tools, form)
            self._ask(next(self._steps))

    @property
    def constrained_by(self) -> str | None:
        """The field of the request that constrains what is asked for now."""
        constraint = self._original.params.constraint or self._step.constraint
        return constraint.name if constraint is not None else None

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
            self._done(event.result)
        elif isinstance(event, TextPiece):
            self._step.show(event.text)
        elif isinstance(event, ReasoningPiece | TokenChosen) or (
            isinstance(event, PrefillProgress) and not self._results
        ):
            self._out.append(event)
        told, self._out = self._out, []
        yield from told

    def _done(self, result: Result) -> None:
        self._results.append(result)
        if result.finish == "interrupted":
            self.error = InterruptedByUserError("the server was stopped before the answer was complete")
        elif self._steps is None or result.finish not in ("stop", "stop_string"):
            self._end(_FINISHES.get(result.finish, "stop"))
        else:
            try:
                self._ask(self._steps.send(result))
            except StopIteration:
                self._end("tool_calls" if self._n_calls else "stop")

    # An answer that may call tools

    def _answer(self, tools: Tools, form: ToolForm) -> Generator[Step, Result, None]:
        """Text, then calls, as long as the model begins one and one more is allowed."""
        if not tools.forced and not (yield from self._text(form)):
            return
        writer = CallWriter(form, tools.callable_, self._said, self._tell)
        id_ = new_id()
        self._open(form.opening(0, short_id(id_), first=True))
        while True:
            yield from writer.call(self._n_calls, id_)
            self._n_calls += 1
            if tools.forced or not tools.parallel or not form.several or self._left == 0:
                return
            id_ = new_id()
            opening = form.opening(self._n_calls, short_id(id_), first=False)
            if form.end:
                goes_on = yield from choice({opening: True, form.end: False})
            else:
                goes_on = yield from self._text(form)
            if not goes_on:
                return
            self._open(opening)

    def _text(self, form: ToolForm) -> Generator[Step, Result, bool]:
        """Ask for text; returns whether it ended because a call begins."""
        assert form.tag is not None, "without a tag a call is asked for at once"
        result = yield Step(tags=(form.tag,), show=self._tell_text, is_answer=True)
        self._said.add(result.text)
        if result.stop != form.tag:
            return False
        if result.text.strip():
            self._said.form(form.joint)
        return True

    def _open(self, opening: str) -> None:
        """Begin a call. White space before it is the model's own, where it wrote any."""
        self._said.form(opening.lstrip() if self._said.text[-1:].isspace() else opening)

    def _tell_text(self, text: str) -> None:
        if self._n_calls and not text.strip():
            return  # the line breaks between calls
        self._out.append(TextPiece(text))

    def _tell(self, told: CallBegun | CallArguments) -> None:
        self._out.append(told)

    def _ask(self, step: Step) -> None:
        """Go on behind what has been said."""
        original, self._step = self._original, step
        params = replace(
            original.params,
            stop=original.params.stop if step.is_answer else (),
            max_tokens=self._left,
            constraint=step.constraint,
        )
        self.request = replace(
            original,
            params=params,
            prefill=self._said.text,
            prefill_markup=tuple(self._said.markup),
            prefill_reasoning=original.prefill_reasoning + "".join(result.reasoning for result in self._results),
            constrains_prefill=False,
            tags=step.tags,
            verbatim=not step.is_answer,
        )

    @property
    def _left(self) -> int | None:
        """Tokens that the answer may still have."""
        limit = self._original.params.max_tokens
        return None if limit is None else max(0, limit - sum(r.usage.completion_tokens for r in self._results))

    def _end(self, finish: str) -> None:
        result = _joined(self._results)
        if result.finish == "timeout":
            result = replace(result, warnings=(*result.warnings, _TIMED_OUT))
        self.ended = Ended(finish, result)
        self._out.append(self.ended)


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
