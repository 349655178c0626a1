"""The list of chats at the side.

Knows names and dates; knows no store. Invariant: showing the list again keeps the place of the cursor.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localrun.chat.conversation.meter import visible
from localrun.store import Session
from localrun.tui.words import day_words


@dataclass
class SessionChosen(Message):
    """The user opens a chat; `number`: at this message."""

    session_id: str
    number: int = 0


@dataclass
class SessionWish(Message):
    """The user wants something done with a chat."""

    session_id: str
    wish: Literal["trash", "pin", "rename"]


@dataclass
class UndoWanted(Message):
    """The user wants the last chat back from the trash."""


class _Sessions(OptionList):
    """The list itself."""

    HELP = "Your chats. **Enter** opens, **p** pins, **r** renames, **d** moves to the trash, **u** brings it back."

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "wish('pin')", "Pin"),
        Binding("r", "wish('rename')", "Rename"),
        Binding("d,delete", "wish('trash')", "Trash", key_display="d"),
        Binding("u", "undo", "Undo"),
    ]

    def action_wish(self, wish: Literal["trash", "pin", "rename"]) -> None:
        option = self.highlighted_option
        if option is not None and option.id is not None:
            self.post_message(SessionWish(option.id, wish))

    def action_undo(self) -> None:
        self.post_message(UndoWanted())


class SideBar(Vertical):
    """Chats, grouped by day, pinned ones first."""

    DEFAULT_CSS = """
    SideBar { width: 30; background: $surface; padding: 1 0 0 0; }
    SideBar > #side-title { color: $muted; padding: 0 2; height: 2; }
    SideBar > _Sessions {
        height: 1fr;
        background: $surface;
        border: none;
        padding: 0 1;
        scrollbar-size-vertical: 1;
    }
    SideBar > _Sessions > .option-list--option-disabled { color: $muted; }
    SideBar > _Sessions > .option-list--option-highlighted { background: $panel; color: $foreground; text-style: none; }
    SideBar > _Sessions:focus > .option-list--option-highlighted { background: $primary 30%; }
    SideBar > #side-hint { color: $muted; padding: 0 2; height: 2; }
    """

    def __init__(self) -> None:
        super().__init__(id="side-bar")

    def compose(self) -> ComposeResult:
        yield Static("Chats", id="side-title", markup=False)
        yield _Sessions(id="sessions", markup=False)
        yield Static("^n new · ^f search", id="side-hint", markup=False)

    @property
    def list(self) -> OptionList:
        return self.query_one(_Sessions)

    def show(self, sessions: Sequence[Session], current_id: str | None) -> None:
        """Show these chats, with the open one marked."""
        options = self.list
        before = options.highlighted_option.id if options.highlighted_option is not None else None
        options.clear_options()
        heading = ""
        now = time.time()
        for session in sessions:
            group = "Pinned" if session.pinned else day_words(session.touched_at, now)
            if group != heading:
                if heading:
                    options.add_option(Option("", disabled=True))
                options.add_option(Option(Content.styled(group, "$muted"), disabled=True))
                heading = group
            options.add_option(Option(_label(session, session.id == current_id), id=session.id))
        wanted = before if options.has_focus else current_id
        if wanted is not None and any(session.id == wanted for session in sessions):
            options.highlighted = options.get_option_index(wanted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option.id is not None:
            self.post_message(SessionChosen(event.option.id))


def _label(session: Session, is_current: bool) -> Content:
    name = visible(session.name) or "New chat"
    mark = Content.styled("▌", "$primary") if is_current else Content(" ")
    return mark + Content(name).truncate(26, ellipsis=True)
