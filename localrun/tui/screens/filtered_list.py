"""A dialog with a list, and a line above it that decides what is in the list.

Knows keys and looks; what is in the list is the screen's that is one. Invariant: Esc leaves without choosing.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Input, OptionList


class FilteredListScreen(ModalScreen[ScreenResultType]):
    """An `Input` (which may be missing) and an `OptionList` in a `#dialog`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    DEFAULT_CSS = """
    FilteredListScreen { background: $background 60%; }
    FilteredListScreen > #dialog {
        background: $surface; border: round $faint; padding: 1 2;
        border-title-color: $primary; border-subtitle-color: $muted;
    }
    FilteredListScreen Input { border: none; height: 1; padding: 0 1; margin: 0 0 1 0; background: $panel; }
    FilteredListScreen OptionList { height: auto; background: $surface; border: none; padding: 0; }
    FilteredListScreen OptionList:focus { border: none; background-tint: transparent; }
    FilteredListScreen OptionList > .option-list--option { padding: 0 1; }
    FilteredListScreen OptionList > .option-list--option-highlighted,
    FilteredListScreen OptionList:focus > .option-list--option-highlighted {
        background: $primary 25%; color: $foreground; text-style: none;
    }
    """

    def on_key(self, event: Key) -> None:
        """The arrows move in the list while the line has the cursor."""
        if isinstance(self.focused, Input) and event.key in ("up", "down"):
            options = self.query_one(OptionList)
            (options.action_cursor_up if event.key == "up" else options.action_cursor_down)()
            event.stop()
