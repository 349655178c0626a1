"""Conversations that a template refuses, told another way.

Knows messages; knows no template. Invariant: an arrangement holds every text of the conversation, in order; what was
moved is named in its notices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from localrun.chat.messages import Message, Notice

SYSTEM_MERGED = Notice(
    "system_merged", "the model's chat template has no system role: the system text was put before the user's message"
)
TURNS_MERGED = Notice(
    "turns_merged", "the model's chat template wants alternating roles: neighbouring messages of one role were joined"
)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The messages in a form that a template may accept."""

    messages: tuple[Message, ...]
    typed: bool = False
    """Contents are lists of parts with a type, for templates that know no other form."""
    notices: tuple[Notice, ...] = ()
    arguments_as_text: bool = False
    """The arguments of calls are the text of a JSON object, not the object itself."""
    short_ids: bool = False
    """The ids of calls are nine letters and digits."""


def arrangements(messages: Sequence[Message]) -> Iterator[Arrangement]:
    """The conversation as it is, then with less and less that a template could refuse."""
    given = tuple(messages)
    yield from _orders(given)
    if any(message.tool_calls or message.tool_call_id for message in given):
        for short_ids, as_text in ((True, False), (False, True), (True, True)):
            for arrangement in _orders(given):
                yield replace(arrangement, arguments_as_text=as_text, short_ids=short_ids)


def _orders(given: tuple[Message, ...]) -> Iterator[Arrangement]:
    yield Arrangement(given)
    yield Arrangement(given, typed=True)
    joined = _join_neighbours(given)
    if joined != given:
        yield Arrangement(joined, notices=(TURNS_MERGED,))
    moved = _move_system_text(given)
    if moved != given:
        yield Arrangement(moved, notices=(SYSTEM_MERGED,))
        both = _join_neighbours(moved)
        if both != moved:
            yield Arrangement(both, notices=(SYSTEM_MERGED, TURNS_MERGED))
    if any(len(message.tool_calls) > 1 for message in given):
        yield Arrangement(_one_call_each(given))


def _join_neighbours(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if all(a.role != b.role for a, b in pairwise(messages)):
        return messages
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role and not (_calls(joined[-1]) or _calls(message)):
            last = joined.pop()
            message = Message(
                message.role, _paragraphs(last.content, message.content), _paragraphs(last.reasoning, message.reasoning)
            )
        joined.append(message)
    return tuple(joined)


def _move_system_text(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Put each system text before the next user message; after the last user message it becomes one."""
    moved: list[Message] = []
    waiting = ""
    for message in messages:
        if message.role == "system":
            waiting = _paragraphs(waiting, message.content)
        elif message.role == "user" and waiting:
            moved.append(Message("user", _paragraphs(waiting, message.content)))
            waiting = ""
        else:
            moved.append(message)
    if waiting:
        moved.append(Message("user", waiting))
    return tuple(moved)


def _one_call_each(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Every call in a turn of its own, with the answer to it behind it."""
    split: list[Message] = []
    left = list(messages)
    while left:
        message = left.pop(0)
        for call in message.tool_calls[:-1]:
            split.append(replace(message, tool_calls=(call,)))
            message = replace(message, content="", reasoning="", tool_calls=message.tool_calls[1:])
            answers = takewhile(lambda following: following.role == "tool", left)
            if answer := next((answer for answer in answers if answer.tool_call_id == call.id), None):
                split.append(answer)
                left.remove(answer)
        split.append(message)
    return tuple(split)


def _calls(message: Message) -> bool:
    """Whether a turn calls a tool or answers a call: each of these stands alone."""
    return bool(message.tool_calls) or message.role == "tool"


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
