"""Choosing one of several things from a list that can be filtered by typing.

Knows choices and their labels; the caller knows what they mean. Invariant: Esc leaves without choosing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localrun.chat.conversation.meter import visible
from localrun.tui.screens.filtered_list import FilteredListScreen

FILTER_FROM = 8
"""A shorter list needs no filter."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the things; `key` is what the screen returns."""

    key: str
    label: str
    detail: str = ""


class PickScreen(FilteredListScreen[str | None]):
    """A list in the middle of the screen."""

    HELP = "**↑↓** and **Enter** choose, typing filters, **Esc** leaves everything as it is."

    DEFAULT_CSS = """
    PickScreen { align: center middle; }
    PickScreen > #dialog {
        width: 76; max-width: 94%; height: auto; max-height: 80%;
    }
    PickScreen #pick-text { margin: 0 0 1 0; color: $foreground; height: auto; }
    PickScreen OptionList { max-height: 18; }
    """

    def __init__(self, title: str, choices: Sequence[Choice], *, text: str = "", current: str | None = None) -> None:
        super().__init__()
        self._title = title
        self._choices = tuple(choices)
        self._text = text
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(self._title)
            dialog.border_subtitle = Content("Enter choose · Esc back")
            if self._text:
                yield Static(Content(visible(self._text)), id="pick-text", markup=False)
            if len(self._choices) >= FILTER_FROM:
                yield Input(placeholder="Filter", compact=True, select_on_focus=False)
            yield OptionList(id="pick-list", markup=False)

    def on_mount(self) -> None:
        self._fill("")
        if len(self._choices) >= FILTER_FROM:
            self.query_one(Input).focus()
        else:
            self.query_one(OptionList).focus()

    def _fill(self, words: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        shown = [choice for choice in self._choices if words.lower() in f"{choice.label} {choice.detail}".lower()]
        for choice in shown:
            options.add_option(Option(_label(choice, choice.key == self._current), id=choice.key))
        keys = [choice.key for choice in shown]
        options.highlighted = keys.index(self._current) if self._current in keys else (0 if keys else None)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._fill(event.value)

    def on_input_submitted(self) -> None:
        self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option.id)


def _label(choice: Choice, is_current: bool) -> Content:
    mark = Content.styled("● ", "$primary") if is_current else Content("  ")
    label = mark + Content(visible(choice.label))
    if not choice.detail:
        return label
    return label + Content.styled(f"\n  {visible(choice.detail)}", "$muted")
