"""Where the user writes.

Knows keys and text; sends messages, knows no conversation. Invariant: what is typed is only ever removed by the user:
a draft survives Esc, Ctrl-C, an error, and another chat.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.message import Message
from textual.widgets import TextArea

from localrun.chat.conversation.meter import visible

LONG_PASTE_LINES = 12
LONG_PASTE_CHARACTERS = 1_500
"""A paste longer than either becomes an attachment: the prompt stays readable."""

_COMMAND = re.compile(r"/[A-Za-z-]*")
_FILE = re.compile(r"(?:^|\s)@(\S*)$")


@dataclass
class Submitted(Message):
    """The user sends this."""

    text: str


@dataclass
class LongPaste(Message):
    """A long text was pasted; it is not in the prompt."""

    text: str


@dataclass
class CompletionWanted(Message):
    """The word before the cursor could be completed; `kind` None: it could not."""

    kind: Literal["command", "file"] | None
    prefix: str = ""


@dataclass
class CompletionKey(Message):
    """A key for the open list of completions."""

    action: Literal["up", "down", "take", "close"]


@dataclass
class ChipRemovalWanted(Message):
    """Backspace in an empty prompt."""


class Prompt(TextArea):
    """A text area that sends on Enter."""

    HELP = (
        "Write here. **Enter** sends, **Ctrl+J** (or Shift+Enter) starts a new line, **↑↓** at the edges bring back"
        " earlier messages, **/** begins a command, **@** attaches a file."
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send"),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line"),
    ]

    DEFAULT_CSS = """
    Prompt {
        height: auto;
        min-height: 3;
        max-height: 12;
        padding: 0 1;
        background: $background;
        border: round $faint;
        scrollbar-size-vertical: 1;
    }
    Prompt:focus { border: round $primary 70%; }
    Prompt.-busy:focus { border: round $secondary 70%; }
    Prompt .text-area--placeholder { color: $muted; }
    Prompt .text-area--cursor-line { background: transparent; }
    """

    def __init__(self) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            placeholder="Message",
            highlight_cursor_line=False,
            compact=False,
        )
        self.sent: list[str] = []
        self.offered: CompletionWanted | None = None
        """What the open list of completions is for; while it is open it gets the keys."""
        self._recalled: int | None = None
        self._draft = ""

    # Sending

    def action_submit(self) -> None:
        """Give the text away; `give_back` returns what was not accepted. The next letter begins a new message."""
        if self.offered is not None and self.offered == self.wanted:
            # A list for what stood here some letters ago has no say: it would overwrite them.
            self.post_message(CompletionKey("take"))
            return
        self.post_message(Submitted(self.text))
        self._recalled = None
        self.text = ""

    def action_newline(self) -> None:
        self.insert("\n")

    def accepted(self, text: str) -> None:
        """What was submitted has been taken: remember it."""
        if text.strip() and (not self.sent or self.sent[-1] != text):
            self.sent.append(text)

    def give_back(self, text: str) -> None:
        """What was submitted cannot be taken: it is here again, before what was typed since."""
        self.text = f"{text}\n{self.text}" if self.text else text
        self.move_cursor(self.document.end)

    # Keys

    async def _on_key(self, event: Key) -> None:
        if self.offered is not None and event.key in ("up", "down", "tab", "escape"):
            action: dict[str, Literal["up", "down", "take", "close"]] = {
                "up": "up",
                "down": "down",
                "tab": "take",
                "escape": "close",
            }
            event.stop()
            event.prevent_default()
            self.post_message(CompletionKey(action[event.key]))
            return
        if event.key == "enter":
            # Here and not as a priority binding: that would overtake the letters typed just before it.
            event.stop()
            event.prevent_default()
            self.action_submit()
            return
        if event.key == "backspace" and not self.text:
            self.post_message(ChipRemovalWanted())
        await super()._on_key(event)

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self.cursor_at_first_line and self._recall(-1):
            return
        super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if not select and self.cursor_at_last_line and self._recall(1):
            return
        super().action_cursor_down(select)

    def _recall(self, step: int) -> bool:
        """Go through what was sent before; the draft waits at the end."""
        index = len(self.sent) if self._recalled is None else self._recalled
        if index == len(self.sent):
            self._draft = self.text
        index += step
        if not 0 <= index <= len(self.sent):
            return False
        self._recalled = index
        self.text = self._draft if index == len(self.sent) else self.sent[index]
        self.move_cursor(self.document.end)
        return True

    # Pasting and completing

    async def _on_paste(self, event: Paste) -> None:
        text = visible(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        event.stop()
        event.prevent_default()
        if text.count("\n") >= LONG_PASTE_LINES or len(text) > LONG_PASTE_CHARACTERS:
            self.post_message(LongPaste(text))
        else:
            result = self.replace(text, *self.selection, maintain_selection_offset=False)
            self.move_cursor(result.end_location)

    @property
    def wanted(self) -> CompletionWanted:
        """What could be completed as the text stands now."""
        before = self.document.get_text_range((0, 0), self.cursor_location)
        if _COMMAND.fullmatch(before) and self.text == before:
            return CompletionWanted("command", before[1:])
        file = _FILE.search(before)
        return CompletionWanted(None) if file is None else CompletionWanted("file", file.group(1))

    def on_text_area_changed(self) -> None:
        self.post_message(self.wanted)

    def complete(self, prefix: str, replacement: str) -> None:
        """Put `replacement` in place of the `prefix` that ends at the cursor."""
        row, column = self.cursor_location
        start = (row, column - len(prefix))
        result = self.replace(replacement, start, (row, column), maintain_selection_offset=False)
        self.move_cursor(result.end_location)
