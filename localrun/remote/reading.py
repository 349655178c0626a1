"""Chunks of a streamed answer → events, and at the end the result.

Knows the fields that servers use; knows no connection. Invariants: pieces are whole characters in order, whatever the
server did to them; an answer without an end is an error; a complete constrained answer is validated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from localrun.chat.reasoning import ReasoningFormat
from localrun.chat.reasoning_split import ReasoningSplitter
from localrun.remote.control import Reason
from localrun.remote.fields import count_of, details_of, list_of, object_of, text_of, word_of, wrong
from localrun.remote.wire import EndOfStream, Surrogates
from localrun.responder import (
    Done,
    Event,
    Finish,
    ModelIdentity,
    PrefillProgress,
    ReasoningPiece,
    Request,
    Result,
    TextPiece,
    Timings,
    Usage,
    Warning_,
    WarningRaised,
)

if TYPE_CHECKING:
    from localrun.constraint.checked import CheckedConstraint

_REASONING = ("reasoning_content", "reasoning", "thinking")
"""Where servers put reasoning: DeepSeek's name (llama-server, SGLang, older vLLM), newer vLLM and Ollama, others."""
_TAGS = ReasoningFormat("<think>\n", "\n</think>\n\n")
"""Reasoning that a server leaves in the text."""
_ENDS: Mapping[str, Finish] = {"stop": "stop", "eos": "stop", "tool_calls": "stop", "length": "length"}


class BrokenOffError(Exception):
    """The stream ended before the answer did."""


