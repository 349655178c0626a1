"""A line of JSON → a request with its own settings.

A row is an object with `prompt` (through the chat template), `messages` (a whole conversation) or `raw` (as it is), and
optionally `system`, `id`, a constraint (`schema`, `grammar`, `regex`, `choice`) and any setting of a request by its
name in the configuration (`max_tokens`, `temperature`, `seed`, `stop`, …). Knows JSON and parameters; knows no file.
Invariants: a row that makes no sense is an error of that row, with its line; it never stops the others. What a row
names wins over the command line, also where it is the built-in default; null is the built-in default.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from localrun.batch.text import fault_in
from localrun.chat.messages import Message
from localrun.config import OPTIONS, Config, variable
from localrun.errors import InputError, LocalrunError, UsageError
from localrun.params import ConstraintSpec, GenerationParams, SamplingParams
from localrun.responder import Request

_EXPECTED = 'a row is an object, for example {"prompt": "…"}'
_MESSAGES = 'for example {"messages": [{"role": "user", "content": "…"}]}'
_TEXTS = ("prompt", "messages", "raw")
_CONSTRAINTS = {"schema": "json_schema", "grammar": "gbnf", "regex": "regex", "choice": "choice"}
_PARAMS = {
    "max_tokens": "max_tokens",
    "stop": "stop",
    "ignore_eos": "ignore_eos",
    "timeout": "timeout_s",
    "on_overflow": "on_overflow",
    "think": "think",
    "think_budget": "think_budget",
}
"""The field of the parameters that a setting is."""
_SEVERAL = {
    "xtc": ("xtc_probability", "xtc_threshold"),
    "dry": ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
    "mirostat": ("mirostat", "mirostat_tau", "mirostat_eta"),
    "sampler_order": ("order",),
}
_SAMPLING = {
    **{field.name: (field.name,) for field in fields(SamplingParams) if field.name in OPTIONS},
    **_SEVERAL,
}
"""The fields of sampling that a setting is. Every other setting belongs to the loaded model or to the whole run."""

_FINGERPRINT_DIGITS = 16
"""64 bits tell two inputs apart; they guard against a slip, not against an attack."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the input: a request, or the error that it is."""

    index: int
    """Counted from 0 over the rows, not over the lines."""
    id: Any
    """What the row calls itself; None if it does not."""
    request: Request | None
    error: LocalrunError | None = None
    input: str | None = None
    """A fingerprint of the input up to this row; None where there is no input to resume."""


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
        digest = hashlib.sha256(json.dumps([self._prompt, self._system]).encode())
        for number, line in enumerate(lines, 1):
            if line.strip():
                digest.update(line.strip() + b"\n")
                yield replace(self._row(index, number, line), input=digest.hexdigest()[:_FINGERPRINT_DIGITS])
                index += 1

    def _row(self, index: int, number: int, line: bytes) -> Row:
        name = None
        try:
            data = _object(line)
            _refuse_fault(data.get("id"), "id")
            name = data.get("id")
            _refuse_fault(data, "")
            return Row(index, name, self._request(data))
        except Exception as error:  # whatever a row does, the others still have to be answered
            return Row(index, name, None, _of_line(as_error(error), number))

    def _request(self, data: Mapping[str, Any]) -> Request:
        given = [key for key in _TEXTS if key in data]
        _check_keys(data, given)
        if self._prompt and "prompt" not in data:
            raise InputError(
                f"the PROMPT of the command goes before rows with a prompt, this one has {given[0]}",
                hint="leave PROMPT and -f out, or give the row a prompt",
            )
        params = self._params(data)
        if data.get("system") is not None and not isinstance(data["system"], str):
            raise InputError("system is no text", hint='put it in quotes: {"system": "…", "prompt": "…"}')
        if "raw" in data:
            if data.get("system"):
                raise InputError(
                    "system needs the chat template, and raw leaves it out", hint="give prompt instead of raw"
                )
            return Request(params, raw=_text(data, "raw").encode())
        messages = self._messages(data)
        has_system = any(message.role == "system" for message in messages)
        if has_system and data.get("system"):
            raise InputError("it has system, and messages with a system prompt of their own", hint="leave one out")
        system = data.get("system", self._system)
        if system and not has_system:
            messages = (Message("system", system), *messages)
        return Request(params, messages=messages)

    def _params(self, data: Mapping[str, Any]) -> GenerationParams:
        """The settings of the command line, each replaced that the row names."""
        settings = {key: value for key, value in data.items() if key in _PARAMS or key in _SAMPLING}
        given = Config(settings, environment={}, called=str).generation()
        changes = {_PARAMS[key]: getattr(given, _PARAMS[key]) for key in settings if key in _PARAMS}
        names = [name for key in settings for name in _SAMPLING.get(key, ())]
        sampling = {name: getattr(given.sampling, name) for name in names}
        params = replace(self._base, **changes, sampling=replace(self._base.sampling, **sampling))
        return replace(params, constraint=_constraint(data)) if _CONSTRAINTS.keys() & data.keys() else params

    def _messages(self, data: Mapping[str, Any]) -> tuple[Message, ...]:
        if "prompt" in data:
            text = _text(data, "prompt")
            return (Message("user", f"{self._prompt}\n\n{text}" if self._prompt else text),)
        values = data["messages"]
        if not isinstance(values, list) or not values:
            raise InputError("messages is a list of objects with role and content", hint=_MESSAGES)
        messages = []
        for value in values:
            role, content = (value.get("role"), value.get("content")) if isinstance(value, dict) else (None, None)
            if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
                raise InputError("a message has a role (system, user, assistant, tool) and a content", hint=_MESSAGES)
            reasoning = value.get("reasoning") or ""
            if not isinstance(reasoning, str):
                raise InputError("the reasoning of a message is no text", hint=_MESSAGES)
            messages.append(Message(role, content, reasoning))
        return tuple(messages)


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"it is no JSON: {error.msg} at character {error.pos + 1}", hint=_EXPECTED) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is no JSON: {error}", hint=_EXPECTED) from error
    if not isinstance(data, dict):
        raise InputError("it is no JSON object", hint=_EXPECTED)
    return data


