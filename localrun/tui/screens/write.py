"""Writing a short text: a name, a path, a system prompt.

Knows text; the caller knows what it is for. Invariant: Esc leaves without a text.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, TextArea


class WriteScreen(ModalScreen[str | None]):
    """One line, or several with `multiline`."""

    HELP = "Write, then **Enter** (in a long text **Ctrl+S**) to keep it; **Esc** leaves everything as it is."

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("ctrl+s", "keep", "Keep"),
    ]

    DEFAULT_CSS = """
    WriteScreen { align: center middle; background: $background 60%; }
    WriteScreen > #dialog {
        width: 76; max-width: 94%; height: auto;
        background: $surface; border: round $faint; padding: 1 2;
        border-title-color: $primary; border-subtitle-color: $muted;
    }
    WriteScreen Input { border: none; height: 1; padding: 0 1; background: $panel; }
    WriteScreen TextArea { border: none; height: 10; padding: 0 1; background: $panel; }
    """

    def __init__(self, title: str, text: str = "", *, multiline: bool = False) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._multiline = multiline

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content(self._title)
            dialog.border_subtitle = Content("^s keep · Esc back" if self._multiline else "Enter keep · Esc back")
            if self._multiline:
                yield TextArea(self._text, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False)
            else:
                yield Input(self._text, compact=True, select_on_focus=False)

    def on_input_submitted(self) -> None:
        self.action_keep()

    def action_keep(self) -> None:
        if self._multiline:
            self.dismiss(self.query_one(TextArea).text)
        else:
            self.dismiss(self.query_one(Input).value)
