"""From a path in the tree to the messages that a model reads.

Knows nodes and messages; knows no template. Invariant: every message of the path is in the prompt, unless a summary or
a shift mark that the user can see stands for it; roles alternate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localrun.chat.messages import Message, Role
from localrun.store.records import Attachment, Node

_SUMMARY = "Summary of the conversation so far:\n"
_UNFINISHED = ("interrupted", "error", "crashed", None)


def applied_mark(path: Sequence[Node]) -> Node | None:
    """The summary or shift mark in force at the end of the path. A summary that was stopped counts for nothing."""
    return next(
        (
            node
            for node in reversed(path)
            if node.kind == "shift" or (node.kind == "summary" and node.finish not in _UNFINISHED)
        ),
        None,
    )


def kept(path: Sequence[Node]) -> tuple[Node, ...]:
    """The questions and answers of the path that are still told to the model word for word."""
    mark = applied_mark(path)
    start = 0
    if mark is not None and mark.covers_id is not None:
        start = 1 + next((index for index, node in enumerate(path) if node.id == mark.covers_id), -1)
    return tuple(node for node in path[start:] if node.kind in ("user", "assistant"))


def messages_of(path: Sequence[Node], system: str = "") -> tuple[Message, ...]:
    """What the model reads for this path: the system prompt, the summary in force, the kept messages."""
    mark = applied_mark(path)
    preamble = [system] if system else []
    if mark is not None and mark.kind == "summary":
        preamble.append(_SUMMARY + mark.text)
    messages = [Message("system", "\n\n".join(preamble))] if preamble else []
    for node in kept(path):
        if node.kind == "assistant" and not node.text:
            continue  # stopped before it said anything
        role: Role = "user" if node.kind == "user" else "assistant"
        content = with_attachments(node.text, node.attachments) if role == "user" else node.text
        last = messages[-1] if messages else None
        if last is not None and last.role == role:  # an answer was stopped, and the user wrote again
            messages[-1] = Message(role, f"{last.content}\n\n{content}", last.reasoning or node.reasoning)
        else:
            messages.append(Message(role, content, node.reasoning))
    return tuple(messages)


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """The files first, the question last: so the files' prefix is reused by the next question about them."""
    parts = []
    for attachment in attachments:
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", attachment.text)), default=0))
        parts.append(f"{attachment.name}:\n{fence}\n{attachment.text}\n{fence}")
    return "\n\n".join([*parts, text] if text else parts)
