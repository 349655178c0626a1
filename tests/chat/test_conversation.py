"""What a conversation promises, on a scripted model and a real store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from localrun.chat.conversation import (
    AnswerBegun,
    ChatSettings,
    ContextFullError,
    Conversation,
    ConversationEvent,
    MessageAdded,
    from_facts,
    messages_of,
    to_facts,
)
from localrun.chat.messages import Message
from localrun.errors import EngineError, TemplateError, UsageError
from localrun.params import ConstraintSpec, GenerationParams, SamplingParams
from localrun.responder import Done, Request, TextPiece
from localrun.store import Attachment, Store
from tests.tui.scripted import ScriptedResponder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "sessions.db")
    yield opened
    opened.close()


def talk(conversation: Conversation, *texts: str) -> None:
    for text in texts:
        run(conversation.ask(text))


def run(events: Iterator[ConversationEvent]) -> list[ConversationEvent]:
    return list(events)


def texts(conversation: Conversation) -> list[str]:
    return [node.text for node in conversation.path]


def test_a_question_and_its_answer_are_stored_with_all_that_made_them(store: Store) -> None:
    settings = ChatSettings("Be brief.", GenerationParams(SamplingParams(seed=5)))
    conversation = Conversation(store, ScriptedResponder("Blue."), settings)
    events = run(conversation.ask("Which colour?"))

    assert [type(event) for event in events if isinstance(event, MessageAdded | AnswerBegun | Done)] == [
        MessageAdded,
        AnswerBegun,
        Done,
    ]
    answer = conversation.path[-1]
    assert (answer.text, answer.finish) == ("Blue.", "stop")
    assert answer.facts["seed"] == 5
    assert answer.facts["model"]["sha256"] == "ab" * 32  # type: ignore[index]
    assert answer.facts["usage"]["completion_tokens"] == 1  # type: ignore[index]
    assert from_facts(answer.facts["settings"]) == settings  # type: ignore[arg-type]
    assert conversation.session is not None
    assert conversation.session.name == "Which colour?"


def test_the_user_is_heard_by_the_store_before_the_model(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder("x"), ChatSettings())
    events = conversation.ask("Remember this")
    next(events)
    assert store.search("remember")
    events.close()


def test_nothing_is_stored_of_a_conversation_without_messages(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder(), ChatSettings())
    assert conversation.path == ()
    with pytest.raises(UsageError, match="empty message"):
        run(conversation.ask(" \n"))
    assert store.sessions() == []


def test_the_model_reads_the_whole_path(store: Store) -> None:
    model = ScriptedResponder("one", "two")
    conversation = Conversation(store, model, ChatSettings("sys"))
    talk(conversation, "a", "b")
    assert model.requests[-1].messages == (
        Message("system", "sys"),
        Message("user", "a"),
        Message("assistant", "one"),
        Message("user", "b"),
    )


def test_files_come_before_the_question(store: Store) -> None:
    model = ScriptedResponder()
    conversation = Conversation(store, model, ChatSettings())
    run(conversation.ask("Summarize.", [Attachment("notes.md", "```\ncode\n```")]))
    assert model.requests[-1].messages[0].content == "notes.md:\n````\n```\ncode\n```\n````\n\nSummarize."


def test_stop_keeps_the_partial_answer_and_continue_goes_on_with_the_same_tokens(store: Store) -> None:
    model = ScriptedResponder("one two three", "three four")
    conversation = Conversation(store, model, ChatSettings())
    for event in conversation.ask("Count"):
        if isinstance(event, TextPiece) and event.text == "two ":
            conversation.stop()
    assert texts(conversation) == ["Count", "one two "]
    assert conversation.path[-1].finish == "interrupted"

    run(conversation.continue_answer())
    assert model.requests[-1].prefill == "one two "
    assert [message.role for message in model.requests[-1].messages] == ["user"]
    assert texts(conversation) == ["Count", "one two three four"]
    assert conversation.path[-1].finish == "stop"
    assert len(conversation.path[-1].segments) == 2


def test_leaving_in_the_middle_of_an_answer_keeps_what_was_said(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder("one two three"), ChatSettings())
    events = conversation.ask("Count")
    for event in events:
        if isinstance(event, TextPiece):
            break
    events.close()  # type: ignore[attr-defined]
    assert texts(conversation) == ["Count", "one "]
    assert conversation.path[-1].finish == "interrupted"


def test_a_stop_before_the_first_word_leaves_just_the_question(store: Store) -> None:
    model = ScriptedResponder("late")
    conversation = Conversation(store, model, ChatSettings())
    for event in conversation.ask("Hm"):
        if not isinstance(event, TextPiece):
            conversation.stop()
    assert texts(conversation) == ["Hm"]
    run(conversation.ask("And now"))
    assert [message.content for message in model.requests[-1].messages] == ["Hm\n\nAnd now"]


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


def test_an_error_keeps_the_question_and_the_next_try_answers_it(store: Store) -> None:
    model = ScriptedResponder(TemplateError("no system role"), "fine")
    conversation = Conversation(store, model, ChatSettings())
    with pytest.raises(TemplateError):
        talk(conversation, "q")
    assert texts(conversation) == ["q"]
    run(conversation.regenerate())
    assert texts(conversation) == ["q", "fine"]


def test_an_error_in_the_middle_keeps_what_was_said(store: Store) -> None:
    class Breaking(ScriptedResponder):
        def respond(self, request):  # type: ignore[no-untyped-def]
            yield TextPiece("half")
            raise EngineError("the engine crashed")

    conversation = Conversation(store, Breaking(), ChatSettings())
    with pytest.raises(EngineError):
        talk(conversation, "q")
    answer = conversation.path[-1]
    assert (answer.text, answer.finish, answer.facts["error"]) == ("half", "error", "the engine crashed")


def test_without_a_model_the_question_is_kept(store: Store) -> None:
    conversation = Conversation(store, None, ChatSettings())
    with pytest.raises(EngineError, match="no model"):
        talk(conversation, "q")
    assert texts(conversation) == ["q"]
    conversation.responder = ScriptedResponder("yes")
    run(conversation.regenerate())
    assert texts(conversation) == ["q", "yes"]


def test_a_session_is_continued_by_its_id_at_any_message(store: Store) -> None:
    first = Conversation(store, ScriptedResponder("A", "B"), ChatSettings("sys"))
    talk(first, "q1", "q2")
    assert first.session is not None
    again = Conversation.open(store, ScriptedResponder("C"), f"{first.session.id}:2")
    assert again.settings.system == "sys"
    talk(again, "q3")
    assert texts(again) == ["q1", "A", "q3", "C"]
    with pytest.raises(UsageError, match="no message '99'"):
        Conversation.open(store, None, "last:99")
    with pytest.raises(UsageError, match="no message 'x'"):
        Conversation.open(store, None, "last:x")


def test_another_process_in_the_same_session_does_not_move_this_one(store: Store) -> None:
    first = Conversation(store, ScriptedResponder("A", "B"), ChatSettings())
    talk(first, "q1")
    other = Conversation.open(store, ScriptedResponder("X"), "last")
    talk(other, "elsewhere")
    talk(first, "q2")
    assert texts(first) == ["q1", "A", "q2", "B"]
    assert texts(other) == ["q1", "A", "elsewhere", "X"]


def test_queued_messages_wait_in_order(store: Store) -> None:
    conversation = Conversation(store, ScriptedResponder("A"), ChatSettings())
    conversation.enqueue("first")
    conversation.enqueue("second", [Attachment("a", "b")])
    assert [draft.text for draft in conversation.queue] == ["first", "second"]


# A full context


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


# Settings


@pytest.mark.parametrize(
    "settings",
    [
        ChatSettings(),
        ChatSettings("s", on_full="shift"),
        ChatSettings(params=GenerationParams(SamplingParams(logit_bias=((5, -float("inf")), (6, 1.5))), stop=("a",))),
        ChatSettings(params=GenerationParams(constraint=ConstraintSpec("choice", ("a", "b")), think=False)),
        ChatSettings(params=GenerationParams(constraint=ConstraintSpec("json_schema", "{}", name="x"))),
    ],
)
def test_settings_survive_the_store(store: Store, settings: ChatSettings) -> None:
    session = store.create_session(to_facts(settings))
    assert from_facts(store.session(session.id).settings) == settings


def test_settings_of_other_versions_are_read_as_far_as_known() -> None:
    assert from_facts({}) == ChatSettings()
    facts = to_facts(ChatSettings("s"))
    facts["future"] = 1
    facts["params"]["sampling"]["future"] = 2
    del facts["params"]["sampling"]["top_k"]
    assert from_facts(facts) == ChatSettings("s")
    with pytest.raises(UsageError, match="temperature"):
        from_facts({"params": {"sampling": {"temperature": -1}}})


def test_two_runs_of_the_same_role_are_one_message_to_the_model(store: Store) -> None:
    session = store.create_session({})
    first = store.add(session.id, None, "user", "a")
    second = store.add(session.id, first, "assistant", "b")
    store.add(session.id, second, "assistant", "c")
    path = store.tree(session.id).head_path
    assert messages_of(path) == (Message("user", "a"), Message("assistant", "b\n\nc"))
    assert dataclasses.is_dataclass(path[0])
