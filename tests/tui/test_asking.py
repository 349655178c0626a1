"""Asking, stopping, going on, versions and branches."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localrun.tui.drafts import Drafts
from localrun.tui.screens.branches import BranchScreen
from localrun.tui.widgets.chips import Chips
from tests.tui.scripted import ScriptedResponder, held
from tests.tui.stage import Stage, staged


async def while_one_is_answered_type_two(stage: Stage) -> None:
    """Ask "one", and type "two" when its answer has begun."""
    await stage.type("one")
    await stage.pilot.press("enter")
    await stage.until_shown("first")
    await stage.type("two")


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
        await while_one_is_answered_type_two(stage)
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
        await while_one_is_answered_type_two(stage)
        await stage.pilot.press("enter", "escape")
        await stage.until_idle()
        assert len(stage.conversation.queue) == 1
        await stage.until_shown("Enter sends queued: two")
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.texts) == 4)
        await stage.until_idle()
        assert stage.texts[2:] == ["two", "second"]


async def test_after_a_stop_messages_are_asked_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    model = held("first answer", "second", "third")
    async with staged(tmp_path, model=model) as stage:
        await while_one_is_answered_type_two(stage)
        await stage.pilot.press("enter", "ctrl+c")
        await stage.until_idle()
        assert model.hold is not None
        model.hold.set()
        await stage.type("three")
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.texts) == 6)
        await stage.until_idle()
        assert stage.texts[2:] == ["two", "second", "three", "third"]


async def test_what_was_not_sent_stands_in_the_prompt_again(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path / "drafts.json")
    model = held("first answer")
    async with staged(tmp_path, model=model) as stage:
        await while_one_is_answered_type_two(stage)
        await stage.pilot.press("enter")
        await stage.type("half of a thr")
        await stage.pilot.press("ctrl+c", "ctrl+c")
        await stage.until(lambda: bool(stage.app._exit), "it is over")
        session = stage.app.session_id
        assert drafts.keep(session, stage.app.unsent)
    assert drafts.take("another chat") == ""
    async with staged(tmp_path, "A", session=session, draft=drafts.take(session)) as stage:
        assert stage.chat.prompt.text == "two\n\nhalf of a thr"
    assert drafts.take(session) == ""


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"a": 1}'])
def test_a_file_of_drafts_that_is_none_is_begun_anew(content: str, tmp_path: Path) -> None:
    path = tmp_path / "drafts.json"
    path.write_text(content)
    assert Drafts(path).take("a") == ""
    assert Drafts(path).keep("a", "text")
    assert Drafts(path).take("a") == "text"
    assert not Drafts(tmp_path / "no folder" / "drafts.json").keep("a", "text")


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


async def test_an_edit_is_given_up_with_esc_and_what_was_written_stays(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("q")
        await stage.pilot.press("f4", "u", "escape")
        assert stage.chat.editing_id is None
        assert stage.chat.prompt.text == "qu"


async def test_an_old_message_that_nobody_changed_gives_way_to_the_draft_before_it(tmp_path: Path) -> None:
    async with staged(tmp_path, "A") as stage:
        await stage.say("q")
        await stage.pilot.press("n", "e", "w", "f4")
        assert stage.chat.prompt.text == "q"
        await stage.pilot.press("escape")
        assert stage.chat.prompt.text == "new"


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
