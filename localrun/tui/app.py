"""The application: themes, models, commands.

Knows screens and what commands mean to them; the screens know widgets. Invariant: leaving never loses anything: the
answer that is being written is stopped and saved first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.actions import SkipAction
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from localrun.chat.conversation import Conversation, with_temperature
from localrun.chat.conversation.commands import COMMANDS, Command
from localrun.errors import FetchError, LocalrunError, ModelNotFoundError, UsageError
from localrun.responder import Responder
from localrun.tui.collector import tidy
from localrun.tui.commands import CommandRunner
from localrun.tui.ports import ModelShelf, OpenModel
from localrun.tui.screens.chat import ChatScreen
from localrun.tui.screens.help import HelpScreen
from localrun.tui.screens.models import ModelScreen
from localrun.tui.telling import tells_errors
from localrun.tui.theme import DARK, THEMES
from localrun.tui.widgets.notice import Notice
from localrun.tui.widgets.side_bar import SessionChosen, SessionWish, UndoWanted

_TWICE_S = 2.0
"""Two Ctrl+C within this time leave."""
_TIDY_S, _QUIET_S = 20.0, 3.0
"""How often garbage is looked for, and how long nobody must have typed."""
_LEAVING_S = 3.0
"""How long leaving waits for the answer to stop; what it said is on disk in any case."""


class ChatApp(App[None]):
    """`localrun chat` on the full screen."""

    TITLE = "localrun"

    BINDINGS: ClassVar[list[BindingType]] = [
        # Those with priority work in a dialog too, which hides the application's other keys.
        Binding("ctrl+c", "interrupt", show=False, system=True, priority=True),
        Binding("ctrl+q", "leave", "Leave", show=False, priority=True),
        Binding("f1", "help", "Help", show=False, priority=True),
        Binding("f2", "command('settings')", "Settings", show=False),
        Binding("ctrl+n", "command('new')", "New chat", show=False),
        Binding("ctrl+f", "command('search')", "Search", show=False, priority=True),
        Binding("ctrl+o", "command('model')", "Models", show=False),
        Binding("ctrl+t", "command('tree')", "Branches", show=False),
    ]

    def __init__(
        self,
        conversation: Conversation,
        *,
        model: str | None,
        open_model: OpenModel,
        models: ModelShelf,
        cwd: Path,
        theme: str = DARK.name,
        draft: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`model` None: the one the shelf calls default. Nothing is loaded before the screen is there.

        `draft` stands in the prompt at first.
        """
        super().__init__()
        self.chat = ChatScreen(conversation, cwd)
        self.models = models
        self.is_loading_model = False
        self._commands = CommandRunner(self, cwd)
        self._wanted_model = model
        self._open_model = open_model
        self._first_theme = theme
        self._first_draft = draft
        self.unsent = draft
        """What was written and not sent, as it was when the screen went."""
        self._clock = clock
        self._last_interrupt = -_TWICE_S
        self._trashed: list[str] = []

    @property
    def conversation(self) -> Conversation:
        return self.chat.conversation

    @property
    def session_id(self) -> str | None:
        """The chat that is open, if anything was said in it."""
        session = self.conversation.session
        return None if session is None else session.id

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"muted": "#808080", "faint": "#505050"}

    async def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self._first_theme
        await self.push_screen(self.chat)
        if self._first_draft:
            self.chat.prompt.give_back(self._first_draft)
        self.set_interval(_TIDY_S, self._tidy)
        if self.conversation.responder is not None:
            self.call_after_refresh(self.chat.show_model, self.conversation.responder.info.identity.name)
        else:
            self._find_model()

    def _tidy(self) -> None:
        """Collect garbage while the user neither writes nor waits."""
        if not self.chat.is_busy and self._clock() - self.chat.typed_at > _QUIET_S:
            tidy()

    def from_thread(self, callback: Callable[..., None], *arguments: object) -> None:
        """From a worker: call this in the screen's thread, unless the screen has gone meanwhile."""

        def act() -> None:
            if self.chat.is_attached:
                callback(*arguments)

        self.call_from_thread(act)

    # Models

    @work(thread=True, exclusive=True, group="find")
    def _find_model(self) -> None:
        """Load the wanted model if it is on this machine; otherwise let the user choose."""
        self.is_loading_model = True
        try:
            choices = self.models.choices()
        except LocalrunError as error:
            self.is_loading_model = False
            self.from_thread(self.show_error, error)
            return
        wanted = self._wanted_model or next((choice.name for choice in choices if choice.is_default), None)
        self._load_or_choose(wanted)

    def _load_or_choose(self, wanted: str | None) -> None:
        """In a thread: load a model that is on this machine; of another one, ask before it is downloaded."""
        try:
            is_here = wanted is not None and self.models.has(wanted)
            if wanted is not None and not is_here:
                self.models.check(wanted)
        except ModelNotFoundError as error:
            self.is_loading_model = False
            self.from_thread(self.choose_model, _sentences(error))
            return
        except LocalrunError as error:
            self.is_loading_model = False
            self.from_thread(self.show_error, error)
            return
        if wanted is not None and is_here:
            self.from_thread(self.load_model, wanted)
            return
        self.is_loading_model = False
        words = "Choose a model to talk with. It is downloaded once and then stays on this machine."
        self.from_thread(self.choose_model, words, wanted)

    @work(thread=True, exclusive=True, group="find")
    def want_model(self, name: str) -> None:
        """Load the model of that name, downloading it if the user says so."""
        self._load_or_choose(name)

    def choose_model(self, text: str = "", wanted: str | None = None) -> None:
        """Show the picker."""
        responder = self.conversation.responder
        current = responder.info.identity.name if responder is not None else None

        def chosen(name: str | None) -> None:
            if name is not None and name != current:
                self.load_model(name)

        self.push_screen(ModelScreen(self.models, current=current, text=text, wanted=wanted), chosen)

    def load_model(self, name: str) -> None:
        """Load a model in the background; the user can write meanwhile."""
        if self.chat.is_busy:
            self.warn("An answer is being written: Esc stops it")
            return
        self.is_loading_model = True
        self.chat.status.set(loading=f"loading {name}")
        self._load(name)

    @work(thread=True, exclusive=True, group="load")
    def _load(self, name: str) -> None:
        try:
            responder = self._open_model(name)
        except LocalrunError as error:
            self.from_thread(self._not_loaded, name, error)
        except Exception as error:  # an exception of a thread would end the application and lose the draft
            bug = LocalrunError(f"{name} could not be loaded: {type(error).__name__}: {error}")
            self.from_thread(self._not_loaded, name, bug)
        else:
            self.call_from_thread(self._loaded, responder)

    def _loaded(self, responder: Responder) -> None:
        if not self.chat.is_attached:
            responder.close()
            return
        self.is_loading_model = False
        before, self.conversation.responder = self.conversation.responder, responder
        if before is not None:
            before.close()
        if not responder.info.can_chat:
            self.warn(f"{responder.info.identity.name} is a base model: it has no chat template")
        self.chat.show_model(responder.info.identity.name)

    def _not_loaded(self, name: str, error: LocalrunError) -> None:
        self.is_loading_model = False
        self.chat.status.set(loading="")
        self.call_later(self.chat.run_view.show_notice, Notice(error))
        if isinstance(error, ModelNotFoundError) and self.conversation.responder is None:
            # A model that could not be fetched may be tried again; one that does not exist may not.
            self.choose_model(_sentences(error), name if isinstance(error, FetchError) else None)

    # Sessions

    async def open_conversation(self, conversation: Conversation) -> None:
        """Turn to another conversation, with the model that is loaded."""
        if self.chat.is_busy:
            self.warn("An answer is being written: Esc stops it")
            return
        old = self.conversation
        conversation.responder = old.responder
        conversation.queue.extend(old.queue)
        await self.chat.show_conversation(conversation)
        self.chat.prompt.focus()

    @on(SessionChosen)
    @tells_errors
    async def _session_chosen(self, event: SessionChosen) -> None:
        await self.open_session(event)

    @tells_errors
    async def open_session(self, chosen: SessionChosen | None) -> None:
        """Open a chat where it was left, or at the message that was chosen."""
        if chosen is None:
            return
        store = self.conversation.store
        conversation = Conversation.open(store, None, chosen.session_id)
        if chosen.number:
            node = conversation.tree.numbered(chosen.number)
            if node is not None and node.id not in {other.id for other in conversation.path}:
                conversation.go_to(node.id)
        await self.open_conversation(conversation)
        if chosen.number and (node := self.conversation.tree.numbered(chosen.number)) is not None:
            view = self.chat.transcript.view(node.id)
            if view is not None:
                self.call_after_refresh(view.focus)

    @on(SessionWish)
    @tells_errors
    async def _session_wish(self, event: SessionWish) -> None:
        store = self.conversation.store
        if event.wish == "pin":
            store.pin(event.session_id, not store.session(event.session_id).pinned)
        elif event.wish == "rename":
            self._commands.ask_for_name(event.session_id)
        else:
            await self.trash(event.session_id)
        self.chat.show_sessions()

    async def trash(self, session_id: str) -> None:
        """Move a chat to the trash; it can be brought back."""
        if session_id == self.session_id:
            if self.chat.is_busy:
                self.warn("An answer is being written: Esc stops it")
                return
            old = self.conversation
            focused = self.chat.focused
            await self.open_conversation(Conversation(old.store, None, old.settings))
            if focused is not None:
                focused.focus()  # in the list, the next key may be the one that undoes this
        self.conversation.store.trash(session_id)
        self._trashed.append(session_id)
        self.chat.show_sessions()
        self.notify("In the trash. Press u in the list of chats to bring it back.", markup=False)

    @on(UndoWanted)
    @tells_errors
    def _undo(self) -> None:
        if self._trashed:
            self.conversation.store.restore(self._trashed.pop())
            self.chat.show_sessions()
        else:
            self.warn("Nothing was moved to the trash since the start; see `localrun sessions ls --trash`")

    # Commands

    async def run_command(self, command: Command) -> None:
        """Do what a slash command says. Raises `LocalrunError`."""
        await self._commands.run(command)

    @tells_errors
    async def action_command(self, name: str) -> None:
        await self.run_command(Command(name, ""))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette holds the slash commands."""
        for command in COMMANDS:
            title = command.name.capitalize()

            async def run(name: str = command.name) -> None:
                await self.action_command(name)

            yield SystemCommand(title, command.explanation, run)

    def action_help(self) -> None:
        if isinstance(self.screen, HelpScreen):
            raise SkipAction  # there, the same key goes back
        focused = self.screen.focused
        here = next((node.HELP for node in (focused.ancestors_with_self if focused else ()) if node.HELP), "")
        self.push_screen(HelpScreen(here))

    def change_temperature(self, written: str) -> None:
        self.chat.change_settings(with_temperature(self.conversation.settings, written))

    # Words to the user

    def warn(self, text: str) -> None:
        """A remark that goes away."""
        self.notify(text, severity="warning", markup=False)

    def show_error(self, error: LocalrunError) -> None:
        """An error that changes nothing in the conversation."""
        self.notify(
            error.hint or "", title=error.message, severity="error", markup=False, timeout=8 if error.hint else 5
        )

    def copy(self, text: str, what: str) -> None:
        """Put a text on the clipboard."""
        self.copy_to_clipboard(text)
        self.notify(f"Copied {what}", markup=False, timeout=2)

    # Leaving

    async def action_interrupt(self) -> None:
        """Ctrl+C: copy what is selected, leave a dialog, or stop the answer; twice in a row: leave."""
        if getattr(self.focused, "selected_text", "") or self.screen.get_selected_text():
            raise SkipAction  # the widget or the screen copies it
        if self.screen.is_modal:
            self.simulate_key("escape")
            return
        now = self._clock()
        twice = now - self._last_interrupt < _TWICE_S
        self._last_interrupt = now
        if twice:
            await self.action_leave()
        elif self.chat.is_busy:
            self.chat.stop()
        else:
            self.notify("Press Ctrl+C again to leave", markup=False, timeout=_TWICE_S)

    async def action_leave(self) -> None:
        """Stop and save, then end; what is being painted is finished first, nothing is painted afterwards."""
        self.chat.stop()
        self.chat.bridge.join(_LEAVING_S)
        async with self.chat.painting:
            self.unsent = self.chat.unsent
            self.exit()

    def on_unmount(self) -> None:
        if self.conversation.responder is not None:
            self.conversation.responder.close()


def _sentences(error: LocalrunError) -> str:
    """What happened and what helps, as text of a dialog."""
    return error.message if error.hint is None else f"{error.message}\n{error.hint}"


def check_theme(app: App[None], name: str) -> str:
    """The full name of a theme. Raises `UsageError`."""
    names = app.available_themes
    for candidate in (name, f"localrun-{name}"):
        if candidate in names:
            return candidate
    raise UsageError(f"there is no theme {name!r}", hint=f"dark, light, or one of {', '.join(sorted(names))}")
