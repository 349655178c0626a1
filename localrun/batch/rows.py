"""A line of JSON → a request with its own settings.

A row is an object with `prompt` (through the chat template), `messages` (a whole conversation) or `raw` (as it is), and
optionally `system`, `id`, a constraint (`schema`, `grammar`, `regex`, `choice`) and any setting of a request by its
name in the configuration (`max_tokens`, `temperature`, `seed`, `stop`, …). Knows JSON and parameters; knows no file.
Invariant: a row that makes no sense is an error of that row, with its line; it never stops the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from localrun.chat.messages import Message
from localrun.config import OPTIONS, Config
from localrun.errors import InputError, LocalrunError, UsageError
from localrun.params import ConstraintSpec, GenerationParams
from localrun.responder import Request

_TEXTS = ("prompt", "messages", "raw")
_CONSTRAINTS = {"schema": "json_schema", "grammar": "gbnf", "regex": "regex", "choice": "choice"}
_OF_THE_RUN = {"model", "ctx", "parallel", "threads", "gpu_layers", "kv_type", "engine", "offline", "strict", "quiet"}
"""Settings that a row cannot change: they belong to the loaded model or to the whole run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the input: a request, or the error that it is."""

    index: int
    """Counted from 0 over the rows, not over the lines."""
    id: Any
    """What the row calls itself; None if it does not."""
    request: Request | None
    error: LocalrunError | None = None


class RowReader:
    """Makes rows of lines. `base` holds the settings of the command line, which rows refine."""

    def __init__(self, base: GenerationParams, *, system: str | None = None, prompt: str | None = None) -> None:
        """`prompt` is put before the text of each row's `prompt`; `system` is for rows that have none."""
        self._base = base
        self._system = system
        self._prompt = prompt

    def read(self, lines: Iterable[bytes]) -> Iterator[Row]:
        """The rows of `lines`; blank lines are passed over. Reads no further than is asked for."""
        index = 0
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield self._row(index, number, line)
                index += 1

    def _row(self, index: int, number: int, line: bytes) -> Row:
        name = None
        try:
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(
                    f"line {number} is no JSON: {error}", hint='a row is an object, for example {"prompt": "…"}'
                ) from error
            if not isinstance(data, dict):
                raise InputError(f"line {number} is no JSON object")
            name = data.get("id")
            return Row(index, name, self._request(data, number))
        except LocalrunError as error:
            return Row(index, name, None, error)

    def _request(self, data: Mapping[str, Any], number: int) -> Request:
        given = [key for key in _TEXTS if key in data]
        if len(given) != 1:
            raise InputError(f"line {number} needs exactly one of prompt, messages and raw, it has {given or 'none'}")
        unknown = [key for key in data if key not in OPTIONS and key not in {*_TEXTS, *_CONSTRAINTS, "id"}]
        if unknown:
            raise InputError(f"line {number} has the unknown key {unknown[0]!r}")
        fixed = [key for key in data if key in _OF_THE_RUN]
        if fixed:
            raise InputError(f"line {number} sets {fixed[0]!r}, which belongs to the whole batch")
        if self._prompt and "prompt" not in data:
            raise InputError(
                f"line {number}: the PROMPT of the command goes before rows with a prompt, this one has {given[0]}"
            )
        params = self._params(data)
        if "raw" in data:
            return Request(params, raw=_text(data, "raw", number).encode())
        messages = self._messages(data, number)
        system = data.get("system", self._system)
        if system and not any(message.role == "system" for message in messages):
            messages = (Message("system", str(system)), *messages)
        return Request(params, messages=messages)

    def _params(self, data: Mapping[str, Any]) -> GenerationParams:
        settings = {key: value for key, value in data.items() if key in OPTIONS and key != "system"}
        given = Config(settings, environment={}).generation()
        default = GenerationParams()
        changes = {
            name: getattr(given, name)
            for name in ("max_tokens", "stop", "ignore_eos", "timeout_s", "on_overflow", "think", "think_budget")
            if getattr(given, name) != getattr(default, name)
        }
        sampling = {
            name: getattr(given.sampling, name)
            for name in given.sampling.__slots__
            if getattr(given.sampling, name) != getattr(default.sampling, name) or name in settings
        }
        params = replace(self._base, **changes, sampling=replace(self._base.sampling, **sampling))
        constraint = _constraint(data)
        return replace(params, constraint=constraint) if constraint is not None else params

    def _messages(self, data: Mapping[str, Any], number: int) -> tuple[Message, ...]:
        if "prompt" in data:
            text = _text(data, "prompt", number)
            return (Message("user", f"{self._prompt}\n\n{text}" if self._prompt else text),)
        values = data["messages"]
        if not isinstance(values, list) or not values:
            raise InputError(f"line {number}: messages is a list of objects with role and content")
        messages = []
        for value in values:
            role, content = (value.get("role"), value.get("content")) if isinstance(value, dict) else (None, None)
            if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
                raise InputError(f"line {number}: a message has a role (system, user, assistant, tool) and a content")
            messages.append(Message(role, content, str(value.get("reasoning") or "")))
        return tuple(messages)


def _text(data: Mapping[str, Any], key: str, number: int) -> str:
    if not isinstance(data[key], str):
        raise InputError(f"line {number}: {key} is no text")
    return str(data[key])


def _constraint(data: Mapping[str, Any]) -> ConstraintSpec | None:
    given = [key for key in _CONSTRAINTS if data.get(key) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")
    value = data[given[0]]
    if given[0] == "choice":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError("choice is a list of texts")
        return ConstraintSpec("choice", tuple(value), "choice")
    if given[0] == "schema" and not isinstance(value, str):
        value = json.dumps(value)
    if not isinstance(value, str):
        raise UsageError(f"{given[0]} is a text")
    kind: Any = _CONSTRAINTS[given[0]]
    return ConstraintSpec(kind, value, given[0])
