"""A request → the body of an HTTP call in a server's dialect, and what that server cannot do.

Knows dialects and parameters; opens no connection. Invariant: whatever differs from the defaults of `GenerationParams`
is in the body, or in the warnings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from localrun.chat.messages import Message
from localrun.errors import UsageError
from localrun.params import SAMPLERS, ConstraintSpec, GenerationParams, OverflowPolicy, SamplingParams
from localrun.remote.dialects import Dialect
from localrun.responder import Request, Warning_

CONSTRAINT_KEYS = frozenset({"response_format", "structured_outputs", "grammar", "ebnf", "regex", "choices"})
ESSENTIAL_KEYS = frozenset({"model", "messages", "prompt", "stream", "stop", "continue_final_message"})
"""Without these the answer would mean something else: a server that refuses one is an error."""

_BAN = -100.0
"""What OpenAI's API takes for "never": the lowest bias allowed."""
_LLAMA_SAMPLERS = {"typical_p": "typ_p"}
"""Samplers that llama.cpp writes differently."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What is sent: where to, and what."""

    path: str
    body: dict[str, Any]
    warnings: tuple[Warning_, ...]


def build(request: Request, dialect: Dialect, model: str, seed: int, refused: frozenset[str] = frozenset()) -> Payload:
    """The call for `request`. `refused` are keys that this server is known to refuse.

    Raises `UsageError` for what would change the meaning of the answer and cannot be said: a beginning of the answer,
    or a raw prompt, that the server has no way to take.
    """
    params = request.params
    body: dict[str, Any] = {"model": model, "stream": True}
    warnings: list[Warning_] = []
    if dialect.needs_stream_usage:
        body["stream_options"] = {"include_usage": True}
    if dialect.progress:
        body[dialect.progress] = True
    path = _add_prompt(body, request, dialect, warnings)
    _add_sampling(body, params.sampling, seed, dialect, warnings)
    _add_limits(body, params, dialect, warnings)
    _add_thinking(body, params, dialect, warnings)
    if params.constraint is not None:
        _add_constraint(body, params.constraint, dialect, warnings)
    for key in sorted(refused & body.keys()):
        value = body.pop(key)
        if key == "max_tokens":
            body["max_completion_tokens"] = value  # the newer name; servers that refuse the old one know it
        elif key not in ("stream_options", dialect.progress):
            warnings.append(refusal(key, dialect))
    return Payload(path, body, tuple(warnings))


def refusal(key: str, dialect: Dialect) -> Warning_:
    """What to say about a key that a server has refused."""
    if key in CONSTRAINT_KEYS:
        message = f"{dialect.title} refuses {key!r}: the output is only checked at its end"
        return _unsupported("constraint", message)
    return _unsupported(key, f"{dialect.title} refuses {key!r}, so it was left out")


# the prompt -------------------------------------------------------------------------------------------------------


def _add_prompt(body: dict[str, Any], request: Request, dialect: Dialect, warnings: list[Warning_]) -> str:
    if request.raw is not None:
        if not dialect.raw:
            raise UsageError(f"{dialect.title} takes no raw prompts", hint="leave out --raw")
        try:
            body["prompt"] = request.raw.decode() + request.prefill
        except UnicodeDecodeError as error:
            raise UsageError("a remote engine takes UTF-8 text only, and the raw prompt is none") from error
        if not dialect.raw_is_verbatim:
            warnings.append(_unsupported("raw", f"{dialect.title} may put a raw prompt through its own template"))
        return "/completions"
    body["messages"] = [_message(message) for message in request.messages]
    if request.prefill:
        if dialect.prefill == "none":
            raise UsageError(
                f"{dialect.title} cannot continue an answer that has been begun", hint="ask again from the start"
            )
        body["messages"].append({"role": "assistant", "content": request.prefill})
        if dialect.prefill == "continue_final_message":
            body.update(continue_final_message=True, add_generation_prompt=False)
    return "/chat/completions"


