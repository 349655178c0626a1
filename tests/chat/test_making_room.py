"""A full context is a choice that loses nothing: a summary, a mark, or a branch."""

from __future__ import annotations

import pytest

from localrun.chat.conversation import (
    ChatSettings,
    ContextFullError,
    Conversation,
)
from localrun.chat.messages import Message
from localrun.responder import Request, TextPiece
from localrun.store import Store
from tests.chat.talking import run, talk, texts
from tests.tui.scripted import ScriptedResponder


def long_talk(store: Store, model: ScriptedResponder, settings: ChatSettings | None = None) -> Conversation:
    conversation = Conversation(store, model, settings or ChatSettings())
    for turn in range(4):
        run(conversation.ask(f"question {turn} " + "word " * 20))
    return conversation


def test_a_full_context_asks_and_loses_nothing(store: Store) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = long_talk(store, model)
    with pytest.raises(ContextFullError, match="the context holds 160") as caught:
        talk(conversation, "too much " * 20)
    assert caught.value.can_make_room
    assert caught.value.room.is_full
    assert len(conversation.path) == 9  # the new question is there
    assert len(model.requests) == 4  # and the model has not seen a cut prompt


def test_tokens_are_not_counted_while_there_is_surely_room(store: Store) -> None:
    class Costly(ScriptedResponder):
        def count_tokens(self, request: Request) -> int:
            raise AssertionError("not needed")

    conversation = Conversation(store, Costly("x", context_limit=4096), ChatSettings())
    talk(conversation, "short", "é" * 1000)
    with pytest.raises(AssertionError):
        talk(conversation, "é" * 1000)


def test_compacting_writes_a_visible_summary_that_stands_for_the_old_messages(store: Store) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = long_talk(store, model)
    with pytest.raises(ContextFullError):
        talk(conversation, "next " * 20)
    model.answers = ["They talked about words."]
    run(conversation.make_room("compact"))
    model.answers = ["Good."]
    run(conversation.answer())

    kinds = [node.kind for node in conversation.path]
    assert kinds[-3:] == ["user", "summary", "assistant"]
    assert conversation.path[-2].text == "They talked about words."
    prompt = model.requests[-1].messages
    assert prompt[0] == Message("system", "Summary of the conversation so far:\nThey talked about words.")
    assert prompt[-1].content.startswith("next")
    assert model.count_tokens(model.requests[-1]) + 40 <= 160
    assert conversation.path[0].text.startswith("question 0")  # still there to be read
    transcript = "".join(request.messages[-1].content for request in model.requests[4:-1])
    assert "question 0" in transcript


def test_a_second_summary_tells_what_the_first_one_told(store: Store) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = long_talk(store, model, ChatSettings(on_full="compact"))
    model.answers = ["FIRST SUMMARY"]
    for turn in range(8):
        run(conversation.ask(f"more {turn} " + "word " * 20))
    asked = [request.messages[-1].content for request in model.requests]
    assert any("Summary so far: FIRST SUMMARY" in content for content in asked)
    assert sum(node.kind == "summary" for node in conversation.path) >= 2


def test_a_summary_that_is_stopped_stands_for_nothing(store: Store) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = long_talk(store, model)
    with pytest.raises(ContextFullError):
        talk(conversation, "next " * 20)
    before = texts(conversation)
    model.answers = ["one two three"]
    for event in conversation.make_room("compact"):
        if isinstance(event, TextPiece):
            conversation.stop()
    assert texts(conversation) == before


def test_a_message_longer_than_the_context_is_summarized_in_parts_without_losing_a_word(store: Store) -> None:
    model = ScriptedResponder("ok", context_limit=160)
    conversation = Conversation(store, model, ChatSettings())
    session = store.create_session({})
    words = [f"w{number}" for number in range(300)]
    first = store.add(session.id, None, "user", " ".join(words))
    second = store.add(session.id, first, "assistant", "fine")
    store.add(session.id, second, "user", "and now?")
    conversation = Conversation.open(store, model, session.id)
    with pytest.raises(ContextFullError):
        run(conversation.answer())
    run(conversation.make_room("compact"))
    asked = " ".join(request.messages[-1].content for request in model.requests)
    missing = [word for word in words if word not in asked.split()]
    # A word that a cut went through is there in two halves.
    assert len(missing) <= 4


def test_shifting_leaves_a_visible_mark_and_keeps_the_newest(store: Store) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = long_talk(store, model)
    with pytest.raises(ContextFullError):
        talk(conversation, "next " * 20)
    run(conversation.make_room("shift"))
    mark = conversation.path[-1]
    assert mark.kind == "shift"
    assert "earlier messages are left out" in mark.text
    run(conversation.answer())
    prompt = model.requests[-1].messages
    assert prompt[0].role == "user"
    assert not any("question 0" in message.content for message in prompt)
    assert prompt[-1].content.startswith("next")


def test_branching_off_asks_the_question_alone_and_keeps_the_old_branch(store: Store) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = long_talk(store, model)
    with pytest.raises(ContextFullError):
        talk(conversation, "next " * 20)
    run(conversation.make_room("branch"))
    run(conversation.answer())
    assert len(conversation.path) == 2
    conversation.switch(conversation.path[0].id, -1)
    assert len(conversation.path) == 9


@pytest.mark.parametrize("how", ["compact", "shift", "branch"])
def test_one_message_that_is_too_long_is_a_clear_error(store: Store, how: str) -> None:
    model = ScriptedResponder(context_limit=50)
    conversation = Conversation(store, model, ChatSettings())
    with pytest.raises(ContextFullError):
        talk(conversation, "word " * 100)
    with pytest.raises(ContextFullError) as caught:
        run(conversation.make_room(how))  # type: ignore[arg-type]
    assert not caught.value.can_make_room
    assert caught.value.hint is not None
    assert "--ctx" in caught.value.hint


@pytest.mark.parametrize("policy", ["compact", "shift"])
def test_a_policy_chosen_once_is_followed_and_leaves_its_marks(store: Store, policy: str) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = Conversation(store, model, ChatSettings(on_full=policy))  # type: ignore[arg-type]
    for turn in range(10):
        run(conversation.ask(f"question {turn} " + "word " * 15))
    marks = [node for node in conversation.path if node.kind in ("summary", "shift")]
    assert {node.kind for node in marks} == {"summary" if policy == "compact" else "shift"}
    assert sum(node.kind == "user" for node in conversation.path) == 10


def test_an_answer_cut_off_by_the_context_is_continued_after_room_is_made(store: Store) -> None:
    model = ScriptedResponder("answer " * 5, context_limit=160)
    conversation = Conversation(store, model, ChatSettings())
    talk(conversation, "one " * 50)
    model.answers = ["long " * 120]
    talk(conversation, "two " * 10)
    cut_off = conversation.path[-1]
    assert cut_off.finish == "context"
    with pytest.raises(ContextFullError):
        run(conversation.continue_answer())
    model.answers = ["end"]
    run(conversation.make_room("shift"))
    run(conversation.continue_answer())
    assert conversation.path[-2].text == cut_off.text + "end"
    assert [node.kind for node in conversation.path] == ["user", "assistant", "user", "assistant", "shift"]
