"""The description of the API in OpenAPI 3.1, for clients that generate code and for tests that look for holes.

Knows the endpoints' fields and ranges; checks nothing (`asking` does). Invariant: what the description allows is
answered, and what it forbids is refused with 4xx.
"""

from __future__ import annotations

from typing import Any

from localrun import __version__
from localrun.params import SAMPLERS

_TEXT = {"type": "string"}
_FLAG = {"type": ["boolean", "null"]}
_NAME = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-zA-Z0-9_-]+$"}


def _number(low: float, high: float) -> dict[str, Any]:
    return {"type": ["number", "null"], "minimum": low, "maximum": high}


def _whole(low: int, high: int) -> dict[str, Any]:
    return {"type": ["integer", "null"], "minimum": low, "maximum": high}


def _common() -> dict[str, Any]:
    return {
        "model": {"type": ["string", "null"]},
        "max_tokens": _whole(-1, 2**31 - 1),
        "temperature": _number(0, 100),
        "top_p": _number(0, 1),
        "top_k": _whole(-1, 2**31 - 1),
        "min_p": _number(0, 1),
        "repeat_penalty": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 100},
        "repeat_last_n": _whole(-1, 2**31 - 1),
        "frequency_penalty": _number(-100, 100),
        "presence_penalty": _number(-100, 100),
        "logit_bias": {
            "type": ["object", "null"],
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        "samplers": {"type": ["array", "null"], "items": {"enum": list(SAMPLERS)}, "uniqueItems": True},
        "seed": _whole(-(2**63), 2**64),
        "stop": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 16},
                {"type": "null"},
            ]
        },
        "n": _whole(1, 16),
        "stream": _FLAG,
        "priority": _whole(-1000, 1000),
        "ignore_eos": _FLAG,
        "timeout": {"type": ["number", "null"], "minimum": 0.001, "maximum": 1e6},
        "grammar": {"type": ["string", "null"], "description": "GBNF"},
        "regex": {"type": ["string", "null"]},
        "choices": {
            "type": ["array", "null"],
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
        },
        "return_progress": _FLAG,
    }


def _message() -> dict[str, Any]:
    part = {
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"const": "text"}, "text": _TEXT},
    }
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"anyOf": [_TEXT, {"type": "array", "items": part}]},
        },
    }


def _chat() -> dict[str, Any]:
    function = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": _NAME,
            "description": {"type": ["string", "null"]},
            "parameters": {"type": ["object", "null"]},
        },
    }
    tool = {
        "type": "object",
        "required": ["type", "function"],
        "properties": {"type": {"const": "function"}, "function": function},
    }
    response_format = {
        "type": ["object", "null"],
        "required": ["type"],
        "properties": {
            "type": {"enum": ["text", "json_object", "json_schema"]},
            "json_schema": {
                "type": ["object", "null"],
                "properties": {"name": {"type": ["string", "null"]}, "schema": {"type": ["object", "null"]}},
            },
        },
    }
    return {
        "type": "object",
        "required": ["messages"],
        "properties": {
            **_common(),
            "messages": {"type": "array", "items": _message(), "minItems": 1},
            "max_completion_tokens": _whole(-1, 2**31 - 1),
            "logprobs": _FLAG,
            "top_logprobs": _whole(0, 20),
            "response_format": response_format,
            "tools": {"type": ["array", "null"], "items": tool},
            "tool_choice": {"anyOf": [{"enum": ["none", "auto", "required", None]}, {"type": "object"}]},
            "parallel_tool_calls": _FLAG,
            "reasoning_effort": {"enum": ["none", "minimal", "low", "medium", "high", "xhigh", None]},
            "thinking_budget_tokens": _whole(0, 2**31 - 1),
            "continue_final_message": _FLAG,
        },
    }


def _completion() -> dict[str, Any]:
    prompt = {"type": "string", "minLength": 1}
    return {
        "type": "object",
        "required": ["prompt"],
        "properties": {
            **_common(),
            "prompt": {"anyOf": [prompt, {"type": "array", "items": prompt, "minItems": 1, "maxItems": 16}]},
            "logprobs": _whole(0, 20),
            "echo": _FLAG,
        },
    }


def _embeddings() -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    return {
        "type": "object",
        "required": ["input"],
        "properties": {
            "model": {"type": ["string", "null"]},
            "input": {"anyOf": [text, {"type": "array", "items": text, "minItems": 1, "maxItems": 2048}]},
            "encoding_format": {"enum": ["float", "base64", None]},
            "dimensions": _whole(1, 2**20),
        },
    }


def _error(text: str) -> dict[str, Any]:
    error = {
        "type": "object",
        "required": ["message", "type"],
        "properties": {"message": _TEXT, "type": _TEXT},
    }
    schema = {"type": "object", "required": ["error"], "properties": {"error": error}}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


_ERRORS = {
    "400": "The request makes no sense, or the prompt is longer than the context.",
    "401": "The API key is missing or wrong.",
    "403": "This host or origin may not use the server.",
    "404": "There is no such model.",
    "405": "There is no such method here.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "429": "Too many answers run or wait; see Retry-After.",
    "500": "The engine failed.",
    "503": "The model does not fit in memory or is being loaded again, or the server is stopping.",
}


def _operation(summary: str, body: dict[str, Any] | None = None, media: str = "application/json") -> dict[str, Any]:
    content: dict[str, Any] = {media: {"schema": {"type": "object"} if media == "application/json" else _TEXT}}
    if body is not None:
        content["text/event-stream"] = {}
    responses = {status: _error(text) for status, text in _ERRORS.items()}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "Done.", "content": content}, **responses},
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def description() -> dict[str, Any]:
    """The OpenAPI document."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "localrun", "version": __version__, "description": "OpenAI's API on this machine."},
        "paths": {
            "/v1/chat/completions": {"post": _operation("Answer a conversation.", _chat())},
            "/v1/completions": {"post": _operation("Continue a text.", _completion())},
            "/v1/embeddings": {"post": _operation("Turn texts into vectors.", _embeddings())},
            "/v1/models": {"get": _operation("The models that are served.")},
            "/v1/models/{name}": {"get": {**_operation("One model."), "parameters": [name]}},
            "/v1/status": {"get": _operation("What is loaded, and what runs.")},
            "/health": {"get": _operation("Whether requests can be sent here.")},
            "/metrics": {"get": _operation("Figures for Prometheus.", media="text/plain")},
        },
    }
