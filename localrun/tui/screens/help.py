"""Keys and commands on one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Markdown, Static

from localrun.chat.conversation.commands import COMMANDS

KEYS: tuple[tuple[str, str], ...] = (
    ("Enter", "send the message; while an answer runs: queue it"),
    ("Ctrl+J, Shift+Enter", "a new line"),
    ("Esc", "stop the answer; what it said is kept"),
    ("Ctrl+C", "copy a selection; leave a dialog; stop the answer; twice: leave"),
    ("↑ ↓", "at the edge of the prompt: earlier messages of yours"),
    ("Ctrl+↑", "walk into the conversation; ↓ walks back"),
    ("Page Up/Down", "scroll the conversation"),
    ("Ctrl+R", "another answer to the last question"),
    ("Ctrl+G", "go on with an answer that was stopped"),
    ("F4", "edit your last message: a branch"),
    ("Alt+← Alt+→", "the other versions of the last message that has any"),
    ("Ctrl+T", "all branches of this chat"),
    ("Ctrl+B", "show or hide the list of chats"),
    ("Ctrl+L", "go to the list of chats"),
    ("Ctrl+N", "a new chat"),
    ("Ctrl+F", "search in all chats"),
    ("Ctrl+O", "choose a model"),
    ("F2", "settings of this chat"),
    ("Ctrl+P", "all commands by name"),
    ("F1", "this page"),
)

STATUS: tuple[tuple[str, str], ...] = (
    ("smollm2:135m", "the model that answers; yellow while it is loaded, or if there is none"),
    ("T 0.7", "the temperature of this chat"),
    ("grammar json", "what answers must follow"),
    ("━━━━━━", "the context: used, reserved for the answer, free; yellow when it is nearly full"),
    ("312 + 512 of 4,096", "the same in tokens: used + reserved, of the limit"),
    ("reused 90 of 312", "tokens of the last prompt that were in a cache and took no time"),
    ("35.2 tokens/s", "how fast the last answer was written"),
    ("TTFT 0.21 s", "time to the first token: how long it took until the answer began"),
)


class HelpScreen(ModalScreen[None]):
    """What can be pressed and typed; on top, what has the focus now."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-normal")]  # noqa: RUF012  # Textual's declaration
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss(None)", "Back")]

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > #dialog {
        width: 84; max-width: 96%; height: 90%;
        background: $surface; border: round $faint; padding: 1 2;
        border-title-color: $primary; border-subtitle-color: $muted;
        scrollbar-size-vertical: 1;
    }
    HelpScreen Static { height: auto; }
    HelpScreen .title { text-style: bold; margin: 0 0 1 0; }
    HelpScreen .key { color: $primary; }
    HelpScreen Grid { grid-size: 2; grid-columns: 22 1fr; grid-rows: auto; height: auto; margin: 0 0 1 0; }
    HelpScreen.-narrow Grid { grid-size: 1; grid-columns: 1fr; }
    HelpScreen.-narrow .key { padding: 1 0 0 0; }
    HelpScreen Markdown { padding: 0; margin: 0; background: $surface; }
    """

    def __init__(self, here: str = "") -> None:
        super().__init__()
        self._here = here

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog") as dialog:
            dialog.border_title = Content("Help")
            dialog.border_subtitle = Content("Esc back")
            if self._here:
                yield Markdown(self._here)
            yield from _table("Keys", KEYS)
            yield from _table("The line at the bottom", STATUS)
            yield from _table("Commands", [(command.usage, command.explanation) for command in COMMANDS])

    def on_mount(self) -> None:
        self.query_one("#dialog").focus()


def _table(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[Widget]:
    yield Static(Content(title), classes="title", markup=False)
    with Grid():
        for left, right in rows:
            yield Static(Content(left), classes="key", markup=False)
            yield Static(Content(right), markup=False)
