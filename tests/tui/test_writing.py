"""Writing a message: pastes, files, commands, what was sent before."""

from __future__ import annotations

from pathlib import Path

from localrun.tui.screens.help import HelpScreen
from localrun.tui.widgets.chips import Chips
from localrun.tui.widgets.prompt import CompletionKey
from tests.tui.scripted import ScriptedResponder
from tests.tui.stage import staged


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
