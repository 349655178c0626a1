"""A run of the conversation on the screen: begun, painted at a pace that leaves time for keys, stopped, made room for.

Knows the bridge and the view of a run; what is asked, and what follows a run, is the chat's. Invariant: the screen's
thread never waits for the model, and one run goes on at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from textual.timer import Timer

from localrun.chat.conversation import ContextFullError, Conversation, ConversationEvent, MakeRoom
from localrun.errors import LocalrunError
from localrun.tui.bridge import UPDATES_PER_S, Bridge, Ended, Failed, Update
from localrun.tui.collector import tidy_young
from localrun.tui.run_view import RunView
from localrun.tui.screens.composing import ComposingScreen
from localrun.tui.screens.pick import Choice, PickScreen
from localrun.tui.telling import tells_errors
from localrun.tui.widgets.notice import Notice
from localrun.tui.widgets.status_line import StatusLine
from localrun.tui.widgets.transcript import Transcript

_PAUSE_S = 1.0
"""Who has not typed for this long will not notice some milliseconds more."""

_ROOM_CHOICES = (
    Choice("compact", "Compact", "A summary that you can read stands for the older messages"),
    Choice("shift", "Shift", "The oldest messages are left out; a mark shows where"),
    Choice("branch", "Branch", "The last question is asked alone, in a branch of its own"),
)


class RunningScreen(ComposingScreen):
    """A screen with a transcript and a status line, on which one run at a time is shown."""

    run_view: RunView

    def __init__(self, conversation: Conversation, cwd: Path) -> None:
        super().__init__(cwd)
        self.conversation = conversation
        self.bridge = Bridge()
        self.painting = asyncio.Lock()
        """Held while updates become widgets: who ends the application waits for it."""
        self._stopped_by_user = False
        self._is_draining = False
        self._is_painting = False
        self._rests_until = 0.0
        self._drain_timer: Timer | None = None

    @property
    def status(self) -> StatusLine:
        return self.query_one(StatusLine)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def is_busy(self) -> bool:
        """Whether an answer (or a summary) is being made."""
        return self.bridge.is_busy

    def begin_view(self) -> None:
        """Show the conversation as it is now, from the beginning."""
        self.run_view = RunView(self.conversation, self.transcript, self.status, warn=self.app.warn)

    def run_events(self, begin: Callable[[], Iterator[ConversationEvent]]) -> None:
        """Make an answer in the background and show it."""
        if self.is_busy:
            self.app.warn("An answer is being written: Esc stops it")
            return
        self._stopped_by_user = False
        self.prompt.add_class("-busy")
        self.call_later(self.run_view.clear_notices)
        self.status.set(activity="reading the prompt")
        self.bridge.start(begin)
        self._drain_timer = self.set_interval(1 / UPDATES_PER_S, self._tick)

    def _tick(self) -> None:
        """Look for updates soon, in the screen's own message loop: a timer's task is cancelled when the screen ends."""
        if not self._is_draining:
            self._is_draining = self.call_later(self._drain)

    async def _drain(self) -> None:
        """Show what has come, unless the last update is still being painted or was painted just now, or a letter waits.

        A letter that was typed is painted first, alone: that takes a few milliseconds. After each update the screen
        rests twice as long as the painting took: so two thirds of the time are left for keys, however long the chat
        and however slow the machine. What comes once the screen has gone is dropped here; the store has it.
        """
        self._is_draining = False
        now = time.monotonic()
        if self._is_painting or now < self._rests_until or self.is_letter_due:
            return
        async with self.painting:
            if not self.is_attached:
                return
            updates = self.bridge.take()
            if not updates:
                return
            for update in updates:
                await self._show_update(update)
            if self.is_busy and not self._stopped_by_user:
                self.run_view.writing(self.bridge.pieces_per_s, self.bridge.n_pieces)
        self._is_painting = True
        self.call_after_refresh(self._painted, now)

    async def _show_update(self, update: Update) -> None:
        if isinstance(update, Failed):
            await self._failed(update.error)
        elif isinstance(update, Ended):
            await self._ended()
        else:
            await self._apply(update)

    @tells_errors
    async def _apply(self, update: Update) -> None:
        await self.run_view.apply(update)

    def _painted(self, began: float) -> None:
        now = time.monotonic()
        self._is_painting = False
        self._rests_until = now + 2 * (now - began)
        if now - self.typed_at > _PAUSE_S:
            tidy_young()

    async def _failed(self, error: LocalrunError) -> None:
        await self.run_view.end()
        if isinstance(error, ContextFullError) and error.can_make_room:
            self._ask_for_room(error)
        else:
            await self.run_view.show_notice(Notice(error))

    async def _ended(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.stop()
        await self.run_view.end()
        self.bridge.release()
        self.prompt.remove_class("-busy")
        await self.run_ended(was_stopped=self._stopped_by_user)

    async def run_ended(self, *, was_stopped: bool) -> None:
        """A run is over and the next one may begin. For whoever knows what follows."""

    def _ask_for_room(self, full: ContextFullError) -> None:
        def chosen(how: str | None) -> None:
            if how is not None:
                self.make_room(how)  # type: ignore[arg-type]  # the keys of _ROOM_CHOICES

        self.app.push_screen(PickScreen("The context is full", _ROOM_CHOICES, text=full.message), chosen)

    def make_room(self, how: MakeRoom) -> None:
        """Give way in the manner the user chose, then go on with what was asked."""
        conversation = self.conversation

        def events() -> Iterator[ConversationEvent]:
            yield from conversation.make_room(how)
            last = next((node for node in reversed(conversation.path) if node.kind in ("user", "assistant")), None)
            if last is not None and last.kind == "user":
                yield from conversation.answer()
            elif last is not None and last.finish == "context":
                yield from conversation.continue_answer()

        self.run_events(events)

    def stop(self) -> None:
        """Stop the answer; what it said is kept."""
        self._stopped_by_user = True
        self.status.set(activity="stopping")
        self.conversation.stop()