def _check_keys(data: Mapping[str, Any], texts: list[str]) -> None:
    """Refuse keys that mean nothing here."""
    unknown = [key for key in data if key not in OPTIONS and key not in {*_TEXTS, *_CONSTRAINTS, "id"}]
    if unknown:
        known = sorted({*_TEXTS, *_CONSTRAINTS, *_PARAMS, *_SAMPLING, "id", "system"})
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "a row has a prompt, an id, and settings of a request"
        raise InputError(f"the key {unknown[0]!r} is unknown", hint=hint)
    if len(texts) != 1:
        has = " and ".join(texts) if texts else "none of them"
        raise InputError(f"a row has exactly one of prompt, messages and raw, and this has {has}", hint=_EXPECTED)
    fixed = [key for key in data if key in OPTIONS and key not in {*_PARAMS, *_SAMPLING, "system"}]
    if fixed:
        raise InputError(
            f"{fixed[0]!r} cannot be set for one row: it belongs to the whole batch",
            hint=f"{variable(fixed[0])}, or {fixed[0]} in the configuration, sets it for all rows",
        )


def _of_line(error: LocalrunError, number: int) -> LocalrunError:
    """The same error, with its place in the input."""
    error.message = f"line {number}: {error.message}"
    return error


def as_error(error: Exception) -> LocalrunError:
    """What a row's line says of any exception."""
    if isinstance(error, LocalrunError):
        return error
    return LocalrunError(f"the row failed unexpectedly: {type(error).__name__}: {error}")


def _refuse_fault(value: Any, place: str) -> None:
    if fault := fault_in(value, place):
        raise InputError(fault.removeprefix("/"))


def _text(data: Mapping[str, Any], key: str) -> str:
    if not isinstance(data[key], str):
        raise InputError(f"{key} is no text", hint=f'put it in quotes: {{"{key}": "…"}}')
    return str(data[key])


def _constraint(data: Mapping[str, Any]) -> ConstraintSpec | None:
    given = [key for key in _CONSTRAINTS if data.get(key) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other", hint="leave one out")
    value = data[given[0]]
    if given[0] == "choice":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UsageError("choice is a list of texts", hint='for example {"choice": ["yes", "no"], "prompt": "…"}')
        return ConstraintSpec("choice", tuple(value), "choice")
    if given[0] == "schema" and not isinstance(value, str):
        value = json.dumps(value)
    if not isinstance(value, str):
        raise UsageError(f"{given[0]} is a text")
    kind: Any = _CONSTRAINTS[given[0]]
    return ConstraintSpec(kind, value, given[0])
