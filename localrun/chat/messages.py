"""Messages: who said what. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `reasoning` is what the model thought before an assistant's `content`."""

    role: Role
    content: str
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the prompt that the user should know. `code` is stable, `message` is prose."""

    code: str
    message: str
