"""A request of the API → what the engine is asked.

Knows the two endpoints that answer; knows no model and no connection. Invariants: a field that is not known is a
warning of the answer, not silence; nothing in a request names a file, and no template is taken from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from localrun.responder import Request, Warning_
from localrun.serve.fields import Fields, shown
from localrun.serve.message_fields import conversation, prefill_of
from localrun.serve.parameter_fields import parameters
from localrun.serve.tool_fields import Tools, tools_of

MOST_CHOICES = 16
_MOST_TOLD = 32
"""Unknown fields that are named."""
_IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "cache_prompt")
"""Fields of OpenAI's service, or of other servers, that change no answer here."""


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
    messages = conversation(given)
    tools = tools_of(given)
    prefill = prefill_of(given, messages)
    if prefill is not None:
        messages = messages[:-1]
    params = parameters(given, chat=True, with_tools=tools is not None)
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
    params = parameters(given, chat=False)
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
    warnings = tuple(
        Warning_("unknown_field", f"the field {shown(name)} is not known here") for name in unknown[:_MOST_TOLD]
    )
    if len(unknown) > _MOST_TOLD:
        more = f"{len(unknown) - _MOST_TOLD:,} more fields are not known here"
        warnings = (*warnings, Warning_("unknown_field", more))
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
