"""The main screen: it wires the widgets to the conversation and knows nothing else.

Invariant: the screen's thread never waits for the model; a draft, an attachment and a queued message are only lost by
the user's own hand.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import Markdown

from localrun.chat.conversation import (
    ChatSettings,
    Conversation,
    Room,
)
from localrun.chat.conversation.commands import as_message, as_typed, parse
from localrun.errors import LocalrunError, UsageError
from localrun.tui.screens.running import RunningScreen
from localrun.tui.telling import tells_errors
from localrun.tui.widgets.chips import Chips
from localrun.tui.widgets.code_block import CopyRequested
from localrun.tui.widgets.completion import Completions
from localrun.tui.widgets.message import AnswerView, LeftTranscript, MessageView, MessageWish, UserView
from localrun.tui.widgets.prompt import Prompt, Submitted
from localrun.tui.widgets.side_bar import SideBar
from localrun.tui.widgets.status_line import StatusLine
from localrun.tui.widgets.transcript import EarlierWanted, Transcript


class ChatScreen(RunningScreen):
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
        self.prompt.focus()
        await self.show_conversation(self.conversation)

    # The conversation as a whole

    async def show_conversation(self, conversation: Conversation) -> None:
        """Turn to another conversation (or to this one anew). Only when not busy."""
        self.conversation = conversation
        self.begin_view()
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
        elif self.is_busy or self.conversation.responder is None or self.conversation.queue:
            self.conversation.enqueue(text, attachments)
            if self.conversation.responder is not None and not self.is_busy:
                self.send_queued()  # what was written first is asked first
            elif self.conversation.responder is None and not self.app.is_loading_model:
                self.app.choose_model()
        else:
            self.run_events(partial(self.conversation.ask, text, attachments))

    def send_queued(self) -> None:
        """Send the message that has waited longest."""
        self.waits_for_enter = False
        draft = self.conversation.queue.popleft()
        self.run_events(partial(self.conversation.ask, draft.text, draft.attachments))
        self.call_later(self.show_chips)

    async def run_ended(self, *, was_stopped: bool) -> None:
        self.show_sessions()
        if self.conversation.queue and not was_stopped and self.app.screen is self:
            self.send_queued()
        self.waits_for_enter = bool(self.conversation.queue) and not self.is_busy
        await self.show_chips()

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
        if self.editing_id is None:
            self.draft_before_edit = self.prompt.text
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
