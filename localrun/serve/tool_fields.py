"""Tools in a request, and which of them may be called.

Knows OpenAI's fields; knows no form of a call. Invariant: a tool has a name of its own and the schema of an object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from localrun.serve.failures import ApiError
from localrun.serve.fields import Fields, shown

MOST_TOOLS = 512
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


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
        return tuple(function for _, function in self.placed)

    @property
    def placed(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """The functions that may be called, each with its place in the request."""
        functions = ((f"tools[{i}].function", tool["function"]) for i, tool in enumerate(self.tools))
        return tuple((place, f) for place, f in functions if self.choice[:1] != "=" or f["name"] == self.choice[1:])


def tools_of(given: Fields) -> Tools | None:
    """What the model may call; None where there is nothing. Raises `ApiError` 400."""
    entries = given.items("tools") or []
    if len(entries) > MOST_TOOLS:
        raise given.wrong("tools", f"has {len(entries):,} entries, more than {MOST_TOOLS}")
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
    if function is None or not name:
        raise told.wrong("function.name", "is missing")
    if not _NAME.fullmatch(name):  # others would be read as a part of the form of a call
        raise told.wrong("function.name", f"is {shown(name)}; it has at most 64 of a-z, A-Z, 0-9, _ and -")
    function.boolean("strict")
    parameters = function.object("parameters")
    if parameters is not None and parameters.get("type", "object") != "object":
        kind = shown(parameters["type"])
        raise function.wrong("parameters", f"has the type {kind}: the arguments of a function are an object")
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
