"""Ways to talk to a conversation to the end of each answer."""

from __future__ import annotations

from collections.abc import Iterator

from localrun.chat.conversation import (
    Conversation,
    ConversationEvent,
)


def talk(conversation: Conversation, *texts: str) -> None:
    for text in texts:
        run(conversation.ask(text))


def run(events: Iterator[ConversationEvent]) -> list[ConversationEvent]:
    return list(events)


def texts(conversation: Conversation) -> list[str]:
    return [node.text for node in conversation.path]
