"""How the screen looks, at several sizes and in both themes. Each picture has been looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from localrun.chat.conversation import ChatSettings
from localrun.errors import EngineError
from localrun.store import Attachment, Store
from localrun.tui.screens.models import ModelScreen
from localrun.tui.screens.pick import PickScreen
from localrun.tui.screens.search import SearchScreen
from localrun.tui.theme import DARK, LIGHT
from tests.tui.scripted import ScriptedResponder
from tests.tui.snapshot import UPDATES, Shown, check, matches, shown
from tests.tui.stage import ScriptedShelf, Stage, staged

ANSWER = """# Tides in short

The **moon** pulls the water; the *sun* helps a little.

- spring tide: sun and moon in line
- neap tide: at right angles
  - nested item

| body | force |
|------|------:|
| moon | 1.00 |
| sun  | 0.46 |

```python
def tide(t: float) -> float:
    return 1.0 * cos(t) + 0.46 * cos(2 * t)  # [bold] not markup
```

> A quote with [/INST] and <b>html</b>.

1. first
2. second with `inline code`
"""
WIDE = """潮汐は月の引力で起こります。 한국어 텍스트 ไทย

| 言語 | 例 |
|------|----|
| 日本語 | 👩‍👩‍👧‍👦 家族 |
| हिन्दी | नमस्ते |

