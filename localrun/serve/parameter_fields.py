"""How long, how sampled, how constrained: a request's settings → our parameters.

Knows OpenAI's fields and ours beside them; knows no model. Invariant: a value out of range is an error that names its
field.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from localrun.errors import LocalrunError
from localrun.params import SAMPLERS, ConstraintSpec, GenerationParams, SamplingParams
from localrun.serve.failures import ApiError, as_api_error
from localrun.serve.fields import Fields, is_text, schema_text, shown

_MOST_STOPS = 16
_MOST_TOP_LOGPROBS = 20
_SAMPLING = {"repetition_penalty": "repeat_penalty"}
"""Other servers' names of our samplers."""


def parameters(given: Fields, *, chat: bool, with_tools: bool = False) -> GenerationParams:
    """All settings. Raises `ApiError` 400."""
    limits = [given.integer(key, -1, 2**31 - 1) for key in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
    max_tokens = next((limit for limit in limits if limit is not None), None)
    constraint = _constraint(given)
    if constraint is not None and with_tools:
        raise given.wrong("tools", "and a constraint on the text exclude each other")
    try:
        return GenerationParams(
            sampling=_sampling(given),
            max_tokens=None if max_tokens == -1 else max_tokens,
            stop=given.texts("stop", _MOST_STOPS),
            ignore_eos=given.boolean("ignore_eos") or False,
            timeout_s=given.number("timeout", 1e-3, 1e6),
            think=_think(given) if chat else None,
            think_budget=given.integer("thinking_budget_tokens", 0, 2**31 - 1) if chat else None,
            constraint=constraint,
            priority=given.integer("priority", -1000, 1000) or 0,
            logprobs=_logprobs(given, chat=chat),
        )
    except LocalrunError as error:
        raise as_api_error(error) from error


def _sampling(given: Fields) -> SamplingParams:
    values: dict[str, Any] = {}
    for key, name in [*((f.name, f.name) for f in fields(SamplingParams)), *_SAMPLING.items()]:
        if key in ("seed", "logit_bias", "order"):
            continue
        if isinstance(getattr(SamplingParams(), name), int):
            value: float | None = given.integer(key, -(2**31), 2**31 - 1)
        else:
            value = given.number(key, -1e9, 1e9)
        if value is not None:
            values[name] = value
    seed = given.integer("seed", -(2**63), 2**64)
    if seed is not None and seed != -1:
        values["seed"] = seed % (2**32 - 1)
    values["logit_bias"] = _logit_bias(given)
    if order := given.texts("samplers", len(SAMPLERS)):
        values["order"] = order
    return SamplingParams(**values)


def _logit_bias(given: Fields) -> tuple[tuple[int, float], ...]:
    pairs = []
    for token, bias in (given.object("logit_bias") or {}).items():
        if not token.isascii() or not token.isdigit() or len(token) > 9:
            raise given.wrong("logit_bias", f"names {shown(token)}, which is no token id")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise given.wrong("logit_bias", f"of token {token} is {shown(bias)}, outside [-100, 100]")
        pairs.append((int(token), float("-inf") if bias <= -100 else float(bias)))
    return tuple(pairs)


def _think(given: Fields) -> bool | None:
    told = given.inside("chat_template_kwargs")
    effort = given.word("reasoning_effort", ("none", "minimal", "low", "medium", "high", "xhigh"))
    if told is not None:
        think = told.boolean("enable_thinking")
        if unknown := told.unknown():
            raise given.wrong("chat_template_kwargs", f"has {shown(unknown[0])}; only enable_thinking is supported")
        if think is not None:
            return think
    return None if effort is None else effort not in ("none", "minimal")


def _logprobs(given: Fields, *, chat: bool) -> int | None:
    if not chat:
        return given.integer("logprobs", 0, _MOST_TOP_LOGPROBS)
    wanted, top = given.boolean("logprobs"), given.integer("top_logprobs", 0, _MOST_TOP_LOGPROBS)
    if top is not None and not wanted:
        raise given.wrong("top_logprobs", "needs logprobs to be true")
    return (top or 0) if wanted else None


def _constraint(given: Fields) -> ConstraintSpec | None:
    found = [spec for spec in (_response_format(given), _grammar(given), _regex(given), _choices(given)) if spec]
    if len(found) > 1:
        raise ApiError(400, f"{found[0].name} and {found[1].name} exclude each other", param=found[1].name)
    return found[0] if found else None


def _response_format(given: Fields) -> ConstraintSpec | None:
    told = given.inside("response_format")
    kind = told.word("type", ("text", "json_object", "json_schema")) if told is not None else None
    if told is None or kind == "text":
        return None
    if kind is None:
        raise told.wrong("type", "is missing")
    schema: Any = told.get("schema")
    place = "response_format.schema"
    if kind == "json_schema":
        inner = told.inside("json_schema")
        if inner is not None:
            schema, place = inner.get("schema"), "response_format.json_schema.schema"
        if schema is None:
            raise told.wrong("json_schema.schema", "is missing")
    elif schema is None:
        schema = {"type": "object"}
    if not isinstance(schema, dict | bool):
        raise told.wrong("json_schema.schema", "is not an object")
    return ConstraintSpec("json_schema", schema_text(schema, place), place)


def _grammar(given: Fields) -> ConstraintSpec | None:
    source = given.text("grammar")
    return ConstraintSpec("gbnf", source, "grammar") if source else None


def _regex(given: Fields) -> ConstraintSpec | None:
    source = given.text("regex")
    return ConstraintSpec("regex", source, "regex") if source else None


def _choices(given: Fields) -> ConstraintSpec | None:
    strings = given.items("choices")
    if strings is None:
        return None
    if not strings or not all(isinstance(text, str) and text and is_text(text) for text in strings):
        raise given.wrong("choices", "is not a list of texts")
    return ConstraintSpec("choice", tuple(strings), "choices")
