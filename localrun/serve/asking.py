"""A request of the API → what the engine is asked.

Knows OpenAI's fields, ours beside them, and our parameters; knows no model and no connection. Invariants: a value out
of range is an error that names its field; a field that is not known is a warning of the answer, not silence; nothing in
a request names a file, and no template is taken from one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from localrun.chat.messages import Message, ToolCall
from localrun.errors import LocalrunError
from localrun.params import SAMPLERS, ConstraintSpec, GenerationParams, SamplingParams
from localrun.responder import Request, Warning_
from localrun.serve.failures import ApiError, as_api_error
from localrun.serve.fields import Fields, is_text, shown

MOST_CHOICES = 16
MOST_STOPS = 16
_MOST_TOP_LOGPROBS = 20
_ROLES = ("system", "developer", "user", "assistant", "tool")
_IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "cache_prompt")
"""Fields of OpenAI's service, or of other servers, that change no answer here."""
_SAMPLING = {"repetition_penalty": "repeat_penalty"}
"""Other servers' names of our samplers."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What the model may call, and whether it must."""

    tools: tuple[dict[str, Any], ...]
    choice: str
    """`auto`, `required`, or the name of the one that must be called after `=`."""
    parallel: bool

    @property
    def forced(self) -> bool:
        return self.choice != "auto"

    @property
    def callable_(self) -> tuple[dict[str, Any], ...]:
        """The functions that may be called."""
        functions = tuple(tool["function"] for tool in self.tools)
        if self.choice.startswith("="):
            return tuple(f for f in functions if f["name"] == self.choice[1:])
        return functions


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of the API, understood."""

    chat: bool
    model: str | None
    requests: tuple[Request, ...]
    """One for each choice, those of one prompt together."""
    per_prompt: int
    stream: bool
    stream_usage: bool
    progress: bool
    logprobs: bool
    echo: str
    """What a completion repeats before its text."""
    tools: Tools | None
    warnings: tuple[Warning_, ...]


def chat_ask(body: Mapping[str, Any]) -> Ask:
    """The question of `/v1/chat/completions`. Raises `ApiError` 400."""
    given = Fields(body)
    messages = _messages(given)
    tools = _tools(given)
    prefill = _prefill(given, messages)
    if prefill is not None:
        messages = messages[:-1]
    params = _params(given, chat=True, tools=tools)
    request = Request(
        params,
        messages=messages,
        prefill=prefill.content if prefill is not None else "",
        prefill_reasoning=prefill.reasoning if prefill is not None else "",
        tools=tools.tools if tools is not None else (),
    )
    return _ask(given, (request,), chat=True, echo="", tools=tools)


def completion_ask(body: Mapping[str, Any]) -> Ask:
    """The question of `/v1/completions`. Raises `ApiError` 400."""
    given = Fields(body)
    prompts = given.texts("prompt", MOST_CHOICES)
    if not prompts or not all(prompts):
        raise given.wrong("prompt", "is missing or empty; it is a text or a list of texts")
    if given.text("suffix"):
        raise given.wrong("suffix", "is not supported: the model continues a text, and fills no gap")
    echo = given.boolean("echo") or False
    if echo and len(prompts) > 1:
        raise given.wrong("echo", "goes with one prompt only")
    params = _params(given, chat=False, tools=None)
    requests = tuple(Request(params, raw=prompt.encode()) for prompt in prompts)
    return _ask(given, requests, chat=False, echo=prompts[0] if echo else "", tools=None)


def _ask(given: Fields, requests: tuple[Request, ...], *, chat: bool, echo: str, tools: Tools | None) -> Ask:
    model = given.text("model")
    n = given.integer("n", 1, MOST_CHOICES) or 1
    best_of = given.integer("best_of", 1, MOST_CHOICES) if not chat else None
    if best_of is not None and best_of != n:
        raise given.wrong("best_of", f"is {best_of}; only n itself is supported")
    stream = given.boolean("stream") or False
    stream_options = given.inside("stream_options")
    if stream_options is not None and not stream:
        raise given.wrong("stream_options", "goes with stream only")
    usage = bool(stream_options and stream_options.boolean("include_usage"))
    if stream_options is not None:
        stream_options.boolean("include_obfuscation")
    progress = given.boolean("return_progress") or False
    for name in _IGNORED:
        given.get(name)
    if n * len(requests) > MOST_CHOICES:
        raise given.wrong("n", f"and the prompts make {n * len(requests)} answers, more than {MOST_CHOICES}")
    unknown = [*given.unknown(), *(stream_options.unknown() if stream_options is not None else [])]
    warnings = tuple(Warning_("unknown_field", f"the field {shown(name)} is not known here") for name in unknown)
    return Ask(
        chat=chat,
        model=model,
        requests=tuple(_choice(request, i) for request in requests for i in range(n)),
        per_prompt=n,
        stream=stream,
        stream_usage=usage,
        progress=progress,
        logprobs=requests[0].params.logprobs is not None,
        echo=echo,
        tools=tools,
        warnings=warnings,
    )


def _choice(request: Request, index: int) -> Request:
    """The request of one of several choices: a given seed counts up, so that each differs and can be repeated."""
    sampling = request.params.sampling
    if sampling.seed is None or index == 0:
        return request
    seed = (sampling.seed + index) % (2**32 - 1)
    return replace(request, params=replace(request.params, sampling=replace(sampling, seed=seed)))


# messages ---------------------------------------------------------------------------------------------------------


def _messages(given: Fields) -> tuple[Message, ...]:
    entries = given.items("messages")
    if not entries:
        raise given.wrong("messages", "is missing or empty")
    return tuple(_message(entry, i) for i, entry in enumerate(entries))


def _message(entry: Any, index: int) -> Message:
    where = f"messages[{index}]"
    if not isinstance(entry, dict):
        raise ApiError(400, f"{where} is not an object", param=where)
    told = Fields(entry, where)
    role = told.word("role", _ROLES)
    if role is None:
        raise told.wrong("role", "is missing")
    calls = _tool_calls(told) if role == "assistant" else ()
    content = _content(told)
    if content is None and not calls:
        raise told.wrong("content", "is missing")
    reasoning = (told.text("reasoning_content") or told.text("reasoning") or "") if role == "assistant" else ""
    return Message(
        "system" if role == "developer" else role,  # type: ignore[arg-type]  # one of `_ROLES`
        content or "",
        reasoning,
        calls,
        (told.text("tool_call_id") or "") if role == "tool" else "",
        told.text("name") or "",
    )


def _content(told: Fields) -> str | None:
    value = told.get("content")
    if value is None or isinstance(value, str):
        return told.text("content")
    if not isinstance(value, list):
        raise told.wrong("content", "is not a text or a list of parts")
    texts = []
    for i, part in enumerate(value):
        if not isinstance(part, dict):
            raise told.wrong(f"content[{i}]", "is not an object")
        inner = Fields(part, told.name(f"content[{i}]"))
        kind = inner.text("type")
        if kind not in ("text", "input_text", "refusal"):
            raise inner.wrong("type", f"is {shown(kind)}: this server takes text only")
        text = inner.text("refusal" if kind == "refusal" else "text")
        if text is None:
            raise inner.wrong("text", "is missing")
        texts.append(text)
    return "".join(texts)


def _tool_calls(told: Fields) -> tuple[ToolCall, ...]:
    calls = []
    for i, call in enumerate(told.items("tool_calls") or []):
        if not isinstance(call, dict):
            raise told.wrong(f"tool_calls[{i}]", "is not an object")
        inner = Fields(call, told.name(f"tool_calls[{i}]"))
        function = inner.inside("function")
        name = function.text("name") if function is not None else None
        if function is None or not name:
            raise inner.wrong("function.name", "is missing")
        calls.append(ToolCall(inner.text("id") or f"call_{i}", name, function.text("arguments") or "{}"))
    return tuple(calls)


def _prefill(given: Fields, messages: tuple[Message, ...]) -> Message | None:
    """The beginning of the answer, if the last message is one that shall be continued."""
    continued = given.boolean("continue_final_message") or False
    opening = given.boolean("add_generation_prompt")
    if not continued:
        if opening is False:
            raise given.wrong("add_generation_prompt", "is false, which goes with continue_final_message only")
        return None
    if opening:
        raise given.wrong("add_generation_prompt", "and continue_final_message exclude each other")
    last = messages[-1]
    if last.role != "assistant" or last.tool_calls:
        raise given.wrong("continue_final_message", "needs a last message of the assistant, without tool calls")
    return last


# tools ------------------------------------------------------------------------------------------------------------


def _tools(given: Fields) -> Tools | None:
    entries = given.items("tools") or []
    parallel = given.boolean("parallel_tool_calls")
    wanted = given.get("tool_choice")
    tools = tuple(_tool(entry, i) for i, entry in enumerate(entries))
    if not tools:
        if wanted not in (None, "none", "auto"):
            raise given.wrong("tool_choice", "needs tools")
        return None
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) != len(names):
        raise given.wrong("tools", "have a name twice")
    if wanted == "none":
        return None
    return Tools(tools, _tool_choice(given, wanted, names), parallel is not False)


def _tool(entry: Any, index: int) -> dict[str, Any]:
    where = f"tools[{index}]"
    if not isinstance(entry, dict):
        raise ApiError(400, f"{where} is not an object", param=where)
    told = Fields(entry, where)
    if told.text("type") != "function":
        raise told.wrong("type", f"is {shown(entry.get('type'))}; only functions are supported")
    function = told.inside("function")
    name = function.text("name") if function is not None else None
    if function is None or not name or len(name) > 256:
        raise told.wrong("function.name", "is missing or too long")
    function.boolean("strict")
    parameters = function.object("parameters")
    declared: dict[str, Any] = {"name": name}
    if description := function.text("description"):
        declared["description"] = description
    declared["parameters"] = parameters if parameters is not None else {"type": "object", "properties": {}}
    return {"type": "function", "function": declared}


def _tool_choice(given: Fields, wanted: Any, names: list[str]) -> str:
    if wanted is None or wanted == "auto":
        return "auto"
    if wanted == "required":
        return "required"
    if isinstance(wanted, dict):
        function = wanted.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name in names:
            return f"={name}"
        raise given.wrong("tool_choice", f"names {shown(name)}, which is none of the tools")
    raise given.wrong("tool_choice", f"is {shown(wanted)}; it is none, auto, required or a function")


# parameters -------------------------------------------------------------------------------------------------------


def _params(given: Fields, *, chat: bool, tools: Tools | None) -> GenerationParams:
    limits = [given.integer(key, -1, 2**31 - 1) for key in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
    max_tokens = next((limit for limit in limits if limit is not None), None)
    constraint = _constraint(given)
    if constraint is not None and tools is not None:
        raise given.wrong("tools", "and a constraint on the text exclude each other")
    try:
        return GenerationParams(
            sampling=_sampling(given),
            max_tokens=None if max_tokens == -1 else max_tokens,
            stop=given.texts("stop", MOST_STOPS),
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
    if kind == "json_schema":
        inner = told.inside("json_schema")
        if inner is not None:
            schema = inner.get("schema")
        if schema is None:
            raise told.wrong("json_schema.schema", "is missing")
    elif schema is None:
        schema = {"type": "object"}
    if not isinstance(schema, dict | bool):
        raise told.wrong("json_schema.schema", "is not an object")
    text = json.dumps(schema)
    return ConstraintSpec("json_schema", text, "response_format")


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
