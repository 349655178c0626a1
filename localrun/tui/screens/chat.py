"""The main screen: it wires the widgets to the conversation and knows nothing else.

Invariant: the screen's thread never waits for the model; a draft, an attachment and a queued message are only lost by
the user's own hand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import Markdown

from localrun.chat.conversation import (
    ChatSettings,
    ContextFullError,
    Conversation,
    ConversationEvent,
    MakeRoom,
    Room,
)
from localrun.chat.conversation.commands import as_message, as_typed, parse
from localrun.errors import LocalrunError, UsageError
from localrun.tui.bridge import UPDATES_PER_S, Bridge, Ended, Failed, Update
from localrun.tui.collector import tidy_young
from localrun.tui.run_view import RunView
from localrun.tui.screens.composing import ComposingScreen
from localrun.tui.screens.pick import Choice, PickScreen
from localrun.tui.telling import tells_errors
from localrun.tui.widgets.chips import Chips
from localrun.tui.widgets.code_block import CopyRequested
from localrun.tui.widgets.completion import Completions
from localrun.tui.widgets.message import AnswerView, LeftTranscript, MessageView, MessageWish, UserView
from localrun.tui.widgets.notice import Notice
from localrun.tui.widgets.prompt import (
    Prompt,
    Submitted,
)
from localrun.tui.widgets.side_bar import SideBar
from localrun.tui.widgets.status_line import StatusLine
from localrun.tui.widgets.transcript import EarlierWanted, Transcript

if TYPE_CHECKING:
    pass

_PAUSE_S = 1.0
"""Who has not typed for this long will not notice some milliseconds more."""

_ROOM_CHOICES = (
    Choice("compact", "Compact", "A summary that you can read stands for the older messages"),
    Choice("shift", "Shift", "The oldest messages are left out; a mark shows where"),
    Choice("branch", "Branch", "The last question is asked alone, in a branch of its own"),
)


class ChatScreen(ComposingScreen):
    """Chats at the side, the transcript, the prompt, the status line."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (104, "-wide")]  # noqa: RUF012  # Textual's declaration

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "Stop / back", show=False),
        Binding("ctrl+r", "regenerate", "Another answer", show=False),
        Binding("ctrl+g", "continue", "Go on with the answer", show=False),
        Binding("f4", "edit_last", "Edit the last message", show=False),
        Binding("alt+left", "switch(-1)", "Previous version", show=False),
        Binding("alt+right", "switch(1)", "Next version", show=False),
        Binding("ctrl+up", "walk", "Into the conversation", show=False),
        Binding("pageup", "scroll(-1)", "Scroll up", show=False, priority=True),
        Binding("pagedown", "scroll(1)", "Scroll down", show=False, priority=True),
        Binding("ctrl+b", "toggle_side", "Chats", show=False),
        Binding("ctrl+l", "focus_side", "To the chats", show=False),
    ]

    DEFAULT_CSS = """
    ChatScreen { background: $background; }
    ChatScreen #main { width: 1fr; }
    ChatScreen #bottom { height: auto; max-width: 112; }
    ChatScreen #center { height: auto; align-horizontal: center; padding: 0 1; }
    ChatScreen.-narrow SideBar { display: none; }
    ChatScreen.-narrow.-side-shown SideBar { display: block; }
    ChatScreen.-side-hidden SideBar { display: none; }
    """

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

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield SideBar()
            with Vertical(id="main"):
                yield Transcript()
                with Vertical(id="center"), Vertical(id="bottom"):
                    yield Completions()
                    yield Chips()
                    yield Prompt()
                    yield StatusLine()

    async def on_mount(self) -> None:
        self.run_view = self._new_run_view()
        self._drain_timer = self.set_interval(1 / UPDATES_PER_S, self._tick, pause=True)
        self.prompt.focus()
        await self.show_conversation(self.conversation)

    # Parts

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

    def _new_run_view(self) -> RunView:
        return RunView(self.conversation, self.transcript, self.status, warn=self.app.warn)

    # The conversation as a whole

    async def show_conversation(self, conversation: Conversation) -> None:
        """Turn to another conversation (or to this one anew). Only when not busy."""
        self.conversation = conversation
        self.run_view = self._new_run_view()
        self.editing_id = None
        if conversation.path:
            await self.run_view.show_path()
        else:
            await self.transcript.show_welcome(_WELCOME)
        self.prompt.sent = [as_typed(node.text) for node in conversation.path if node.kind == "user" and node.text]
        self.show_settings()
        self.status.set(meter=(), room=None)
        await self.show_chips()
        self.show_sessions()
        self.measure()

    @tells_errors
    def show_sessions(self) -> None:
        session = self.conversation.session
        sessions = self.conversation.store.sessions(limit=500)
        self.query_one(SideBar).show(sessions, session.id if session is not None else None)
        self.app.title = session.name if session is not None and session.name else "localrun"

    def show_settings(self) -> None:
        params = self.conversation.settings.params
        constraint = params.constraint
        self.status.set(
            temperature=params.sampling.temperature, grammar="" if constraint is None else constraint.name or "on"
        )

    @tells_errors
    def change_settings(self, settings: ChatSettings) -> None:
        """Use other settings from the next answer on."""
        self.conversation.change_settings(settings)
        self.show_settings()
        self.measure()

    def show_model(self, name: str) -> None:
        self.status.set(model=name, loading="")
        self.measure()
        if self.conversation.queue and not self.is_busy:
            self.send_queued()

    @work(thread=True, exclusive=True, group="measure")
    def measure(self) -> None:
        """Count the tokens of the conversation as it stands, off the screen's thread."""
        if self.conversation.responder is None or self.is_busy:
            return
        try:
            room = self.conversation.room()
        except LocalrunError:
            room = None  # a broken template is told when a message is sent, not while looking at the chat
        if not self.is_busy:
            self.app.from_thread(self._show_room, room)

    def _show_room(self, room: Room | None) -> None:
        self.status.set(room=room)

    # Runs

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
        self._drain_timer.resume()

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
        self._drain_timer.pause()
        await self.run_view.end()
        self.bridge.release()
        self.prompt.remove_class("-busy")
        self.show_sessions()
        if self.conversation.queue and not self._stopped_by_user and self.app.screen is self:
            self.send_queued()
        await self.show_chips()

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

    # Sending

    @on(Submitted)
    async def _submitted(self, event: Submitted) -> None:
        event.stop()
        try:
            command = parse(event.text)
            if command is not None:
                await self.app.run_command(command)
            elif event.text.strip() or self.attachments:
                self._send(as_message(event.text))
            elif self.conversation.queue and not self.is_busy:
                self.send_queued()
            self.prompt.accepted(event.text)
        except LocalrunError as error:
            self.prompt.give_back(event.text)
            self.app.show_error(error)
        if self.is_attached:  # not after /quit
            await self.show_chips()

    def _send(self, text: str) -> None:
        """Ask, edit, or keep for later. Raises `LocalrunError` before anything has happened."""
        attachments = [*self.attachments, *self.mentioned(text)]
        if self.editing_id is not None and self.is_busy:
            raise UsageError("an answer is being written", hint="Esc stops it; then send the edited message")
        editing_id, self.editing_id = self.editing_id, None
        self.attachments = []
        if editing_id is not None:
            self.run_events(partial(self.conversation.edit, editing_id, text, attachments))
        elif self.is_busy or self.conversation.responder is None:
            self.conversation.enqueue(text, attachments)
            if self.conversation.responder is None and not self.app.is_loading_model:
                self.app.choose_model()
        else:
            self.run_events(partial(self.conversation.ask, text, attachments))

    def send_queued(self) -> None:
        """Send the message that has waited longest."""
        draft = self.conversation.queue.popleft()
        self.run_events(partial(self.conversation.ask, draft.text, draft.attachments))
        self.call_later(self.show_chips)

    # The user's wishes

    @on(MessageWish)
    @tells_errors
    async def _wish(self, event: MessageWish) -> None:
        event.stop()
        if event.wish == "edit":
            await self.begin_edit(event.message_id)
        elif event.wish == "regenerate":
            self.run_events(partial(self.conversation.regenerate, event.message_id))
        elif event.wish == "continue":
            self.action_continue()
        else:
            await self.switch(event.message_id, -1 if event.wish == "previous" else 1)

    async def begin_edit(self, message_id: int) -> None:
        """Put a message into the prompt; sending it makes a branch."""
        node = self.conversation.tree.nodes[message_id]
        self.editing_id = message_id
        self.attachments = list(node.attachments)
        self.prompt.text = as_typed(node.text)
        self.prompt.move_cursor(self.prompt.document.end)
        self.prompt.focus()
        await self.show_chips()

    @tells_errors
    async def switch(self, message_id: int, step: int) -> None:
        """Show the version of a message `step` places further."""
        if self.is_busy:
            self.app.warn("An answer is being written: Esc stops it")
            return
        node = self.conversation.switch(message_id, step)
        if node is None:
            return
        await self.run_view.show_path()
        self.measure()
        if self.focused is not self.prompt and (view := self.transcript.view(node.id)) is not None:
            view.focus()

    @tells_errors
    async def go_to(self, message_id: int) -> None:
        """Show the branch through a message, where it was left."""
        self.conversation.go_to(message_id)
        await self.run_view.show_path()
        self.measure()

    def action_regenerate(self) -> None:
        self.run_events(self.conversation.regenerate)

    def action_continue(self) -> None:
        self.run_events(self.conversation.continue_answer)

    @tells_errors
    async def action_edit_last(self) -> None:
        views = [view for view in self.transcript.views if isinstance(view, UserView)]
        if views:
            await self.begin_edit(views[-1].message_id)

    async def action_switch(self, step: int) -> None:
        """The other versions of the last message that has any."""
        for view in reversed(self.transcript.views):
            if view.place.count > 1:
                await self.switch(view.message_id, step)
                return

    async def action_escape(self) -> None:
        if self.is_busy:
            self.stop()
        elif self.editing_id is not None:
            await self.end_edit()
        self.prompt.focus()

    def stop(self) -> None:
        """Stop the answer; what it said is kept."""
        self._stopped_by_user = True
        self.status.set(activity="stopping")
        self.conversation.stop()

    def action_walk(self) -> None:
        views = self.transcript.views
        if views:
            views[-1].focus()

    def action_scroll(self, direction: int) -> None:
        transcript = self.transcript
        if direction < 0:
            at_top = transcript.scroll_y == 0
            transcript.release_anchor()
            transcript.scroll_page_up(animate=False)
            if at_top:
                self.post_message(EarlierWanted())
        else:
            transcript.scroll_page_down(animate=False)

    def action_toggle_side(self) -> None:
        shown = self.query_one(SideBar).display
        self.set_class(shown, "-side-hidden")
        self.set_class(not shown, "-side-shown")
        if shown:
            self.prompt.focus()

    def action_focus_side(self) -> None:
        if not self.query_one(SideBar).display:
            self.action_toggle_side()
        self.query_one(SideBar).list.focus()

    @on(LeftTranscript)
    def _left_transcript(self) -> None:
        self.prompt.focus()

    @on(EarlierWanted)
    @tells_errors
    async def _earlier(self, event: EarlierWanted) -> None:
        event.stop()
        if self.transcript.query("_Earlier"):
            await self.run_view.show_earlier()

    @on(DescendantFocus)
    def _focus_moved(self) -> None:
        focused = self.focused
        self.status.set(hint=focused.HINT if isinstance(focused, MessageView) else "")

    @on(CopyRequested)
    def _copy(self, event: CopyRequested) -> None:
        event.stop()
        self.app.copy(event.text, event.what)

    @on(Markdown.LinkClicked)
    def _link(self, event: Markdown.LinkClicked) -> None:
        """A link that a model wrote is not opened: it is copied, so that the user sees it first."""
        event.stop()
        self.app.copy(event.href, f"the link {event.href}")

    def copy_answer(self) -> None:
        """Copy the last answer."""
        answers = [view for view in self.transcript.views if isinstance(view, AnswerView)]
        if answers:
            answers[-1].action_copy()


_WELCOME = Content.assemble(
    ("\n\nlocalrun\n\n", "bold $primary"),
    ("Everything you say stays on this machine.\n\n", "$foreground"),
    ("Enter", "$primary"),
    (" sends   ", "$muted"),
    ("/", "$primary"),
    (" commands   ", "$muted"),
    ("@", "$primary"),
    (" files   ", "$muted"),
    ("F1", "$primary"),
    (" help", "$muted"),
)
