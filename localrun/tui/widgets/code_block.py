"""A block of code in an answer, with its language and a way to copy it."""

from __future__ import annotations

from dataclasses import dataclass

from markdown_it.token import Token
from textual.app import ComposeResult
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Label, Markdown, Static
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from localrun.tui.widgets.in_place import change_text

STANZA_LINES = 20
"""About half a screen."""


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


class _Stanza(Label):
    """Some lines of the code, which are coloured and painted together."""

    def __init__(self, code: str, coloured: Content) -> None:
        super().__init__(coloured, expand=True, classes="stanza")
        self.code = code


class CodeBlock(MarkdownFence):
    """Textual's code block with a bar on top, in stanzas: growing, only the last one is coloured and painted again."""

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
    CodeBlock > .stanza { padding: 0 1; width: auto; }
    """

    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        super().__init__(markdown, token, code)
        self._is_ansi = self.app.native_ansi_color

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """Called for every state of a growing block: long code has its colours in stanzas, when it is shown."""
        return Content(code) if code.count("\n") >= STANZA_LINES else super().highlight(code, language, ansi, dark)

    def compose(self) -> ComposeResult:
        yield _Bar(self._title())
        lines = self._coloured(self.code).split("\n", allow_blank=True)
        for number, code in enumerate(in_stanzas(self.code)):
            begin = number * STANZA_LINES
            yield _Stanza(code, Content("\n").join(lines[begin : begin + STANZA_LINES]))

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not isinstance(block, CodeBlock):
            await super()._update_from_block(block)
            return
        has_other_colours = block.lexer != self.lexer
        self._copy_context(block)
        self.query_one(_Bar).update(self._title())
        stanzas = self._stanzas
        codes = in_stanzas(self.code)
        for stanza, code in zip(stanzas, codes, strict=False):
            if stanza.code != code or has_other_colours:
                stanza.code = code
                change_text(stanza, self._coloured(code))
        await self.mount_all([_Stanza(code, self._coloured(code)) for code in codes[len(stanzas) :]])
        for stanza in stanzas[len(codes) :]:
            await stanza.remove()

    def notify_style_update(self) -> None:
        """Colours are names that the theme resolves; only one with the terminal's own colours has other names."""
        Static.notify_style_update(self)
        if self._is_ansi != self.app.native_ansi_color:
            self._is_ansi = self.app.native_ansi_color
            for stanza in self._stanzas:
                stanza.update(self._coloured(stanza.code))

    @property
    def _stanzas(self) -> list[_Stanza]:
        return [child for child in self.children if isinstance(child, _Stanza)]

    def _coloured(self, code: str) -> Content:
        """The code with its colours; blank lines at its end stay, which the highlighter drops."""
        coloured = super().highlight(
            code, self.lexer, ansi=self.app.native_ansi_color, dark=self.app.current_theme.dark
        )
        n_kept = len(coloured.plain)
        return coloured + code[n_kept:] if code.startswith(coloured.plain) else coloured

    def _title(self) -> Content:
        language = (self.lexer or "").split()[0] if (self.lexer or "").split() else "code"
        return Content(f"{language} · copy")


def in_stanzas(code: str) -> list[str]:
    """The code in pieces of `STANZA_LINES` lines."""
    lines = code.splitlines() or [""]
    return ["\n".join(lines[begin : begin + STANZA_LINES]) for begin in range(0, len(lines), STANZA_LINES)]
