"""Everything a test of the screen needs: an application on a scripted model, and ways to wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from localrun.chat.conversation import ChatSettings, Conversation
from localrun.errors import LocalrunError
from localrun.responder import Responder
from localrun.store import Store
from localrun.tui.app import ChatApp
from localrun.tui.ports import ModelChoice
from localrun.tui.theme import DARK
from tests.tui.scripted import ScriptedResponder

PATIENCE_S = 15.0
"""How long a test waits for something that must happen; reached only when it fails."""


class ScriptedShelf:
    """Three models, one of them here; a download that goes on when the test says so."""

    def __init__(self, *, empty: bool = False) -> None:
        here = not empty
        self.items = [
            ModelChoice("smollm2:135m", 98_000_000, here, "fits", "Q4_1 · Apache-2.0", is_default=True),
            ModelChoice("qwen3:8b", 5_200_000_000, False, "tight", "Q4_K_M · Apache-2.0"),
            ModelChoice("llama3.3:70b", 42_500_000_000, False, "too big", "Q4_K_M · Llama 3.3"),
        ]
        self.fetched: list[str] = []
        self.cancelled: list[str] = []
        self.proceed = threading.Event()
        self.failure: LocalrunError | None = None

    def choices(self) -> Sequence[ModelChoice]:
        return tuple(self.items)

    def has(self, name: str) -> bool:
        known = next((choice for choice in self.items if choice.name == name), None)
        return known is None or known.is_here

    def check(self, name: str) -> None:
        return

    def fetch(self, name: str, progress: Callable[[int, int | None], None], cancelled: Callable[[], bool]) -> None:
        size = next(choice.size_bytes for choice in self.items if choice.name == name) or 0
        progress(size // 4, size)
        while not self.proceed.wait(0.005):
            if cancelled():
                self.cancelled.append(name)
                return
        if self.failure is not None:
            raise self.failure
        progress(size, size)
        self.fetched.append(name)


class Stage:
    """A running application and its parts."""

    def __init__(self, app: ChatApp, pilot: Pilot[None], store: Store) -> None:
        self.app = app
        self.pilot = pilot
        self.store = store

    @property
    def chat(self):  # type: ignore[no-untyped-def]
        return self.app.chat

    @property
    def conversation(self) -> Conversation:
        return self.app.conversation

    @property
    def texts(self) -> list[str]:
        """The stored messages on the current path."""
        return [node.text for node in self.conversation.path]

    @property
    def shown(self) -> str:
        """Everything on the screen, as text."""
        strips = self.app.screen._compositor.render_strips()[: self.app.size.height]
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Wait for something to become true."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while not condition():
            assert loop.time() < deadline, f"it never happened: {what}\n{self.shown}"
            await asyncio.sleep(0.01)
        await self.pilot.pause()

    async def until_idle(self) -> None:
        await self.until(lambda: not self.chat.is_busy, "the answer ended")

    async def until_shown(self, text: str) -> None:
        await self.until(lambda: text in self.shown, f"{text!r} is on the screen")

    async def type(self, text: str) -> None:
        """Write into what has the focus, at once; `press` is for tests of single keys."""
        focused = self.app.focused
        if isinstance(focused, TextArea):
            focused.insert(text)
        elif isinstance(focused, Input):
            focused.insert_text_at_cursor(text)
        else:
            await self.pilot.press(*text)
        await self.pilot.pause()

    async def press(self, text: str) -> None:
        """Press a key for each letter."""
        await self.pilot.press(*["space" if letter == " " else letter for letter in text])

    async def say(self, text: str) -> None:
        """Send a message and wait for the end of the answer."""
        await self.type(text)
        await self.pilot.press("enter")
        await self.until(lambda: self.chat.prompt.text == "", "the message was taken")
        await self.until_idle()


@asynccontextmanager
async def staged(
    folder: Path,
    *answers: str | LocalrunError,
    model: ScriptedResponder | None = None,
    shelf: ScriptedShelf | None = None,
    open_model: Callable[[str], Responder] | None = None,
    size: tuple[int, int] = (100, 30),
    store: Store | None = None,
    session: str | None = None,
    settings: ChatSettings | None = None,
    name: str | None = None,
    theme: str = DARK.name,
    draft: str = "",
) -> AsyncIterator[Stage]:
    """The application, running, with its model loaded unless `open_model` says otherwise."""
    opened = store or Store.open(folder / "sessions.db", flush_s=0.05)
    responder = model or ScriptedResponder(*answers, name="smollm2:135m")
    conversation = (
        Conversation(opened, None, settings or ChatSettings())
        if session is None
        else Conversation.open(opened, None, session)
    )
    app = ChatApp(
        conversation,
        model=name,
        open_model=open_model or (lambda _: responder),
        models=shelf or ScriptedShelf(),
        cwd=folder,
        theme=theme,
        draft=draft,
    )
    async with app.run_test(size=size, notifications=True) as pilot:
        stage = Stage(app, pilot, opened)
        app.chat.prompt.cursor_blink = False  # pictures do not depend on the moment
        if open_model is None and (shelf is None or shelf.items[0].is_here):
            await stage.until(lambda: app.conversation.responder is not None, "the model is loaded")
        await pilot.pause()
        yield stage
        if responder.hold is not None:
            responder.hold.set()
        if not app._exit:
            app.conversation.stop()
            await stage.until_idle()
    if store is None:
        opened.close()
