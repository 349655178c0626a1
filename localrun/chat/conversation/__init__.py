"""Conversations: ask, answer again, edit, continue, stop, and what happens when the context is full."""

from localrun.chat.conversation.conversation import (
    Conversation,
    ConversationEvent,
    Draft,
    MakeRoom,
    MessageAdded,
)
from localrun.chat.conversation.prompt import messages_of
from localrun.chat.conversation.recording import AnswerBegun
from localrun.chat.conversation.room import ContextFullError, Room
from localrun.chat.conversation.settings import ON_FULL, ChatSettings, OnFull, from_facts, to_facts, with_temperature

__all__ = [
    "ON_FULL",
    "AnswerBegun",
    "ChatSettings",
    "ContextFullError",
    "Conversation",
    "ConversationEvent",
    "Draft",
    "MakeRoom",
    "MessageAdded",
    "OnFull",
    "Room",
    "from_facts",
    "messages_of",
    "to_facts",
    "with_temperature",
]
