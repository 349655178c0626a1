"""What an answer looks like, whatever the model writes and however long it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Static

from localrun.chat.conversation import ChatSettings
from localrun.errors import EngineError
from localrun.tui.screens.settings import SettingsScreen
from localrun.tui.widgets.answer_markdown import AnswerMarkdown
from localrun.tui.widgets.code_block import CodeBlock
from localrun.tui.widgets.in_place import Item
from localrun.tui.widgets.message import AnswerView, UserView
from tests.tui.scripted import ScriptedResponder, held
from tests.tui.stage import Stage, staged

NASTY = '[/INST] [/] [bold [#fff] yield from _f(x)[0] [b + " {x} [@click=app.quit]x[/] <script>é 日本 👩‍👩‍👧‍👦'


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


GROWING = """A paragraph that is long enough to go around the edge of the screen, and then around it once more.

- one **bold** item that is long enough to go around the edge of the screen, and then around it once more, at least
- two
  - nested `code`
  - nested two

    with a paragraph
- three

9. nine
10. ten
    ```python
    x = 1
    ```
11. eleven

```python
def code() -> int:
    return 1
```

end
"""


async def test_an_answer_that_has_grown_looks_as_if_it_had_come_whole(tmp_path: Path) -> None:
    async with staged(tmp_path, GROWING, size=(70, 60)) as stage:
        await stage.say("?")
        grown = answer_lines(stage)
        await stage.chat.run_view.show_path()
        await stage.until_shown("end")
        assert answer_lines(stage) == grown
        assert len(grown) > 20


@pytest.mark.parametrize("step", [1, 7])
async def test_a_list_looks_the_same_at_every_moment_as_if_it_had_come_whole(tmp_path: Path, step: int) -> None:
    text = "- one **bold** item\n- two\n  - nested\n- three\n"
    async with staged(tmp_path, "short", size=(70, 40)) as stage:
        await stage.say("?")
        (view,) = stage.chat.query(AnswerView)
        growing, whole = AnswerMarkdown(), AnswerMarkdown()
        await view.mount_all([growing, whole])
        for begin in range(0, len(text), step):
            await growing.grow(text[begin : begin + step])
            await whole.update(text[: begin + step])
            await stage.pilot.pause()
            assert [item.text.plain for item in growing.query(Item)] == [item.text.plain for item in whole.query(Item)]
            assert growing.size == whole.size
        assert len(growing.query(Item)) >= 3


def answer_lines(stage: Stage) -> list[str]:
    return [line.rstrip(" ▁▂▃▄▅▆▇█") for line in stage.shown.split("╭")[0].splitlines() if line.strip()]


async def test_long_code_keeps_all_its_lines_while_it_grows(tmp_path: Path) -> None:
    code = "\n".join(f"line_{number} = {number}" if number % 3 else "" for number in range(99))
    async with staged(tmp_path, "short") as stage:
        await stage.say("?")
        (view,) = stage.chat.query(AnswerView)
        for begin in range(0, len(code), 37):
            await view.append(("\n\n```python\n" if begin == 0 else "") + code[begin : begin + 37])
        (block,) = stage.chat.query(CodeBlock)
        shown = [str(label.render()) for label in block.query(".stanza").results(Static)]
        assert "\n".join(shown) == code
        assert len(shown) == 5
        await view.append("\n```\n")
        await view.finish()
        (block,) = stage.chat.query(CodeBlock)
        assert "\n".join(str(label.render()) for label in block.query(".stanza").results(Static)) == code


async def test_a_message_far_from_the_screen_hides_what_it_holds_and_keeps_its_height(tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {number}" for number in range(30))
    async with staged(tmp_path, text, text, text) as stage:
        for question in ("first?", "second?", "third?"):
            await stage.say(question)
        first, *_ = stage.chat.query(UserView)
        await stage.until(lambda: first.is_asleep)
        height = first.outer_size.height
        total = stage.chat.transcript.max_scroll_y
        assert not any(child.display for child in first.children)
        while stage.chat.transcript.scroll_y > 0:
            await stage.pilot.press("pageup")
        await stage.until_shown("first?")
        await stage.until_shown("Paragraph 3")
        assert not first.is_asleep
        assert first.outer_size.height == height
        assert stage.chat.transcript.max_scroll_y == total


async def test_a_letter_is_on_the_screen_before_the_next_words_of_the_answer(tmp_path: Path) -> None:
    model = held("one two three")
    async with staged(tmp_path, model=model) as stage:
        await stage.type("go")
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.chat.is_busy and bool(stage.chat.query(AnswerView)))
        stage.chat.is_letter_due = True
        assert model.hold is not None
        model.hold.set()
        await asyncio.sleep(0.2)
        assert "three" not in stage.shown
        await stage.press("x")
        await stage.until_shown("one two three")
        assert stage.chat.prompt.text == "x"
