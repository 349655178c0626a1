"""What a conversation promises, on a scripted model and a real store: asking, stopping, sessions, settings."""

from __future__ import annotations

import dataclasses

import pytest

from localrun.chat.conversation import (
    AnswerBegun,
    ChatSettings,
    Conversation,
    MessageAdded,
    from_facts,
    messages_of,
    to_facts,
)
from localrun.chat.messages import Message
from localrun.errors import EngineError, TemplateError, UsageError
from localrun.params import ConstraintSpec, GenerationParams, SamplingParams
from localrun.responder import Done, TextPiece
from localrun.store import Attachment, Store
from tests.chat.talking import run, talk, texts
from tests.tui.scripted import ScriptedResponder


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
