"""Errors, a full context, and leaving: nothing is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localrun.errors import EngineError, TemplateError
from localrun.store import Store
from localrun.tui.screens.help import HelpScreen
from localrun.tui.screens.pick import PickScreen
from localrun.tui.widgets.message import MarkView
from localrun.tui.widgets.notice import Notice
from tests.tui.scripted import ScriptedResponder, held
from tests.tui.stage import staged


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


@pytest.mark.parametrize("opening", ["f1", "f2", "ctrl+f", "ctrl+o", "ctrl+p", "ctrl+t"])
async def test_ctrl_c_leaves_every_dialog_and_nothing_else(opening: str, tmp_path: Path) -> None:
    async with staged(tmp_path, "ok") as stage:
        await stage.say("one")
        await stage.type("my draft")
        await stage.pilot.press(opening)
        await stage.until(lambda: stage.app.screen.is_modal)
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: stage.app.screen is stage.chat)
        assert stage.app.is_running
        assert stage.chat.prompt.text == "my draft"


async def test_ctrl_c_in_a_dialog_still_copies_what_is_selected(tmp_path: Path) -> None:
    async with staged(tmp_path, "ok") as stage:
        await stage.pilot.press("ctrl+f")
        await stage.until(lambda: stage.app.screen.is_modal)
        await stage.pilot.press("t", "i", "d", "e", "ctrl+a", "shift+end")
        await stage.pilot.press("shift+home", "ctrl+c")
        await stage.until(lambda: stage.app.clipboard == "tide")
        assert stage.app.screen.is_modal


async def test_f1_in_a_dialog_tells_of_the_dialog(tmp_path: Path) -> None:
    async with staged(tmp_path, "ok", size=(100, 40)) as stage:
        await stage.pilot.press("ctrl+f", "f1")
        await stage.until_shown("All words must occur")
        await stage.pilot.press("f1")
        await stage.until(lambda: not isinstance(stage.app.screen, HelpScreen))
        assert stage.app.screen.is_modal


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
