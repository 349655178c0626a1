"""What a user does in the full-screen chat, each story from the first key to what is stored."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList, TextArea

from localrun.chat.conversation import ChatSettings
from localrun.errors import EngineError, FetchError, ModelLoadError, TemplateError
from localrun.responder import ModelIdentity, ModelInfo, Request, Responder
from localrun.store import Store
from localrun.tui.ports import ModelChoice
from localrun.tui.screens.branches import BranchScreen
from localrun.tui.screens.help import HelpScreen
from localrun.tui.screens.models import ModelScreen
from localrun.tui.screens.pick import PickScreen
from localrun.tui.screens.search import SearchScreen
from localrun.tui.screens.settings import SettingsScreen
from localrun.tui.screens.write import WriteScreen
from localrun.tui.widgets.answer_markdown import AnswerMarkdown
from localrun.tui.widgets.chips import Chips
from localrun.tui.widgets.message import AnswerView, MarkView, UserView
from localrun.tui.widgets.notice import Notice
from localrun.tui.widgets.prompt import CompletionKey
from localrun.tui.widgets.side_bar import SideBar
from tests.tui.scripted import ScriptedResponder
from tests.tui.stage import ScriptedShelf, staged

NASTY = '[/INST] [/] [bold [#fff] yield from _f(x)[0] [b + " {x} [@click=app.quit]x[/] <script>é 日本 👩‍👩‍👧‍👦'


def held(*answers: str, **options: object) -> ScriptedResponder:
    """A model that says its first word and waits."""
    model = ScriptedResponder(*answers, **options)  # type: ignore[arg-type]
    model.hold = threading.Event()
    return model


async def test_asking_shows_and_stores_the_answer(tmp_path: Path) -> None:
    async with staged(tmp_path, "The **moon** does it.") as stage:
        await stage.say("Why tides?")
        await stage.until_shown("The moon does it.")
        assert stage.texts == ["Why tides?", "The **moon** does it."]
        assert "Why tides?" in stage.shown
        assert "42.0 tokens/s" in stage.shown
        assert stage.store.sessions()[0].name == "Why tides?"


async def test_the_status_line_says_what_was_reused(tmp_path: Path) -> None:
    async with staged(tmp_path, "one two", "three", size=(160, 30)) as stage:
        await stage.say("first question")
        await stage.say("second question")
        await stage.until_shown("reused 3 of 9 tokens")
        assert "TTFT 0.21 s" in stage.shown
        assert "of 4,096" in stage.shown


async def test_several_lines_are_written_with_ctrl_j(tmp_path: Path) -> None:
    async with staged(tmp_path, "ok") as stage:
        await stage.press("one")
        await stage.pilot.press("ctrl+j")
        await stage.press("two")
        await stage.pilot.press("enter")
        await stage.until_idle()
        assert stage.texts[0] == "one\ntwo"


async def test_esc_stops_keeps_the_partial_answer_and_the_draft(tmp_path: Path) -> None:
    model = held("one two three")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("Count")
        await stage.pilot.press("enter")
        await stage.until_shown("one")
        await stage.type("my draft")
        await stage.pilot.press("escape")
        await stage.until_idle()
        assert stage.chat.prompt.text == "my draft"
        assert stage.texts == ["Count", "one "]
        assert stage.conversation.path[-1].finish == "interrupted"
        await stage.until_shown("stopped · ^g goes on")
        assert stage.app.focused is stage.chat.prompt


async def test_a_stopped_answer_goes_on_with_the_same_tokens(tmp_path: Path) -> None:
    model = held("one two", "two three")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("Count")
        await stage.pilot.press("enter")
        await stage.until_shown("one")
        await stage.pilot.press("escape")
        await stage.until_idle()
        assert model.hold is not None
        model.hold.set()
        await stage.pilot.press("ctrl+g")
        await stage.until_idle()
        assert model.requests[-1].prefill == "one "
        assert stage.texts == ["Count", "one two three"]
        await stage.until_shown("one two three")


async def test_keys_work_while_the_prompt_is_being_read(tmp_path: Path) -> None:
    model = ScriptedResponder("late")
    model.hold_prefill = threading.Event()
    async with staged(tmp_path, model=model) as stage:
        await stage.type("Long")
        await stage.pilot.press("enter")
        await stage.until_shown("reading 0 of 2 tokens")
        await stage.press("typed meanwhile")
        assert stage.chat.prompt.text == "typed meanwhile"
        await stage.pilot.press("escape")
        await stage.until_idle()
        assert stage.texts == ["Long"]


async def test_a_message_sent_meanwhile_waits_its_turn(tmp_path: Path) -> None:
    model = held("first answer", "second answer")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("one")
        await stage.pilot.press("enter")
        await stage.until_shown("first")
        await stage.type("two")
        await stage.pilot.press("enter")
        await stage.until_shown("queued: two")
        assert model.hold is not None
        model.hold.set()
        await stage.until(lambda: len(stage.texts) == 4)
        await stage.until_idle()
        assert stage.texts == ["one", "first answer", "two", "second answer"]
        assert stage.chat.query_one(Chips).words == []


async def test_after_a_stop_a_queued_message_waits_for_enter(tmp_path: Path) -> None:
    model = held("first answer", "second")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("one")
        await stage.pilot.press("enter")
        await stage.until_shown("first")
        await stage.type("two")
        await stage.pilot.press("enter", "escape")
        await stage.until_idle()
        assert len(stage.conversation.queue) == 1
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.texts) == 4)
        await stage.until_idle()
        assert stage.texts[2:] == ["two", "second"]


async def test_regenerating_makes_a_version_to_go_back_from(tmp_path: Path) -> None:
    async with staged(tmp_path, "first version", "second version") as stage:
        await stage.say("q")
        await stage.pilot.press("ctrl+r")
        await stage.until_idle()
        await stage.until_shown("‹ 2/2 ›")
        assert "second version" in stage.shown
        assert "first version" not in stage.shown
        await stage.pilot.press("alt+left")
        await stage.until_shown("‹ 1/2 ›")
        assert stage.texts == ["q", "first version"]


async def test_editing_a_message_makes_a_branch(tmp_path: Path) -> None:
    async with staged(tmp_path, "A", "B") as stage:
        await stage.say("quest")
        await stage.pilot.press("f4")
        await stage.until_shown("editing message 1")
        await stage.say("ion")
        assert stage.texts == ["question", "B"]
        await stage.until_shown("‹ 2/2 ›")
        await stage.pilot.press("ctrl+up", "up", "left")
        await stage.until(lambda: stage.texts == ["quest", "A"])


async def test_an_edit_is_given_up_with_esc_and_the_text_stays(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("q")
        await stage.pilot.press("f4", "escape")
        assert stage.chat.editing_id is None
        assert stage.chat.prompt.text == "q"


async def test_the_tree_shows_every_branch_and_goes_there(tmp_path: Path) -> None:
    async with staged(tmp_path, "A", "B") as stage:
        await stage.say("q")
        await stage.pilot.press("ctrl+r")
        await stage.until_idle()
        await stage.pilot.press("ctrl+t")
        await stage.until(lambda: isinstance(stage.app.screen, BranchScreen))
        await stage.until_shown("2 answer  A")
        await stage.pilot.press("up", "enter")
        await stage.until(lambda: stage.texts == ["q", "A"])


async def test_model_text_is_never_markup(tmp_path: Path) -> None:
    async with staged(tmp_path, NASTY, settings=ChatSettings(NASTY), size=(140, 40)) as stage:
        await stage.say("x")
        stage.chat.prompt.text = NASTY
        await stage.pilot.press("enter")
        await stage.until_idle()
        assert stage.texts == ["x", NASTY, NASTY, NASTY]
        assert stage.shown.count("[/INST] [/] [bold [#fff] yield from _f(x)[0] [b +") == 3
        assert stage.shown.count("[@click=app.quit]x[/] <script>") == 3
        stage.app.show_error(EngineError(NASTY, hint=NASTY))
        stage.app.warn(NASTY)
        await stage.pilot.press("ctrl+t")
        await stage.pilot.pause()
        await stage.pilot.press("escape", "f2")
        await stage.until(lambda: isinstance(stage.app.screen, SettingsScreen))


async def test_escape_sequences_of_a_model_never_reach_the_terminal(tmp_path: Path) -> None:
    async with staged(tmp_path, "a\x1b[2Jb `\x1b]0;t\x07` \x9b1m") as stage:
        await stage.say("x")
        await stage.until_shown("a␛[2Jb")
        assert "\x1b" not in stage.shown
        assert "\x07" not in stage.shown
        assert "\x9b" not in stage.shown


async def test_html_and_line_breaks_of_a_model_are_shown_as_written(tmp_path: Path) -> None:
    async with staged(tmp_path, "roses <i>are</i> red\nviolets are blue\n\n<div>block</div>") as stage:
        await stage.say("x")
        await stage.until_shown("roses <i>are</i> red\n")
        await stage.until_shown("<div>block</div>")


async def test_an_engine_elsewhere_that_does_not_say_its_context_works(tmp_path: Path) -> None:
    class Elsewhere(ScriptedResponder):
        @property
        def info(self) -> ModelInfo:
            return ModelInfo(ModelIdentity("remote"), 0, can_chat=True, can_think=False)

        def count_tokens(self, request: Request) -> int:
            raise AssertionError("counting costs a request")

    model = Elsewhere("A", context_limit=10**6)
    async with staged(tmp_path, model=model) as stage:
        await stage.say("q")
        await stage.say("q2")
        assert stage.texts == ["q", "A", "q2", "A"]


async def test_reasoning_is_folded_and_opens(tmp_path: Path) -> None:
    model = ScriptedResponder("Answer.", reasoning="first thought second thought")
    async with staged(tmp_path, model=model) as stage:
        await stage.say("q")
        await stage.until_shown("Thought for")
        assert "4 tokens" in stage.shown
        assert "first thought" not in stage.shown
        await stage.pilot.press("ctrl+up", "space")
        await stage.until_shown("first thought second thought")
        assert stage.conversation.path[-1].reasoning == "first thought second thought"


async def test_an_engine_that_crashes_is_a_message_with_a_hint_and_the_next_try_works(tmp_path: Path) -> None:
    model = ScriptedResponder(EngineError("decode returned -3", hint="load it again"), "fine")
    async with staged(tmp_path, model=model) as stage:
        await stage.say("q")
        await stage.until_shown("decode returned -3")
        assert "load it again" in stage.shown
        assert stage.texts == ["q"]
        await stage.pilot.press("ctrl+r")
        await stage.until_idle()
        assert stage.texts == ["q", "fine"]
        assert not stage.chat.query(Notice)


async def test_a_bug_in_the_engine_is_shown_and_the_application_lives(tmp_path: Path) -> None:
    class Broken(ScriptedResponder):
        def respond(self, request):  # type: ignore[no-untyped-def]
            raise ZeroDivisionError("oops [/b]")

    async with staged(tmp_path, model=Broken()) as stage:
        await stage.say("q")
        await stage.until_shown("ZeroDivisionError: oops [/b]")


async def test_a_chat_that_another_process_deletes_is_told_and_a_new_one_works(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("q")
        other = Store.open(tmp_path / "sessions.db")
        other.delete(stage.store.sessions()[0].id)
        other.close()
        await stage.type("again")
        await stage.pilot.press("enter")
        await stage.until_shown("is gone")
        await stage.until_idle()
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: stage.app.session_id is None)
        await stage.say("new")
        assert stage.texts == ["new", "A"]


async def test_a_template_that_refuses_leaves_the_session_intact(tmp_path: Path) -> None:
    async with staged(tmp_path, TemplateError("System role not supported")) as stage:
        await stage.say("q")
        await stage.until_shown("System role not supported")
        assert stage.texts == ["q"]


@pytest.mark.parametrize(("keys", "kind"), [((), "summary"), (("down",), "shift")])
async def test_a_full_context_is_a_choice_with_a_visible_mark(tmp_path: Path, keys: tuple[str, ...], kind: str) -> None:
    model = ScriptedResponder("word " * 10, context_limit=120)
    async with staged(tmp_path, model=model) as stage:
        for turn in range(2):
            stage.chat.prompt.text = f"q{turn} " + "word " * 24
            await stage.pilot.press("enter")
            await stage.until_idle()
        stage.chat.prompt.text = "last " + "word " * 30
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, PickScreen), "the choice is offered")
        await stage.until_shown("are kept for")
        assert len(model.requests) == 2
        model.answers = ["short"]
        await stage.pilot.press(*keys, "enter")
        await stage.until(lambda: len(stage.conversation.path) == 7)
        await stage.until_idle()
        assert [node.kind for node in stage.conversation.path][-3:] == ["user", kind, "assistant"]
        (mark,) = stage.chat.query(MarkView)
        await stage.until_shown("Summary: 1 words" if kind == "summary" else "earlier messages are left out")
        if kind == "summary":
            mark.focus()
            await stage.pilot.press("space")
            await stage.until(lambda: mark.has_class("-open"))


async def test_a_full_context_can_be_left_by_a_branch_and_back(tmp_path: Path) -> None:
    model = ScriptedResponder("word " * 10, context_limit=120)
    async with staged(tmp_path, model=model) as stage:
        for turn in range(2):
            stage.chat.prompt.text = f"q{turn} " + "word " * 24
            await stage.pilot.press("enter")
            await stage.until_idle()
        stage.chat.prompt.text = "last " + "word " * 30
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, PickScreen))
        await stage.pilot.press("down", "down", "enter")
        await stage.until(lambda: len(stage.conversation.path) == 2)
        await stage.until_idle()
        await stage.until_shown("‹ 2/2 ›")
        await stage.pilot.press("alt+left")
        await stage.until(lambda: len(stage.conversation.path) == 5)


async def test_ctrl_c_stops_then_twice_leaves_and_nothing_is_lost(tmp_path: Path) -> None:
    model = held("one two three")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("Count")
        await stage.pilot.press("enter")
        await stage.until_shown("one")
        await stage.pilot.press("ctrl+c")
        await stage.until_idle()
        assert stage.app.is_running
        assert stage.texts == ["Count", "one "]
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.app.is_running or stage.app._exit, "it left")
    store = Store.open(tmp_path / "sessions.db")
    assert [node.text for node in store.tree(store.resolve("last").id).head_path] == ["Count", "one "]
    store.close()


async def test_leaving_in_the_middle_of_an_answer_keeps_it(tmp_path: Path) -> None:
    model = held("one two three")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("Count")
        await stage.pilot.press("enter")
        await stage.until_shown("one")
        await stage.pilot.press("ctrl+q")
        await stage.until(lambda: stage.app._exit)
    store = Store.open(tmp_path / "sessions.db")
    assert [(node.text, node.finish) for node in store.tree(store.resolve("last").id).head_path] == [
        ("Count", "given"),
        ("one ", "interrupted"),
    ]
    store.close()


@pytest.mark.parametrize("leaves_by", ["command", "key"])
async def test_what_comes_after_the_user_has_left_is_dropped_and_saved(tmp_path: Path, leaves_by: str) -> None:
    model = ScriptedResponder("first words")
    model.hold_prefill = threading.Event()
    async with staged(tmp_path, model=model, size=(80, 24)) as stage:
        await stage.type("Count")
        await stage.pilot.press("enter")
        await stage.until_shown("reading 0 of 2 tokens")
        chat = stage.chat
        chat._drain_timer.pause()
        model.hold_prefill.set()
        await stage.until(lambda: len(chat.bridge._updates) > 1, "the answer is waiting to be shown")
        if leaves_by == "command":
            await stage.type("/quit ")
            await stage.pilot.press("enter")
        else:
            await stage.pilot.press("ctrl+q")
        await stage.until(lambda: stage.app._exit)
        await chat._drain()
        await chat.run_view.show_notice(Notice(EngineError("too late")))
    store = Store.open(tmp_path / "sessions.db")
    assert [node.text for node in store.tree(store.resolve("last").id).head_path] == ["Count", "first words"]
    store.close()


async def test_the_list_of_models_may_come_after_the_picker_has_gone(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.pilot.press("ctrl+o")
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        picker = stage.app.screen
        assert isinstance(picker, ModelScreen)
        await stage.pilot.press("escape")
        await stage.until(lambda: not picker.is_attached)
        picker._show(())
        picker._show_problem(FetchError("too late"))
        picker._fetched("qwen3:8b", threading.Event())


async def test_typing_is_possible_while_the_model_loads_and_the_message_is_sent_when_it_is_there(
    tmp_path: Path,
) -> None:
    gate = threading.Event()

    def open_model(name: str) -> Responder:
        gate.wait()
        return ScriptedResponder("loaded")

    async with staged(tmp_path, open_model=open_model) as stage:
        await stage.until_shown("loading smollm2:135m")
        await stage.type("early")
        await stage.pilot.press("enter")
        await stage.until_shown("queued: early")
        gate.set()
        await stage.until(lambda: stage.texts == ["early", "loaded"])


async def test_a_model_that_cannot_be_loaded_is_a_message_and_another_can_be_chosen(tmp_path: Path) -> None:
    def open_model(name: str) -> Responder:
        if name == "smollm2:135m":
            raise ModelLoadError("the file is damaged", hint="fetch it again")
        return ScriptedResponder("hello", name=name)

    shelf = ScriptedShelf()
    async with staged(tmp_path, open_model=open_model, shelf=shelf) as stage:
        await stage.until_shown("the file is damaged")
        await stage.type("/model other")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.conversation.responder is not None)
        await stage.until_shown("other")


async def test_the_first_run_offers_models_downloads_one_and_starts(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        await stage.until_shown("too big")
        assert "98.0 MB" in stage.shown
        await stage.pilot.press("enter")
        await stage.until_shown("24.5 MB of 98.0 MB")
        shelf.proceed.set()
        await stage.until(lambda: stage.conversation.responder is not None)
        assert shelf.fetched == ["smollm2:135m"]
        await stage.say("hi")
        assert stage.texts == ["hi", "hello"]


async def test_a_download_can_be_cancelled_and_another_one_chosen(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until_shown("too big")
        await stage.pilot.press("enter")
        await stage.until_shown("Esc cancels")
        await stage.pilot.press("escape")
        await stage.until(lambda: shelf.cancelled == ["smollm2:135m"])
        assert isinstance(stage.app.screen, ModelScreen)
        await stage.pilot.press("down", "enter")
        await stage.until_shown("Downloading qwen3:8b")
        shelf.proceed.set()
        await stage.until(lambda: stage.conversation.responder is not None)
        assert shelf.fetched == ["qwen3:8b"]


async def test_a_failed_download_says_why_and_the_picker_stays(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    shelf.failure = FetchError("the server sent a web page", hint="try again later")
    shelf.proceed.set()
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until_shown("too big")
        await stage.pilot.press("enter")
        await stage.until_shown("the server sent a web page")
        assert isinstance(stage.app.screen, ModelScreen)


async def test_why_a_model_cannot_be_fetched_is_seen_on_a_small_screen(tmp_path: Path) -> None:
    shelf = ScriptedShelf()
    shelf.items += [ModelChoice(f"other:{number}b", 10**9, False, "fits", "Q4_K_M") for number in range(30)]
    shelf.failure = FetchError("qwen3:8b could not be fetched: no route to the host", hint="try again when online")
    shelf.proceed.set()
    async with staged(tmp_path, "hello", shelf=shelf, size=(80, 24)) as stage:
        await stage.pilot.press("ctrl+o")
        await stage.until_shown("qwen3:8b")
        await stage.pilot.press("down", "enter")
        await stage.until_shown("could not be fetched")
        await stage.until_shown("try again when online")


async def test_a_message_without_any_model_is_kept_until_one_is_chosen(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    async with staged(tmp_path, "hello", shelf=shelf) as stage:
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        await stage.pilot.press("escape")
        await stage.type("kept")
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, ModelScreen))
        assert [draft.text for draft in stage.conversation.queue] == ["kept"]
        shelf.proceed.set()
        await stage.until_shown("too big")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.texts == ["kept", "hello"])


async def test_another_model_takes_over_in_the_middle(tmp_path: Path) -> None:
    def open_model(name: str) -> Responder:
        return ScriptedResponder(f"I am {name}.", name=name)

    async with staged(tmp_path, open_model=open_model) as stage:
        await stage.until(lambda: stage.conversation.responder is not None)
        first = stage.conversation.responder
        await stage.say("who?")
        await stage.type("/model big")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.conversation.responder is not first)
        await stage.say("who?")
        assert stage.texts[1::2] == ["I am smollm2:135m.", "I am big."]
        assert first.closed  # type: ignore[union-attr]


async def test_search_opens_the_chat_at_the_message(tmp_path: Path) -> None:
    async with staged(tmp_path, "the needle lies here", "something else") as stage:
        await stage.say("where is it")
        await stage.pilot.press("ctrl+n")
        await stage.say("other chat")
        await stage.pilot.press("ctrl+f")
        await stage.until(lambda: isinstance(stage.app.screen, SearchScreen))
        await stage.type("needle")
        await stage.until_shown("the needle lies here · assistant")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.texts == ["where is it", "the needle lies here"])
        await stage.until(lambda: isinstance(stage.chat.focused, AnswerView))


async def test_a_search_shows_the_name_of_a_chat_once(tmp_path: Path) -> None:
    async with staged(tmp_path, "the needle lies here") as stage:
        await stage.say("find the needle")
        await stage.say("another needle")
        await stage.pilot.press("ctrl+f")
        await stage.until(lambda: isinstance(stage.app.screen, SearchScreen))
        await stage.type("needle")
        await stage.until_shown("another needle · user")
        options = stage.app.screen.query_one(OptionList)
        words = [str(option.prompt) for option in options.options]
        assert len(words) == 4
        assert sum(text.startswith("Find the needle\n") for text in words) == 1
        assert not any(text.endswith("· name") for text in words)


async def test_chats_are_opened_pinned_renamed_trashed_and_brought_back(tmp_path: Path) -> None:
    async with staged(tmp_path, "A", size=(120, 30)) as stage:
        await stage.say("first chat")
        await stage.pilot.press("ctrl+n")
        await stage.say("second chat")
        await stage.pilot.press("ctrl+l")
        sessions = stage.chat.query_one(SideBar).list
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: stage.texts == ["first chat", "A"])
        await stage.pilot.press("ctrl+l", "p")
        await stage.until_shown("Pinned")
        await stage.pilot.press("r")
        await stage.until(lambda: isinstance(stage.app.screen, WriteScreen))
        stage.app.screen.query_one(Input).value = "Renamed [b]"
        await stage.pilot.press("enter")
        await stage.until_shown("Renamed [b]")
        await stage.pilot.press("d")
        await stage.until(lambda: len(stage.store.sessions()) == 1)
        assert stage.texts == []
        await stage.pilot.press("u")
        await stage.until(lambda: len(stage.store.sessions()) == 2)
        assert isinstance(sessions, OptionList)


async def test_a_chat_is_resumed_where_it_was_left(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("remember me")
        session = stage.app.session_id
    async with staged(tmp_path, "B", session=session) as stage:
        await stage.until_shown("remember me")
        await stage.say("go on")
        assert stage.texts == ["remember me", "A", "go on", "B"]


async def test_a_draft_survives_another_chat(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("one")
        await stage.type("draft")
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: stage.texts == [])
        assert stage.chat.prompt.text == "draft"


async def test_settings_are_checked_beside_the_form_and_then_used(tmp_path: Path) -> None:
    model = ScriptedResponder("A")
    async with staged(tmp_path, model=model) as stage:
        await stage.pilot.press("f2")
        await stage.until(lambda: isinstance(stage.app.screen, SettingsScreen))
        screen = stage.app.screen
        screen.query_one("#temperature", Input).value = "-3"
        await stage.pilot.press("ctrl+s")
        await stage.until_shown("temperature is -3.0, outside")
        screen.query_one("#temperature", Input).value = "warm"
        await stage.pilot.press("ctrl+s")
        await stage.until_shown("'warm', which is not a number")
        screen.query_one("#temperature", Input).value = "0.1"
        screen.query_one("#system", TextArea).text = "Be brief."
        screen.query_one("#seed", Input).value = "7"
        await stage.pilot.press("ctrl+s")
        await stage.until_shown("T 0.1")
        await stage.say("q")
        request = model.requests[-1]
        assert request.params.sampling.temperature == 0.1
        assert request.params.sampling.seed == 7
        assert request.messages[0].content == "Be brief."


async def test_a_long_paste_becomes_an_attachment(tmp_path: Path) -> None:
    from textual.events import Paste

    model = ScriptedResponder("A")
    async with staged(tmp_path, model=model) as stage:
        text = "\n".join(f"line {number}" for number in range(200))
        stage.app.post_message(Paste(text))
        await stage.until_shown("+ pasted-1.txt")
        assert stage.chat.prompt.text == ""
        await stage.say("summarize")
        assert model.requests[-1].messages[0].content == f"pasted-1.txt:\n```\n{text}\n```\n\nsummarize"
        await stage.until_shown("+ pasted-1.txt")
        stage.app.post_message(Paste("short \x1b[31m"))
        await stage.until(lambda: stage.chat.prompt.text == "short ␛[31m")


async def test_a_file_is_completed_and_attached(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "Notes [b].md").write_text("the notes")
    model = ScriptedResponder("A")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("read @do")
        await stage.until_shown("docs/")
        await stage.pilot.press("tab")
        await stage.until_shown("Notes [b].md")
        await stage.pilot.press("enter")
        await stage.until_shown("+ Notes [b].md")
        assert stage.chat.prompt.text == "read "
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.texts) == 2)
        assert "the notes" in model.requests[-1].messages[0].content


async def test_what_only_looks_like_a_file_is_text(tmp_path: Path) -> None:
    model = ScriptedResponder("A")
    text = "mail a@b.c, @~nobody-here @/ @\0 @" + "x" * 5000
    async with staged(tmp_path, model=model) as stage:
        stage.chat.prompt.text = text
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.texts) == 2)
        assert model.requests[-1].messages[0].content == text


async def test_a_file_that_is_named_by_hand_goes_along(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the text")
    model = ScriptedResponder("A")
    async with staged(tmp_path, model=model) as stage:
        stage.chat.prompt.text = "what is in @a.txt?"
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.texts) == 2)
        assert "the text" in model.requests[-1].messages[0].content


async def test_a_file_that_cannot_be_read_is_told_and_the_message_stays(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\xfd")
    async with staged(tmp_path, "A") as stage:
        stage.chat.prompt.text = "read @a.bin"
        await stage.pilot.press("enter")
        await stage.until_shown("is no text")
        assert stage.chat.prompt.text == "read @a.bin"
        assert stage.texts == []


async def test_a_chip_is_removed_by_backspace(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    async with staged(tmp_path, "A") as stage:
        await stage.type("/file a.txt")
        await stage.pilot.press("enter")
        await stage.until_shown("+ a.txt")
        await stage.pilot.press("backspace")
        await stage.until(lambda: stage.chat.query_one(Chips).words == [])


async def test_commands_are_completed_and_a_wrong_one_says_what_was_meant(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.type("/he")
        await stage.until_shown("Keys and commands")
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))
        await stage.pilot.press("escape")
        await stage.type("/regenrate")
        await stage.pilot.press("enter")
        await stage.until_shown("did you mean /regenerate?")
        assert stage.chat.prompt.text == "/regenrate"


async def test_what_begins_with_a_slash_reaches_the_model_only_with_two(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.type("/nope")
        await stage.pilot.press("enter")
        await stage.until_shown("there is no command /nope")
        await stage.type("/export")
        await stage.pilot.press("enter")
        await stage.until_shown("there is no command /nope/export")
        assert stage.chat.prompt.text == "/nope/export"
        assert stage.texts == []
        stage.chat.prompt.text = ""
        await stage.say("//etc/hosts")
        assert stage.texts == ["/etc/hosts", "A"]
        assert stage.chat.prompt.sent == ["//etc/hosts"]
        await stage.pilot.press("f4")
        assert stage.chat.prompt.text == "//etc/hosts"
        stage.chat.prompt.text = "/nope"
        await stage.pilot.press("enter")
        await stage.until_shown("there is no command /nope")
        assert stage.chat.editing_id is not None
        stage.chat.prompt.text = "//etc/group"
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.texts == ["/etc/group", "A"])


async def test_a_completion_overwrites_nothing_that_was_typed_since_it_was_offered(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        prompt = stage.chat.prompt
        await stage.type("/n")
        await stage.until_shown("Start a new chat")
        prompt.insert("ope")  # no pause: the list still stands for "/n"
        prompt.action_submit()
        await stage.until_shown("there is no command /nope")
        assert prompt.text == "/nope"
        prompt.text = ""
        await stage.type("/n")
        await stage.until_shown("Start a new chat")
        prompt.insert("ope")
        prompt.post_message(CompletionKey("take"))
        await stage.pilot.pause()
        assert prompt.text == "/nope"


async def test_every_command_has_something_to_do(tmp_path: Path) -> None:
    from localrun.chat.conversation.commands import COMMANDS
    from localrun.tui.commands import CommandRunner

    assert all(hasattr(CommandRunner, f"_do_{command.name}") for command in COMMANDS)


async def test_export_and_import_go_through_files(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("q")
        await stage.type("/export out.json")
        await stage.pilot.press("enter")
        await stage.until(lambda: (tmp_path / "out.json").exists())
        await stage.type("/export out.json")
        await stage.pilot.press("enter")
        await stage.until_shown("out.json exists")
        stage.chat.prompt.text = "/import out.json"
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.store.sessions()) == 2)
        assert stage.texts == ["q", "A"]


async def test_a_grammar_is_chosen_shown_and_sent(tmp_path: Path) -> None:
    (tmp_path / "answer.gbnf").write_text('root ::= "yes" | "no"')
    model = ScriptedResponder("yes")
    async with staged(tmp_path, model=model, size=(120, 30)) as stage:
        await stage.type("/grammar answer.gbnf")
        await stage.pilot.press("enter")
        await stage.until_shown("grammar answer")
        await stage.say("well?")
        assert model.requests[-1].params.constraint is not None
        await stage.type("/grammar off")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.conversation.settings.params.constraint is None)


async def test_up_brings_back_what_was_sent_and_down_the_draft(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("one")
        await stage.say("two")
        await stage.type("draft")
        await stage.pilot.press("up", "up")
        assert stage.chat.prompt.text == "one"
        await stage.pilot.press("down", "down")
        assert stage.chat.prompt.text == "draft"


async def test_code_is_copied_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    async with staged(tmp_path, "```python\na = [1]\n```\n\ntext\n\n```\nb\n```") as stage:
        monkeypatch.setattr(stage.app, "copy_to_clipboard", copied.append)
        await stage.say("code")
        await stage.pilot.press("ctrl+up", "y", "y", "c")
        await stage.until(lambda: len(copied) == 3)
        assert copied[:2] == ["a = [1]", "b"]
        assert copied[2].startswith("```python")


async def test_a_reply_of_a_hundred_thousand_characters_is_shown_in_parts(tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {number} " + "word " * 30 for number in range(600))
    async with staged(tmp_path, model=ScriptedResponder("short", context_limit=100_000)) as stage:
        session = stage.store.create_session({})
        question = stage.store.add(session.id, None, "user", "long?")
        stage.store.add(session.id, question, "assistant", text)
        from localrun.tui.widgets.side_bar import SessionChosen

        await stage.app.open_session(SessionChosen(session.id))
        await stage.until_shown("Paragraph 599")
        parts = list(stage.chat.query(AnswerMarkdown))
        assert "".join(part.text for part in parts).replace("\n", "") == text.replace("\n", "")
        assert sum(not part.is_asleep for part in parts) < len(parts) / 2
        await stage.say("go on")
        assert stage.texts[-1] == "short"


async def test_a_growing_answer_is_cut_into_parts_without_losing_a_character(tmp_path: Path) -> None:
    text = "".join(f"Paragraph {number} " + "word " * 20 + "\n\n```py\nx = 1\n\ny = 2\n```\n\n" for number in range(60))
    async with staged(tmp_path, text) as stage:
        await stage.say("long")
        (view,) = stage.chat.query(AnswerView)
        assert len(view.parts) > 2
        assert "".join(part.text for part in view.parts) == text
        assert view.text == text


async def test_old_messages_of_a_long_chat_come_when_asked_for(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        session = stage.store.create_session({})
        parent: int | None = None
        for turn in range(50):
            parent = stage.store.add(session.id, parent, "user", f"question {turn}")
            parent = stage.store.add(session.id, parent, "assistant", f"answer {turn}")
        from localrun.tui.widgets.side_bar import SessionChosen

        await stage.app.open_session(SessionChosen(session.id))
        await stage.until_shown("answer 49")
        assert len(stage.chat.query(UserView)) == 15
        stage.chat.transcript.scroll_home(animate=False)
        await stage.until(lambda: len(stage.chat.query(UserView)) == 30)


async def test_the_screen_survives_being_resized_while_an_answer_streams(tmp_path: Path) -> None:
    model = held("# Title\n\n| a | b |\n|--|--|\n| 日本 | 👩‍👩‍👧‍👦 |\n\n" + "word " * 100)
    async with staged(tmp_path, model=model) as stage:
        await stage.type("go")
        await stage.pilot.press("enter")
        assert model.hold is not None
        for size in ((80, 24), (200, 60), (30, 8), (100, 30)):
            await stage.pilot.resize_terminal(*size)
            await stage.pilot.pause()
        model.hold.set()
        await stage.until_idle()
        assert stage.texts[-1].startswith("# Title")


async def test_the_list_of_chats_comes_and_goes(tmp_path: Path) -> None:
    async with staged(tmp_path, "A", size=(80, 24)) as stage:
        side = stage.chat.query_one(SideBar)
        assert not side.display
        await stage.pilot.press("ctrl+b")
        assert side.display
        await stage.pilot.press("ctrl+b")
        assert not side.display
        await stage.pilot.resize_terminal(120, 30)
        await stage.pilot.pause()
        await stage.pilot.press("ctrl+b")
        assert side.display


async def test_help_names_what_has_the_focus(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("q")
        await stage.pilot.press("ctrl+up", "f1")
        await stage.until_shown("makes another one")


async def test_the_theme_is_changed_by_a_command(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.type("/theme light")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.app.theme == "localrun-light")
        await stage.type("/theme dracula")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.app.theme == "dracula")
        await stage.say("q")
        stage.chat.prompt.text = "/theme nope"
        await stage.pilot.press("enter")
        await stage.until_shown("there is no theme 'nope'")


async def test_the_palette_finds_commands(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.pilot.press("ctrl+p")
        await stage.pilot.pause()
        await stage.type("settings")
        await stage.until_shown("All settings of this chat")
