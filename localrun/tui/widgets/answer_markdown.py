"""Markdown of a model: never trusted, never executed, never dropped.

Knows Textual's Markdown widget. Invariant: what the model wrote is on the screen as text: HTML is shown as it is
written (Textual's parser would drop it), console markup means nothing, control characters are pictures.

A part far from the screen sleeps: it keeps its height and holds no widgets, because every widget that is laid out costs
time at every key press.
"""

from __future__ import annotations

from itertools import accumulate

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from rich.cells import cell_len
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from localrun.chat.conversation.meter import visible
from localrun.tui.widgets.code_block import CodeBlock
from localrun.tui.widgets.in_place import ItemList, Paragraph

PART_CHARACTERS = 700
"""An answer is shown in parts of about this length (half a screen), cut between blocks. What lies outside the screen is
laid out at every update as far as it belongs to a part that is awake: the shorter the parts, the less."""


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
        ItemList { margin: 0 0 1 0; }
        ItemList MarkdownParagraph, ItemList ItemList { margin: 0; }
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
        "paragraph_open": Paragraph,
        "bullet_list_open": ItemList,
        "ordered_list_open": ItemList,
    }

    def __init__(self, text: str = "", *, asleep: bool = False) -> None:
        shown = visible(text)
        super().__init__("" if asleep else shown, parser_factory=_parser, open_links=False)
        self.text = shown
        self.is_asleep = asleep
        self.is_growing = False
        self._has_grown = False
        if asleep:
            self.styles.height = estimated_height(shown)

    async def grow(self, text: str) -> None:
        """Show more at the end.

        Not through `Markdown.get_stream`: the bridge has joined the pieces already, and ending a stream cancels its
        task, which may take the message loops of blocks that are just being mounted with it.
        """
        await self.wake()
        self.is_growing = self._has_grown = True
        shown = visible(text)
        self.text += shown
        await self.append(shown)

    def rest(self) -> None:
        """Grow no more; from now on it may sleep."""
        self.is_growing = False

    async def finish(self) -> None:
        """Show the whole once more, because growing may leave a half-open block behind."""
        self.is_growing = False
        if self._has_grown and not self.is_asleep:
            await self.update(self.text)
        self._has_grown = False

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
    return grown_parts("", text, limit)


def grown_parts(before: str, more: str, limit: int = PART_CHARACTERS) -> list[str]:
    """What of `more` still belongs to the part that says `before`, and the parts that follow it.

    A new part begins where a block begins that is wholly new: nothing that is on the screen already moves.
    """
    whole = before + more
    if len(whole) <= limit:
        return [more]
    shown = len(before.rstrip())
    offsets = line_offsets(whole)
    starts = [offsets[line] for line in block_starts(whole)]
    cuts = [0]
    for start, following in zip(starts, [*starts[1:], len(whole)], strict=True):
        if start >= shown and start > cuts[-1] and following - cuts[-1] > limit:
            cuts.append(start)
    parts = [whole[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(whole)], strict=True)]
    return [parts[0][len(before) :], *parts[1:]]


def line_offsets(text: str) -> list[int]:
    """Where each line begins, in characters."""
    return list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))[:-1]


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
