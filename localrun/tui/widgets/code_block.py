"""A block of code in an answer, with its language and a way to copy it."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Label, Static
from textual.widgets.markdown import MarkdownFence

from localrun.tui.widgets.in_place import change_text


@dataclass
class CopyRequested(Message):
    """Someone wants this text on the clipboard; `what` names it for the confirmation."""

    text: str
    what: str


class _Bar(Static):
    """The line above the code."""

    HELP = "Click to copy the code."

    def on_click(self, event: Click) -> None:
        event.stop()
        fence = self.parent
        assert isinstance(fence, CodeBlock)
        self.post_message(CopyRequested(fence.code, "the code"))


class CodeBlock(MarkdownFence):
    """Textual's code block with a bar on top."""

    DEFAULT_CSS = """
    CodeBlock {
        background: $surface;
        margin: 0 0 1 0;
        padding: 0;
        color: $foreground;
    }
    CodeBlock > _Bar {
        width: 1fr;
        height: 1;
        padding: 0 1;
        background: $panel;
        color: $muted;
    }
    CodeBlock > _Bar:hover { color: $foreground; }
    CodeBlock > #code-content { padding: 0 1; width: auto; }
    """

    def compose(self) -> ComposeResult:
        yield _Bar(self._title())
        yield Label(self._highlighted_code, id="code-content", expand=True)

    def set_content(self, content: Content) -> None:
        self._content = content
        for label in self.query("#code-content").results(Label):
            change_text(label, content)

    def _title(self) -> Content:
        language = (self.lexer or "").split()[0] if (self.lexer or "").split() else "code"
        return Content(f"{language} · copy")
