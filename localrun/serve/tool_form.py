"""How a model writes its calls of tools: the texts between names and arguments.

Values only; `tool_probe` finds them by asking a chat template. A call is `head`, name, `mid`, arguments and `tail`.
Calls that stand together are held by `section` and `end` with `between` in between; without `end` each call stands for
itself. Invariant: every text here is the template's own, so special tokens written in it are meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from localrun.chat.messages import Message, ToolCall
from localrun.serve.marked_text import INDEX

# They stand for what is known only when a call is written. Private characters: no template has them.
ID, NAME, KEY = "\ue001", "\ue002", "\ue003"


@dataclass(frozen=True, slots=True)
class KeyedArguments:
    """Arguments that are written one by one, not as a JSON object."""

    key_open: str
    """What stands before a key."""
    text_open: str
    """Between a key and a text, which is written as it is."""
    text_close: str
    json_open: str
    """Between a key and any other value, which is written as JSON."""
    json_close: str
    join: str
    """Between two arguments."""
    quoted: bool = False
    """Texts are written in quotes, so as JSON too."""
    cdata: bool = False
    """A text may stand in a CDATA section, as in XML."""

    def read_text(self, written: str) -> str:
        """The text that was written."""
        if self.cdata and (match := re.fullmatch(r"\s*<!\[CDATA\[(.*)\]\]>\s*", written, re.DOTALL)):
            return match[1]
        return written


@dataclass(frozen=True, slots=True)
class ToolForm:
    """The form of one chat template."""

    tag: str | None
    """The text that tells that a call begins; None where nothing tells a call from an answer."""
    section: str
    head: str
    mid: str
    tail: str
    between: str = ""
    end: str = ""
    joint: str = ""
    """What ends a text before a call, for models that name the channel of each part of an answer."""
    several: bool = True
    """The template shows several calls in one answer."""
    keyed: KeyedArguments | None = None
    """None: the arguments are one JSON object."""
    silent: bool = False
    """The template asks for calls, but does not write those of earlier answers."""

    def opening(self, index: int, id_: str, *, first: bool) -> str:
        """What stands before the name of a call."""
        before = self.section if first else self.between if self.end else ""
        return filled(before + self.head, index=index, id_=id_)

    def written_name(self, name: str) -> str:
        """A name as it stands in a call."""
        return json.dumps(name, ensure_ascii=False)[1:-1] if self.head.endswith('"') else name

    def after_name(self, index: int, id_: str, name: str) -> str:
        """What stands between the name and the arguments."""
        return filled(self.mid, index=index, id_=id_, name=name)

    def ending(self, index: int, id_: str, name: str) -> str:
        """What ends a call."""
        return filled(self.tail, index=index, id_=id_, name=name)

    def history(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with earlier calls as a part of their text, where the template would leave them out."""
        return tuple(
            replace(message, content=message.content + self._written(message.tool_calls), tool_calls=())
            if self.silent and message.tool_calls
            else message
            for message in messages
        )

    def _written(self, calls: Sequence[ToolCall]) -> str:
        parts = []
        for i, call in enumerate(calls):
            parts += [self.opening(i, call.id, first=i == 0), self.written_name(call.name)]
            parts += [self.after_name(i, call.id, call.name), self._written_arguments(call.arguments)]
            parts += [self.ending(i, call.id, call.name)]
        return "".join([*parts, self.end])

    def _written_arguments(self, text: str) -> str:
        if (form := self.keyed) is None:
            return text
        try:
            items = json.loads(text).items()
        except (ValueError, RecursionError, AttributeError):
            return text
        return form.join.join(
            f"{form.key_open}{key}{form.json_open}{json.dumps(value, ensure_ascii=False)}{form.json_close}"
            for key, value in items
        )


def filled(text: str, *, index: int = 0, id_: str = "", name: str = "", key: str = "") -> str:
    """A text of a form with its places filled."""
    return text.replace(INDEX, str(index)).replace(ID, id_).replace(NAME, name).replace(KEY, key)


def _object_form(tag: str | None, before: str, after: str, arguments: str) -> ToolForm:
    return ToolForm(tag, "", before + '{"name": "', f'", "{arguments}": ', "}" + after, between="\n", silent=True)


# Forms that templates ask for in words, without writing a call themselves.
HERMES = _object_form("<tool_call>", "<tool_call>\n", "\n</tool_call>", "arguments")
GRANITE = ToolForm("<|tool_call|>", "<|tool_call|>[", '{"name": "', '", "arguments": ', "}", ", ", "]", silent=True)
BARE = ToolForm(None, "", '{"name": "', '", "parameters": ', "}", several=False, silent=True)
# [name(key="text", key=7)], as Python writes calls: LFM2.
LFM = ToolForm(
    "<|tool_call_start|>",
    "<|tool_call_start|>[",
    "",
    "(",
    ")",
    ", ",
    "]<|tool_call_end|>",
    silent=True,
    keyed=KeyedArguments("", "=", "", "=", "", ", ", quoted=True),
)