class Reading:
    """One answer on its way in."""

    def __init__(
        self,
        request: Request,
        *,
        model: str,
        seed: int,
        context_limit: int,
        echo: str = "",
        constraint: CheckedConstraint | None,
        warnings: Iterable[Warning_] = (),
    ) -> None:
        self._request = request
        self._model, self._seed, self._context_limit = model, seed, context_limit
        self._constraint = constraint
        self._echo = echo
        """The prefill, while it may be repeated by the server."""
        self._swallowed = ""
        self._warnings = list(warnings)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._halves = {"text": Surrogates(), "reasoning": Surrogates()}
        splits = request.raw is None and constraint is None and not request.prefill
        self._splitter = ReasoningSplitter(_TAGS) if splits else None
        self._finish: str | None = None
        self._stop: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._server_timings: Mapping[str, Any] = {}
        self._started = time.perf_counter()
        self._first = self._last = 0.0

    @property
    def begun(self) -> bool:
        """Whether the caller has got a part of the answer: then it cannot be asked for again."""
        return bool(self._text or self._reasoning)

    def warn(self, warning: Warning_) -> WarningRaised:
        """Add a warning to the result; the event is the caller's to deliver."""
        self._warnings.append(warning)
        return WarningRaised(warning)

    def take(self, chunks: Iterable[dict[str, Any] | EndOfStream]) -> Iterator[Event]:
        """The events of a stream. Raises `BrokenOffError` for one without an end, `RemoteError` for nonsense."""
        complete = False
        for chunk in chunks:
            if isinstance(chunk, EndOfStream):
                complete = True
                break
            yield from self._chunk(chunk)
        if not complete and self._finish is None:
            raise BrokenOffError("the stream ended before the answer did")
        if self._finish is None:
            yield self.warn(Warning_("no_finish", "the server did not say why the answer ended"))
        if not self._usage:
            yield self.warn(Warning_("no_usage", "the server does not count tokens"))
        yield from self._rest()

    def done(self, reason: Reason | None = None) -> Done:
        """The result; `reason` is why it was ended from here. Raises `InvalidOutputError`."""
        finish: Finish = reason or self._finish_reason()
        text = "".join(self._text)
        if self._constraint is not None and finish in ("stop", "stop_string"):
            self._constraint.grammar.validate(self._request.prefill + text)
        usage = self._counted()
        used = usage.prompt_tokens + usage.completion_tokens
        return Done(
            Result(
                text=text,
                reasoning="".join(self._reasoning),
                finish=finish,
                stop=self._stop,
                seed=self._seed,
                model=ModelIdentity(self._model),
                usage=usage,
                timings=self._timings(usage),
                warnings=tuple(self._warnings),
                context_used=used,
                context_limit=self._context_limit,
            )
        )

    # chunks -------------------------------------------------------------------------------------------------------

    def _chunk(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        self._usage = details_of(chunk, "usage") or self._usage
        self._server_timings = details_of(chunk, "timings") or self._server_timings
        self._model = word_of(chunk, "model") or self._model
        if progress := details_of(chunk, "prompt_progress"):
            yield PrefillProgress(_count(progress, "processed"), _count(progress, "total"), _count(progress, "cache"))
        for choice in list_of(chunk, "choices", "a list of choices")[:1]:
            if not isinstance(choice, Mapping):
                raise wrong(choice, "a choice")
            yield from self._choice(choice)

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[Event]:
        delta = object_of(choice, "delta", "a part of a message")
        for key in _REASONING:
            if thought := text_of(delta, key, "a text"):
                self._splitter = None  # the server tells them apart itself
                yield from self._reasoned(self._halves["reasoning"].push(thought))
                break
        raw = self._request.raw is not None
        if text := text_of(choice, "text", "a text") if raw else text_of(delta, "content", "a text"):
            yield from self._said(self._halves["text"].push(text))
        if finish := text_of(choice, "finish_reason", "a reason for the end"):
            self._finish = finish
            yield from self._ended(choice)

    def _said(self, text: str) -> Iterator[Event]:
        if self._splitter is None and not self._text and self._reasoning:
            text = text.lstrip("\n")  # what stood between the reasoning's end and the answer
        if "\ufffd" in text and not any(w.code == "damaged_text" for w in self._warnings):
            message = "the server sent replacement characters (U+FFFD): it may have cut characters in two"
            yield self.warn(Warning_("damaged_text", message))
        if self._splitter is None:
            yield from self._answered(text)
            return
        for part in self._splitter.push(text):
            yield from self._reasoned(part.text) if part.kind == "reasoning" else self._answered(part.text)

    def _answered(self, text: str) -> Iterator[Event]:
        if self._echo:
            text = self._without_echo(text)
        if text:
            self._arrived()
            self._text.append(text)
            yield TextPiece(text)

    def _without_echo(self, text: str) -> str:
        """The text without the prefill at its beginning; what may be a part of it waits."""
        held, self._swallowed = self._swallowed + text, ""
        if held.startswith(self._echo):
            held = held[len(self._echo) :]
        elif self._echo.startswith(held):
            self._swallowed = held
            return ""
        self._echo = ""
        return held

    def _reasoned(self, text: str) -> Iterator[Event]:
        if text:
            self._arrived()
            self._reasoning.append(text)
            yield ReasoningPiece(text)

    def _rest(self) -> Iterator[Event]:
        for half in self._halves.values():
            half.finish()
        for part in self._splitter.finish() if self._splitter is not None else ():
            yield from self._reasoned(part.text) if part.kind == "reasoning" else self._answered(part.text)
        swallowed, self._echo = self._swallowed, ""
        yield from self._answered(swallowed)

    def _ended(self, choice: Mapping[str, Any]) -> Iterator[Event]:
        # vLLM and localrun name the stop string, SGLang too, under another name; token ids are no strings
        stop = choice.get("stop_reason", choice.get("matched_stop"))
        if isinstance(stop, str) and stop in self._request.params.stop:
            self._stop = stop
        if self._finish == "content_filter":
            yield self.warn(Warning_("content_filter", "the server's content filter ended the answer"))
        elif self._finish not in _ENDS:
            yield self.warn(Warning_("unknown_finish", f"the server ended the answer with {self._finish!r}"))

    def _arrived(self) -> None:
        self._last = time.perf_counter()
        self._first = self._first or self._last

    # the end ------------------------------------------------------------------------------------------------------

    def _finish_reason(self) -> Finish:
        if self._stop is not None:
            return "stop_string"
        finish = _ENDS.get(self._finish or "stop", "stop")
        limit = self._request.params.max_tokens
        if finish == "length" and (limit is None or 0 < _count(self._usage, "completion_tokens") < limit):
            return "context"
        return finish

    def _counted(self) -> Usage:
        prompt = details_of(self._usage, "prompt_tokens_details")
        completion = details_of(self._usage, "completion_tokens_details")
        cached = _count(prompt, "cached_tokens") or _count(self._server_timings, "cache_n")
        return Usage(
            prompt_tokens=_count(self._usage, "prompt_tokens"),
            cached_ram_tokens=cached,
            completion_tokens=_count(self._usage, "completion_tokens"),
            reasoning_tokens=_count(completion, "reasoning_tokens"),
        )

    def _timings(self, usage: Usage) -> Timings:
        now = time.perf_counter()
        ttft = self._first - self._started if self._first else 0.0
        decode = self._last - self._first if self._first else 0.0
        computed = usage.prompt_tokens - usage.cached_ram_tokens
        return Timings(
            prefill_s=ttft,
            ttft_s=ttft,
            decode_s=decode,
            total_s=now - self._started,
            prefill_tps=computed / ttft if ttft > 0 and computed > 0 else 0.0,
            decode_tps=(usage.completion_tokens - 1) / decode if decode > 0 and usage.completion_tokens > 1 else 0.0,
        )


def _count(values: Mapping[str, Any], key: str) -> int:
    return count_of(values, key) or 0
