"""Markdown of a model: never trusted, never executed, never dropped.

Knows Textual's Markdown widget. Invariant: what the model wrote is on the screen as text: HTML is shown as it is
written (Textual's parser would drop it), console markup means nothing, control characters are pictures.

A part far from the screen sleeps: it keeps its height and holds no widgets, because every widget that is laid out costs
time at every key press.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from rich.cells import cell_len
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from localrun.chat.conversation.meter import visible
from localrun.tui.widgets.code_block import CodeBlock

PART_CHARACTERS = 2_500
"""An answer is shown in parts of about this length (a screen or two), cut between blocks."""


def _parser() -> MarkdownIt:
    """GitHub's Markdown, without HTML, and with line breaks where the model made them (verses, unfenced code)."""
    parser = MarkdownIt("gfm-like", {"html": False})
    parser.core.ruler.push("keep_line_breaks", _keep_line_breaks)
    return parser


def _keep_line_breaks(state: StateCore) -> None:
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


class AnswerMarkdown(Markdown):
    """A part of an answer, complete or growing, awake or asleep."""

    DEFAULT_CSS = """
    AnswerMarkdown {
        padding: 0;
        background: transparent;
        MarkdownBlock { background: transparent; }
        MarkdownH1, MarkdownH2, MarkdownH3, MarkdownH4, MarkdownH5, MarkdownH6 {
            content-align: left middle;
            color: $foreground;
            text-style: bold;
            background: transparent;
            margin: 0 0 1 0;
            padding: 0;
            border: none;
        }
        MarkdownH1 { color: $primary; }
        MarkdownH2 { color: $primary; }
        MarkdownParagraph { margin: 0 0 1 0; }
        MarkdownBlockQuote {
            border-left: outer $faint;
            background: transparent;
            color: $muted;
            margin: 0 0 1 0;
            padding: 0 1;
        }
        MarkdownBulletList, MarkdownOrderedList { margin: 0 0 1 0; padding: 0; }
        MarkdownList MarkdownParagraph { margin: 0; }
        MarkdownList MarkdownList { margin: 0; }
        MarkdownBlockQuote MarkdownParagraph { margin: 0; }
        MarkdownBullet, MarkdownBullet:light { color: $primary; }
        MarkdownHorizontalRule { border-bottom: solid $faint; margin: 0 0 1 0; padding: 0; }
        MarkdownTableContent { keyline: thin $faint; }
        MarkdownTable { margin: 0 0 1 0; background: transparent; }
        MarkdownTableContent .header { color: $primary; text-style: bold; }
        CodeBlock, CodeBlock:light { background: $surface; }
        MarkdownBlockQuote:light { border-left: outer $faint; }
        MarkdownTable:light { background: transparent; }
    }
    """

    BLOCKS: dict[str, type[MarkdownBlock]] = {  # noqa: RUF012  # declared so by Textual
        **Markdown.BLOCKS,
        "fence": CodeBlock,
        "code_block": CodeBlock,
    }

    def __init__(self, text: str = "", *, asleep: bool = False) -> None:
        shown = visible(text)
        super().__init__("" if asleep else shown, parser_factory=_parser, open_links=False)
        self.text = shown
        self.is_asleep = asleep
        self.is_growing = False
        if asleep:
            self.styles.height = estimated_height(shown)

    async def grow(self, text: str) -> None:
        """Show more at the end.

        Not through `Markdown.get_stream`: the bridge has joined the pieces already, and ending a stream cancels its
        task, which may take the message loops of blocks that are just being mounted with it.
        """
        await self.wake()
        self.is_growing = True
        shown = visible(text)
        self.text += shown
        await self.append(shown)

    async def finish(self) -> None:
        """Show the whole once more, because growing may leave a half-open block behind."""
        if self.is_growing:
            self.is_growing = False
            await self.update(self.text)

    async def replace(self, text: str) -> None:
        """Show something else."""
        self.is_growing = False
        self.text = text
        await self.update(text)

    async def sleep(self) -> None:
        """Give up the widgets, keep the height."""
        if self.is_asleep or self.is_growing or not self.size.height:
            return
        self.is_asleep = True
        self.styles.height = self.size.height
        await self.remove_children()

    async def wake(self) -> None:
        """Show the text again."""
        if self.is_asleep:
            self.is_asleep = False
            await self.update(self.text)
            self.styles.height = "auto"


def estimated_height(text: str, width: int = 90) -> int:
    """About how many rows a text will take, before it is laid out."""
    return sum(1 + cell_len(line) // width for line in text.splitlines()) + 1


def in_parts(text: str, limit: int = PART_CHARACTERS) -> list[str]:
    """The text cut between its blocks, so that each part has about `limit` characters; a long block stays whole."""
    if len(text) <= limit:
        return [text]
    lines = text.split("\n")
    starts = block_starts(text)
    parts: list[str] = []
    begin = 0
    length = 0
    for start, following in zip(starts, [*starts[1:], len(lines)], strict=True):
        block = sum(len(line) + 1 for line in lines[start:following])
        if length and length + block > limit:
            parts.append("\n".join(lines[begin:start]))
            begin, length = start, 0
        length += block
    return [*parts, "\n".join(lines[begin:])]


def block_starts(text: str) -> list[int]:
    """The line on which each outermost block of a Markdown text begins."""
    return [
        token.map[0]
        for token in _parser().parse(text)
        if token.level == 0 and token.map is not None and token.nesting >= 0
    ]


def code_blocks(text: str) -> list[str]:
    """The code in a Markdown text, block by block."""
    return [token.content.rstrip("\n") for token in _parser().parse(text) if token.type in ("fence", "code_block")]
