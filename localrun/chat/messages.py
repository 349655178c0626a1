"""Messages: who said what. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an assistant's turn made. `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `reasoning` is what the model thought before an assistant's `content`."""

    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant's turn called."""
    tool_call_id: str = ""
    """The call that a tool's turn answers."""
    name: str = ""
    """The tool that a tool's turn comes from."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the prompt that the user should know. `code` is stable, `message` is prose."""

    code: str
    message: str