def _message(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        told["reasoning_content"] = message.reasoning
    return told


# sampling ---------------------------------------------------------------------------------------------------------


def _add_sampling(
    body: dict[str, Any], sampling: SamplingParams, seed: int, dialect: Dialect, warnings: list[Warning_]
) -> None:
    defaults = SamplingParams()
    missing = []
    for field in fields(SamplingParams):
        value, key = getattr(sampling, field.name), dialect.sampling.get(field.name)
        if field.name == "seed":
            if key is not None:
                body[key] = seed
            elif value is not None:
                missing.append("seed")
        elif key is None:
            if value != getattr(defaults, field.name):
                missing.append(field.name)
        elif field.name in ("logit_bias", "order"):
            if value != getattr(defaults, field.name):
                body[key] = _logit_bias(value) if field.name == "logit_bias" else _order(value, dialect)
        elif value != getattr(defaults, field.name) or field.name in ("temperature", "top_p", "top_k", "min_p"):
            # The servers' defaults differ from each other; with ours, the same command means the same everywhere.
            body[key] = value
    warnings.extend(_unsupported(name, f"{dialect.title} does not know {name.replace('_', '-')}") for name in missing)


def _logit_bias(pairs: tuple[tuple[int, float], ...]) -> dict[str, float]:
    return {str(token): _BAN if math.isinf(bias) else bias for token, bias in pairs}


def _order(order: tuple[str, ...], dialect: Dialect) -> list[str]:
    names = {} if dialect.name == "localrun" else _LLAMA_SAMPLERS
    assert set(order) <= set(SAMPLERS)
    return [names.get(name, name) for name in order]


# limits, thinking -------------------------------------------------------------------------------------------------


def _add_limits(body: dict[str, Any], params: GenerationParams, dialect: Dialect, warnings: list[Warning_]) -> None:
    if params.max_tokens is not None:
        body["max_tokens"] = params.max_tokens
    if params.stop:
        body["stop"] = list(params.stop)
    if params.ignore_eos:
        if dialect.ignore_eos:
            body["ignore_eos"] = True
        else:
            warnings.append(_unsupported("ignore_eos", f"{dialect.title} does not know ignore-eos"))
    if params.priority:
        if dialect.priority:
            body["priority"] = params.priority * dialect.priority
        else:
            warnings.append(_unsupported("priority", f"{dialect.title} knows no priorities"))
    if params.on_overflow is not OverflowPolicy.ERROR:
        message = f"{dialect.title} cannot be told what to do when the context is full ({params.on_overflow})"
        warnings.append(_unsupported("on_overflow", message))


def _add_thinking(body: dict[str, Any], params: GenerationParams, dialect: Dialect, warnings: list[Warning_]) -> None:
    if params.think is not None:
        if dialect.think == "template":
            body["chat_template_kwargs"] = {"enable_thinking": params.think}
        elif dialect.think == "effort":
            body["reasoning_effort"] = "medium" if params.think else "none"
        else:
            warnings.append(_unsupported("think", f"{dialect.title} has no switch for thinking"))
    if params.think_budget is not None:
        if dialect.think_budget:
            body[dialect.think_budget] = params.think_budget
        else:
            warnings.append(_unsupported("think_budget", f"{dialect.title} has no budget for thinking"))


# constraints ------------------------------------------------------------------------------------------------------


def _add_constraint(body: dict[str, Any], spec: ConstraintSpec, dialect: Dialect, warnings: list[Warning_]) -> None:
    form = dialect.constraints.get(spec.kind)
    source = spec.source
    if form is None:
        message = f"{dialect.title} cannot enforce a {_KIND_NAMES[spec.kind]}: the output is only checked at its end"
        warnings.append(_unsupported("constraint", message))
        return
    if spec.kind == "json_schema":
        assert isinstance(source, str)
        body["response_format"] = _schema_format(form, json.loads(source))
    elif form == "structured_outputs":
        names = {"gbnf": "grammar", "regex": "regex", "choice": "choice"}
        body["structured_outputs"] = {names[spec.kind]: list(source) if spec.kind == "choice" else source}
    elif form == "choices":
        body["choices"] = list(source)
    elif form == "guided_format":
        name = "ebnf" if spec.kind == "gbnf" else "regex"
        text = _alternatives(source) if isinstance(source, tuple) else source
        body["response_format"] = {"type": name, name: text}
    elif form == "regex":
        body["regex"] = _alternatives(source) if isinstance(source, tuple) else source
    elif spec.kind == "choice":
        body["grammar"] = f"root ::= {' | '.join(map(_gbnf_literal, source))}"
    else:
        body[form] = source


_KIND_NAMES = {"json_schema": "JSON Schema", "gbnf": "grammar", "regex": "regular expression", "choice": "choice"}


def _schema_format(form: str, schema: Any) -> dict[str, Any]:
    if form == "json_object":
        return {"type": "json_object", "schema": schema}
    if form == "guided_json":
        return {"type": "json", "schema": schema}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def _alternatives(choices: tuple[str, ...]) -> str:
    return "|".join(f"({re.escape(choice)})" for choice in choices)


def _gbnf_literal(text: str) -> str:
    return f'"{"".join(_gbnf_characters(text))}"'


def _gbnf_characters(text: str) -> Iterator[str]:
    named: Mapping[str, str] = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    for character in text:
        yield named.get(character) or (character if character.isprintable() else f"\\U{ord(character):08X}")


def _unsupported(name: str, message: str) -> Warning_:
    return Warning_(f"unsupported_{name}", message)
