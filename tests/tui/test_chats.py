"""Many chats: search, the list at the side, settings, and what the screen shows around them."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, OptionList, TextArea

from localrun.tui.screens.search import SearchScreen
from localrun.tui.screens.settings import SettingsScreen
from localrun.tui.screens.write import WriteScreen
from localrun.tui.widgets.message import AnswerView
from localrun.tui.widgets.side_bar import SideBar
from tests.tui.scripted import ScriptedResponder
from tests.tui.stage import staged


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


@pytest.mark.parametrize("width", [40, 46, 60, 71, 80])
async def test_every_setting_can_be_read_and_written_on_a_screen_of_any_width(width: int, tmp_path: Path) -> None:
    async with staged(tmp_path, "A", size=(width, 20)) as stage:
        await stage.pilot.press("f2")
        await stage.until(lambda: isinstance(stage.app.screen, SettingsScreen))
        await stage.press("123")
        await stage.until_shown("0.8123")
        for shown in ("0.95", "random", "no limit", "ask me", "automatic"):
            assert shown in stage.shown, stage.shown
        assert all(field.content_size.width >= 8 for field in stage.app.screen.query(Input))


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