- 👍🏽 thumbs up · 🇳🇴 flag · é combining
"""


def furnished(folder: Path, *messages: str, reasoning: str = "") -> tuple[Store, str | None]:
    """A store with three old chats, and one with these messages."""
    store = Store.open(folder / "sessions.db", flush_s=0.05)
    old = ""
    for name in ("Packing list for Norway", "Regex for ISO dates", "Why is the sky blue?"):
        session = store.create_session({})
        store.add(session.id, None, "user", name)
        store.name_after_exchange(session.id, name)
        old = session.id
    store.pin(old)
    if not messages:
        return store, None
    session = store.create_session({})
    parent: int | None = None
    for index, text in enumerate(messages):
        if index % 2 == 0:
            parent = store.add(session.id, parent, "user", text)
            continue
        writer = store.begin_answer(session.id, parent, {})
        writer.write(text, reasoning=reasoning)
        writer.finish("stop", {"reasoning_s": 2.1, "usage": {"reasoning_tokens": 48}})
        parent = writer.message_id
    store.name_after_exchange(session.id, messages[0])
    return store, session.id


async def picture(stage: Stage, name: str, tmp_path: Path) -> None:
    """Wait until the screen looks as it should (or, for a new picture, until it is still), then compare."""
    for cursor in stage.app.screen.query("TextArea, Input"):
        if isinstance(cursor, TextArea | Input):
            cursor.cursor_blink = False
    before: Shown = []
    for _ in range(60):
        await stage.pilot.pause(0.15)
        svg = stage.app.export_screenshot(simplify=True)
        is_still, before = shown(svg) == before and not stage.chat.is_busy, shown(svg)
        if matches(name, svg) or (UPDATES and is_still):
            break
    check(name, svg, tmp_path)


pytestmark = pytest.mark.slow

THEMES = {"dark": DARK.name, "light": LIGHT.name}


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_welcome(tmp_path: Path, theme: str) -> None:
    async with staged(tmp_path, "A", size=(100, 26), theme=THEMES[theme]) as stage:
        await picture(stage, f"welcome-{theme}", tmp_path)


@pytest.mark.parametrize(("size", "theme"), [((80, 24), "light"), ((120, 40), "dark"), ((200, 60), "dark")])
async def test_an_answer(tmp_path: Path, size: tuple[int, int], theme: str) -> None:
    store, session = furnished(tmp_path, "Explain tides.", ANSWER, reasoning="Forces, then examples.")
    async with staged(tmp_path, "A", store=store, session=session, size=size, theme=THEMES[theme]) as stage:
        await stage.until_shown("second with")
        await picture(stage, f"answer-{size[0]}x{size[1]}-{theme}", tmp_path)
    store.close()


async def test_a_focused_message_with_open_reasoning(tmp_path: Path) -> None:
    store, session = furnished(tmp_path, "Why?", "Because.", reasoning="First the forces.\nThen examples.")
    async with staged(tmp_path, "A", store=store, session=session, size=(80, 24)) as stage:
        await stage.pilot.press("ctrl+up", "space")
        await stage.until_shown("Then examples.")
        await picture(stage, "reasoning-80x24-dark", tmp_path)
    store.close()


async def test_wide_characters_keep_the_layout(tmp_path: Path) -> None:
    store, session = furnished(tmp_path, "潮汐 👩‍👩‍👧‍👦?", WIDE)
    async with staged(tmp_path, "A", store=store, session=session, size=(100, 26)) as stage:
        await stage.until_shown("thumbs up")
        await picture(stage, "wide-characters-dark", tmp_path)
    store.close()


async def test_command_completion(tmp_path: Path) -> None:
    async with staged(tmp_path, "A", size=(80, 24), theme=LIGHT.name) as stage:
        await stage.pilot.press("/")
        await stage.until_shown("/settings")
        await picture(stage, "commands-80x24-light", tmp_path)


async def test_the_first_run(tmp_path: Path) -> None:
    shelf = ScriptedShelf(empty=True)
    async with staged(tmp_path, "A", shelf=shelf, size=(100, 26)) as stage:
        await stage.until_shown("too big")
        await picture(stage, "first-run-dark", tmp_path)
        await stage.pilot.press("enter")
        await stage.until_shown("24 MB of")
        screen = stage.app.screen
        assert isinstance(screen, ModelScreen)
        screen.query_one("#eta").display = False  # it tells the time
        await picture(stage, "download-dark", tmp_path)
        await stage.pilot.press("escape")


async def test_settings(tmp_path: Path) -> None:
    settings = ChatSettings("Answer in one sentence.")
    async with staged(tmp_path, "A", settings=settings, size=(80, 24), theme=LIGHT.name) as stage:
        await stage.pilot.press("f2")
        await stage.until_shown("Repeat penalty")
        await picture(stage, "settings-80x24-light", tmp_path)


async def test_help(tmp_path: Path) -> None:
    async with staged(tmp_path, "A", size=(100, 40)) as stage:
        await stage.pilot.press("f1")
        await stage.until_shown("walk into the conversation")
        await picture(stage, "help-dark", tmp_path)


async def test_search(tmp_path: Path) -> None:
    store, session = furnished(tmp_path, "Explain tides.", ANSWER)
    async with staged(tmp_path, "A", store=store, session=session, size=(120, 32), theme=LIGHT.name) as stage:
        await stage.until_shown("second with")
        await stage.pilot.press("ctrl+f")
        await stage.until(lambda: isinstance(stage.app.screen, SearchScreen))
        await stage.type("sky")
        await stage.until_shown("sky blue? · user")
        await picture(stage, "search-light", tmp_path)
    store.close()


async def test_branches(tmp_path: Path) -> None:
    store, session = furnished(tmp_path, "Explain tides.", "The moon does it.", "And the sun?", "A little.")
    assert session is not None
    first = store.tree(session).head_path[0]
    store.add(session, first.id, "assistant", "Gravity.")
    async with staged(tmp_path, "A", store=store, session=session, size=(100, 26)) as stage:
        await stage.until_shown("‹ 2/2 ›")
        await stage.pilot.press("ctrl+t")
        await stage.until_shown("Gravity.")
        await picture(stage, "branches-dark", tmp_path)
    store.close()


async def test_the_choice_when_the_context_is_full(tmp_path: Path) -> None:
    model = ScriptedResponder("word " * 10, context_limit=100, name="smollm2:135m")
    async with staged(tmp_path, model=model, size=(80, 24)) as stage:
        await stage.say("one " * 24)
        stage.chat.prompt.text = "last " * 40
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, PickScreen))
        await picture(stage, "context-full-80x24-dark", tmp_path)
        await stage.pilot.press("escape")


async def test_an_error(tmp_path: Path) -> None:
    error = EngineError("the engine crashed: decode returned -3 [/b]", hint="load the model again with /model")
    async with staged(tmp_path, error, size=(80, 24), theme=LIGHT.name) as stage:
        await stage.say("Why is the sky blue?")
        await stage.until_shown("load the model again")
        await picture(stage, "error-80x24-light", tmp_path)


async def test_an_edit_with_files_and_a_shift_mark(tmp_path: Path) -> None:
    store, session = furnished(tmp_path, "old", "answer", "Summarize the notes.", "They are short.")
    assert session is not None
    path = store.tree(session).head_path
    mark = store.add(
        session, path[-1].id, "shift", "2 earlier messages are left out from here on", covers_id=path[1].id
    )
    store.add(session, mark, "user", "And this?", attachments=[Attachment("notes.md", "x" * 3200)])
    async with staged(tmp_path, "A", store=store, session=session, size=(100, 26), theme=LIGHT.name) as stage:
        await stage.until_shown("And this?")
        await stage.pilot.press("f4")
        await stage.until_shown("editing message 6")
        await picture(stage, "edit-light", tmp_path)
    store.close()


async def test_the_command_palette(tmp_path: Path) -> None:
    async with staged(tmp_path, "A", size=(100, 26)) as stage:
        await stage.pilot.press("ctrl+p")
        await stage.pilot.pause(0.3)
        await stage.press("sett")
        await stage.until_shown("All settings of this chat")
        await picture(stage, "palette-dark", tmp_path)
