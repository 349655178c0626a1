"""Room in the context: how much a conversation needs, and where it can be cut.

Knows token counts and paths; writes nothing. Invariant: a cut lies before a question, never between a question and its
answer, and the newest question is always kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localrun.chat.conversation.prompt import kept
from localrun.chat.messages import Message
from localrun.errors import ContextOverflowError
from localrun.params import GenerationParams
from localrun.responder import Request, Responder
from localrun.store import Node

_RESERVE = 512
"""Tokens kept free for an answer whose length nobody limited: a long paragraph or two."""
_RESERVE_SHARE = 4
"""… but never more than a quarter of the context."""
_TEMPLATE = 32
"""Tokens that a template puts around a message, generously."""


@dataclass(frozen=True, slots=True)
class Room:
    """The context as the status line shows it, in tokens. A `limit` of 0: an engine that does not say."""

    used: int
    reserved: int
    limit: int
    trained: int = 0
    """The longest limit that the model was trained for; 0 where that is not known."""

    @property
    def is_full(self) -> bool:
        return 0 < self.limit < self.used + self.reserved


class ContextFullError(ContextOverflowError):
    """The conversation no longer fits, and the user has to say what gives way."""

    def __init__(self, room: Room, *, can_make_room: bool = True) -> None:
        hint = (
            "compact it into a summary, shift the oldest messages out, or branch off"
            if can_make_room
            else f"the last message alone is too long: {_shorter(room)}"
        )
        super().__init__(
            f"the conversation has {room.used:,} tokens, and {room.reserved:,} are kept for the answer;"
            f" the context holds {room.limit:,}",
            hint=hint,
        )
        self.room = room
        self.can_make_room = can_make_room


def _shorter(room: Room) -> str:
    if 0 < room.trained <= room.limit:
        return f"shorten it; the model was trained for {room.trained:,} tokens"
    return "shorten it, or use a larger --ctx"


def reserve(params: GenerationParams, limit: int) -> int:
    """Tokens to keep free for the answer."""
    return min(params.max_tokens or _RESERVE, limit // _RESERVE_SHARE)


def measure(responder: Responder, request: Request) -> Room:
    """How much of the context the request takes."""
    limit = responder.info.context_limit
    if not limit:
        return Room(0, 0, 0)
    return Room(responder.count_tokens(request), reserve(request.params, limit), limit, responder.info.context_trained)


def surely_fits(responder: Responder, request: Request) -> bool:
    """Whether there is room without counting: a token of text has at least one byte.

    For an engine elsewhere counting is a request of its own.
    """
    limit = responder.info.context_limit
    texts = [request.prefill, request.prefill_reasoning]
    texts += [text for message in request.messages for text in (message.content, message.reasoning)]
    most = sum(len(text.encode()) for text in texts) + _TEMPLATE * (1 + len(request.messages))
    return not limit or most + reserve(request.params, limit) <= limit


def turns(path: Sequence[Node]) -> list[list[Node]]:
    """The kept messages in turns: each begins with a question (or with whatever comes first)."""
    found: list[list[Node]] = []
    for node in kept(path):
        if not found or (node.kind == "user" and found[-1][-1].kind != "user"):
            found.append([])
        found[-1].append(node)
    return found


def cut(path: Sequence[Node], budget: int, count: Callable[[Sequence[Node]], int]) -> Node | None:
    """The last message that has to go so that the rest takes at most `budget` tokens; None if nothing can go.

    `count` counts the tokens of a run of nodes. As much as possible is kept, and at least the last turn.
    """
    groups = turns(path)
    if len(groups) < 2:
        return None
    first_kept = len(groups) - 1
    while first_kept > 1:
        rest = [node for group in groups[first_kept - 1 :] for node in group]
        if count(rest) > budget:
            break
        first_kept -= 1
    return groups[first_kept - 1][-1]


def transcript(messages: Sequence[Message]) -> list[str]:
    """Messages as plain paragraphs, for a model that is asked to summarize them."""
    names = {"system": "Summary so far", "user": "User", "assistant": "Assistant", "tool": "Tool"}
    return [f"{names[message.role]}: {message.content}" for message in messages]
