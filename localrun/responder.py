"""The one interface between those who ask (commands, conversation, TUI, server) and those who answer (engines).

Knows messages, parameters and events; knows no engine, no template and no screen. Invariant: `respond` yields any
number of progress and piece events and then exactly one `Done`; an error is raised, never yielded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from localrun.chat.messages import Message
from localrun.params import GenerationParams

Finish = Literal["stop", "stop_string", "length", "context", "timeout", "interrupted"]


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and how to answer it: either `messages` (through the model's chat template) or `raw` text."""

    params: GenerationParams
    messages: tuple[Message, ...] = ()
    raw: bytes | None = None
    """Sent to the model as it is (BOS added where the model wants one), without a template."""
    explain: bool = False
    """Say in the result's `reuse` where the prompt left what is cached."""
    prefill: str = ""
    """The beginning of the answer, given: the model goes on after it. Not repeated in the result's text."""
    constrains_prefill: bool = True
    """Whether a constraint holds for the prefill and what follows together; else only for what follows."""
    prefill_reasoning: str = ""
    """Reasoning that came before `prefill`."""
    prefill_markup: tuple[tuple[int, int], ...] = ()
    """Half-open ranges of `prefill` that are the chat template's own text: special tokens are meant there."""
    tags: tuple[str, ...] = ()
    """Texts that end the answer like stop strings, but are looked for in special tokens too."""
    verbatim: bool = False
    """What follows `prefill` is a part of something that was begun there: nothing in it is reasoning."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """What the model is told it may call, as the template wants it (OpenAI's form)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int = 0
    cached_ram_tokens: int = 0
    cached_disk_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    draft_tokens: int = 0
    draft_accepted: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, and tokens per second, of one answer. 0 where nothing was measured."""

    load_s: float = 0.0
    prefill_s: float = 0.0
    ttft_s: float = 0.0
    decode_s: float = 0.0
    total_s: float = 0.0
    prefill_tps: float = 0.0
    decode_tps: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Which model answered. `sha256` is None where it has not been computed."""

    name: str
    path: str | None = None
    quantization: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Warning_:
    """Something the user asked for and did not get in full, or should know. `code` is stable, `message` is prose."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """One finished answer: the result object of the command line."""

    text: str
    reasoning: str
    finish: Finish
    stop: str | None
    """The stop string that ended it, if one did."""
    seed: int
    model: ModelIdentity
    usage: Usage
    timings: Timings
    warnings: tuple[Warning_, ...] = ()
    choices: tuple[tuple[str, float], ...] = ()
    """For a `choice` constraint: each string with its probability."""
    reuse: str = ""
    """Where and why the prompt left what is cached, if it did and `explain` was asked for."""
    context_used: int = 0
    """Tokens in the context after the answer."""
    context_limit: int = 0


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The model is being read; `fraction` is 0 to 1."""

    fraction: float


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """`done` of `total` prompt tokens are in the cache; `cached` of them were found there."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Whole characters of the answer, in order."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """Whole characters of the reasoning, in order."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenChosen:
    """A token of the answer and how likely the model found it, before any sampler or constraint.

    Only told when `GenerationParams.logprobs` asks for it; it comes before the pieces that the token makes.
    """

    piece: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()
    """The most likely tokens, most likely first."""


@dataclass(frozen=True, slots=True)
class WarningRaised:
    """A warning, as it happens; it is in the result too."""

    warning: Warning_


@dataclass(frozen=True, slots=True)
class Done:
    """The last event."""

    result: Result


Event = LoadProgress | PrefillProgress | TextPiece | ReasoningPiece | TokenChosen | WarningRaised | Done


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a responder tells about its model."""

    identity: ModelIdentity
    context_limit: int
    can_chat: bool
    """False for a base model: it has no chat template."""
    can_think: bool
    """The template knows a thinking switch or block."""
    context_trained: int = 0
    """The longest context that the model was trained for; 0 where that is not known."""
    details: dict[str, str] = field(default_factory=dict)


class Responder(Protocol):
    """Answers requests. One at a time per caller; `stop` may be called from any thread."""

    @property
    def info(self) -> ModelInfo: ...

    def respond(self, request: Request) -> Iterator[Event]:
        """Yield the events of one answer. Closing the iterator cancels the request.

        Raises `LocalrunError` (a context overflow, a template's own refusal, an engine failure).
        """
        ...

    def stop(self) -> None:
        """End the running answer soon: it finishes with `finish == "interrupted"` and keeps its text."""
        ...

    def count_tokens(self, request: Request) -> int:
        """How many prompt tokens the request has, template included."""
        ...

    def close(self) -> None:
        """Release the model. Idempotent."""
        ...
