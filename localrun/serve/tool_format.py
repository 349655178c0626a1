"""How a model writes a call of a tool, and how a call is read while it streams.

Knows the forms that chat templates ask for; knows no engine. Invariant: a form is used only if the template shows the
tools to the model.

The call itself is always generated under a JSON Schema made of the tools' own: name and arguments cannot be wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from localrun.params import ConstraintSpec

_PROBE = "zq_probe_tool"


class Template(Protocol):
    """What is asked of a chat template."""

    @property
    def source(self) -> str: ...

    def text(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str: ...


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """What stands around the JSON of a call."""

    tag: str | None
    """The text that begins a call; None where a call is bare JSON, which nothing tells from an answer."""
    closing: str
    arguments: str
    """The key of the arguments."""

    @property
    def opening(self) -> str:
        return f"{self.tag}\n" if self.tag else ""


# `<tool_call>` tags around {"name": …, "arguments": …}: Hermes, Qwen 2.5 and 3, SmolLM3, Granite 4 and others.
HERMES = ToolFormat("<tool_call>", "\n</tool_call>", "arguments")
# A bare {"name": …, "parameters": …}: Llama 3.1 and later.
BARE = ToolFormat(None, "", "parameters")


def tool_format(template: Template) -> ToolFormat | None:
    """The form that a template asks for; None if it shows no tools, or asks for a form that is not known here."""
    from localrun.errors import TemplateError

    probe = {
        "type": "function",
        "function": {"name": _PROBE, "description": "d", "parameters": {"type": "object", "properties": {}}},
    }
    try:
        text = template.text([{"role": "user", "content": "Hi"}], add_generation_prompt=True, tools=[probe])
    except TemplateError:
        return None
    if _PROBE not in text:
        return None
    if "<tool_call>" in template.source and "<function=" not in template.source and "<arg_key>" not in template.source:
        return HERMES
    if '"parameters"' in template.source and "<|eot_id|>" in template.source:
        return BARE
    return None


def call_constraint(form: ToolFormat, functions: Sequence[Mapping[str, Any]]) -> ConstraintSpec:
    """What a call must match: one of the functions by name, with arguments as its schema says."""
    if len(functions) == 1:
        schema = _call_schema(form, functions[0], "#")
    else:
        schema = {"anyOf": [_call_schema(form, f, f"#/anyOf/{i}") for i, f in enumerate(functions)]}
    return ConstraintSpec("json_schema", json.dumps(schema), "tools")


def _call_schema(form: ToolFormat, function: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"const": function["name"]},
            form.arguments: _moved(function["parameters"], f"{place}/properties/{form.arguments}"),
        },
        "required": ["name", form.arguments],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """A schema that has been put elsewhere in a document: its references to itself follow it."""
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[key] = place + value[1:]
        elif key in ("const", "enum", "default", "examples"):
            moved[key] = value
        else:
            moved[key] = _moved(value, place)
    return moved


class CallReader:
    """The JSON of one call as it streams: first the name, then the arguments piece by piece."""

    def __init__(self, form: ToolFormat) -> None:
        self._head = re.compile(
            r'\s*\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*' + f'"{form.arguments}"' + r"\s*:\s*", re.DOTALL
        )
        self._held = ""
        self._begun = False
        self.name: str | None = None
        self.text = ""
        """Everything so far."""

    def push(self, text: str) -> Iterator[str]:
        """Pieces of the arguments. `name` is known before the first."""
        self.text += text
        self._held += text
        if self.name is None:
            match = self._head.match(self._held)
            if match is None:
                return
            self.name = json.loads(match["name"])
            self._held = self._held[match.end() :]
        if not self._begun:
            self._held = self._held.lstrip()
        # What could be the end of the call is held back: its last brace is not the arguments'.
        sure = len(self._held.rstrip("} \t\r\n"))
        if sure:
            self._begun = True
            yield self._held[:sure]
            self._held = self._held[sure:]

    def finish(self) -> str:
        """The rest of the arguments, when the call is complete."""
        held, self._held = self._held.rstrip(), ""
        return held.removesuffix("}").rstrip() if self.name is not None else ""
