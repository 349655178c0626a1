"""Messages in a request → ours.

Knows roles, parts and calls of OpenAI's messages; knows no template. Invariant: what is not text is refused, never left
out.
"""

from __future__ import annotations

from typing import Any

from localrun.chat.messages import Message, ToolCall
from localrun.serve.failures import ApiError
from localrun.serve.fields import Fields, shown

_ROLES = ("system", "developer", "user", "assistant", "tool")


def conversation(given: Fields) -> tuple[Message, ...]:
    """`messages`. Raises `ApiError` 400."""
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


def prefill_of(given: Fields, messages: tuple[Message, ...]) -> Message | None:
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
