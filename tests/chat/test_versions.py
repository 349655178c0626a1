"""Other answers and edited questions are branches beside the old ones."""

from __future__ import annotations

import pytest

from localrun.chat.conversation import (
    ChatSettings,
    Conversation,
)
from localrun.errors import EngineError, UsageError
from localrun.store import Store
from tests.chat.talking import run, talk, texts
from tests.tui.scripted import ScriptedResponder


def test_regenerating_makes_a_sibling(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder("A", "B"), ChatSettings())
    talk(conversation, "q")
    run(conversation.regenerate())
    assert texts(conversation) == ["q", "B"]
    shown = conversation.switch(conversation.path[-1].id, -1)
    assert shown is not None
    assert texts(conversation) == ["q", "A"]
    assert conversation.switch(conversation.path[-1].id, -1) is None


def test_an_earlier_answer_can_be_regenerated(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder("A", "B", "C"), ChatSettings())
    talk(conversation, "q1", "q2")
    run(conversation.regenerate(conversation.path[1].id))
    assert texts(conversation) == ["q1", "C"]
    conversation.switch(conversation.path[1].id, -1)
    assert texts(conversation) == ["q1", "A", "q2", "B"]


def test_a_failed_regeneration_leaves_the_old_answer_in_place(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder("A", EngineError("boom")), ChatSettings())
    talk(conversation, "q")
    with pytest.raises(EngineError):
        run(conversation.regenerate())
    assert texts(conversation) == ["q", "A"]


def test_editing_makes_a_branch_that_reuses_the_common_prefix(store: Store) -> None:
    model = ScriptedResponder("A", "B", "C")
    conversation = Conversation(store, model, ChatSettings())
    talk(conversation, "one two three", "q2")
    run(conversation.edit(conversation.path[2].id, "q2 other"))
    assert texts(conversation) == ["one two three", "A", "q2 other", "C"]
    assert conversation.last_result is not None
    assert conversation.last_result.usage.cached_ram_tokens > 4
    conversation.switch(conversation.path[2].id, -1)
    assert texts(conversation) == ["one two three", "A", "q2", "B"]


def test_an_answer_cannot_be_edited_into_the_models_mouth(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder("A"), ChatSettings())
    talk(conversation, "q")
    with pytest.raises(UsageError, match="message 2 is not yours"):
        conversation.edit(conversation.path[1].id, "x")
