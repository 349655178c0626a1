"""Searching in all chats while typing.

Knows a function that searches; knows no store. Invariant: a search runs when typing pauses, never at every key.
"""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localrun.chat.conversation.meter import visible
from localrun.store import Hit
from localrun.tui.screens.filtered_list import FilteredListScreen
from localrun.tui.widgets.side_bar import SessionChosen

_PAUSE_S = 0.12
"""A pause in typing: shorter than the time between two thoughts, longer than between two letters."""


class SearchScreen(FilteredListScreen[SessionChosen | None]):
    """A line for words, and below it what was found."""

    HELP = 'All words must occur; **"…"** holds a phrase together. **Enter** opens the chat at that message.'

    DEFAULT_CSS = """
    SearchScreen { align: center top; }
    SearchScreen > #dialog {
        width: 90; max-width: 96%; height: auto; max-height: 90%; margin-top: 2;
    }
    SearchScreen OptionList { max-height: 22; }
    SearchScreen #search-remark { color: $muted; }
    """

    def __init__(self, find: Callable[[str], list[Hit]], words: str = "") -> None:
        super().__init__()
        self._find = find
        self._words = words
        self._hits: list[Hit] = []
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content("Search in all chats")
            dialog.border_subtitle = Content("Enter open · Esc back")
            yield Input(self._words, placeholder="Words", compact=True, select_on_focus=False)
            yield OptionList(id="hits", markup=False)
            yield Static("", id="search-remark", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._search()

    def on_input_changed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(_PAUSE_S, self._search)

    def _search(self) -> None:
        words = self.query_one(Input).value
        self._hits = self._find(words) if words.strip() else []
        options = self.query_one(OptionList)
        options.clear_options()
        above = [None, *(hit.session_id for hit in self._hits)]
        options.add_options(
            Option(_label(hit, is_first=hit.session_id != above[index]), id=str(index))
            for index, hit in enumerate(self._hits)
        )
        options.highlighted = 0 if self._hits else None
        remark = "" if self._hits or not words.strip() else "Nothing found"
        self.query_one("#search-remark", Static).update(Content(remark))

    def on_input_submitted(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._search()
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        hit = self._hits[int(event.option.id or 0)]
        self.dismiss(SessionChosen(hit.session_id, hit.number))


def _label(hit: Hit, *, is_first: bool) -> Content:
    """What was found, below the name of its chat if it is the first place there."""
    parts = [(visible(text), "bold $primary" if marked else "$foreground") for text, marked in hit.snippet]
    found = Content.assemble(*parts, (f" · {hit.kind}", "$muted"))
    if not hit.number:
        return found
    name = Content.styled(f"{visible(hit.session_name) or 'New chat'}\n", "$muted") if is_first else Content("")
    return name + Content("  ") + found
