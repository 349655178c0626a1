"""Messages and tools as templates take them: plain mappings, with every text open to change.

Knows the keys that templates read; knows no template. Invariant: `change` sees every text that a user, a tool or the
model wrote, so what is marked or disguised for a template is complete. Role and type names are the program's own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from localrun.chat.messages import Message, ToolCall

Tools = Sequence[Mapping[str, Any]]
Change = Callable[[str], str]

_OWN_WORDS = ("type", "role")


def unchanged(text: str) -> str:
    """The texts as they are."""
    return text


def told(
    message: Message,
    reasoning_key: str | None,
    *,
    typed: bool = False,
    arguments_as_text: bool = False,
    short_ids: bool = False,
    change: Change = unchanged,
) -> dict[str, Any]:
    """One message. `reasoning_key` is where its template reads reasoning; `typed` makes the content a list of parts.

    Arguments of calls are objects, or their JSON text; ids are as given, or nine letters and digits.
    """
    written_id = _short if short_ids else unchanged
    content = change(message.content)
    result: dict[str, Any] = {
        "role": message.role,
        "content": [{"type": "text", "text": content}] if typed else content,
    }
    if message.reasoning and reasoning_key is not None:
        result[reasoning_key] = change(message.reasoning)
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": change(written_id(call.id)),
                "type": "function",
                "function": _told_function(call, arguments_as_text, change),
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        result["tool_call_id"] = change(written_id(message.tool_call_id))
    if message.name:
        result["name"] = change(message.name)
    return result


def told_tools(tools: Tools | None, change: Change = unchanged) -> list[Any] | None:
    """The tools' descriptions; None for none."""
    return None if tools is None else _changed(tools, change)


def strings(value: object) -> Iterator[str]:
    """Every text inside a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from strings([*value.keys(), *value.values()])
    elif isinstance(value, Sequence):
        for item in value:
            yield from strings(item)


def texts_of(call: ToolCall) -> list[str]:
    """The texts of a call that a template may be told."""
    try:
        return [call.name, call.arguments, *strings(json.loads(call.arguments))]
    except (ValueError, RecursionError):
        return [call.name, call.arguments]


def _told_function(call: ToolCall, as_text: bool, change: Change) -> dict[str, Any]:
    """A call with its arguments as an object, where they are one and shall be."""
    arguments: Any = call.arguments
    if not as_text:
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(call.arguments)
    return {"name": change(call.name), "arguments": _changed(arguments, change, keys=True)}


def _short(id_: str) -> str:
    """The last nine letters and digits of an id; zeros where there are not so many."""
    return "".join(character for character in id_ if character.isascii() and character.isalnum())[-9:].rjust(9, "0")


def _changed(value: Any, change: Change, *, keys: bool = False) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            (change(key) if keys else key): item
            if key in _OWN_WORDS and not keys
            else _changed(item, change, keys=keys)
            for key, item in value.items()
        }
    if isinstance(value, Sequence):
        return [_changed(item, change, keys=keys) for item in value]
    return value
