"""Markdown of a model: never trusted, never executed, never dropped.

Knows Textual's Markdown widget. Invariant: what the model wrote is on the screen as text: HTML is shown as it is
written (Textual's parser would drop it), console markup means nothing, control characters are pictures.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock

from localrun.chat.conversation.meter import visible
from localrun.tui.widgets.code_block import CodeBlock


def _parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"html": False})


class AnswerMarkdown(Markdown):
    """The text of an answer, complete or growing."""

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
        CodeBlock, CodeBlock:light { background: $surface; }
        MarkdownBlockQuote:light { border-left: outer $faint; }
        MarkdownBullet:light { color: $primary; }
        MarkdownTable:light { background: transparent; }
        MarkdownBullet { color: $primary; }
        MarkdownHorizontalRule { border-bottom: solid $faint; margin: 0 0 1 0; padding: 0; }
        MarkdownTableContent { keyline: thin $faint; }
        MarkdownTable { margin: 0 0 1 0; background: transparent; }
        MarkdownTableContent .header { color: $primary; text-style: bold; }
    }
    """

    BLOCKS: dict[str, type[MarkdownBlock]] = {  # noqa: RUF012  # declared so by Textual
        **Markdown.BLOCKS,
        "fence": CodeBlock,
        "code_block": CodeBlock,
    }

    def __init__(self, text: str = "") -> None:
        super().__init__(visible(text), parser_factory=_parser, open_links=False)

    @property
    def code_blocks(self) -> list[str]:
        """The code in the answer, block by block."""
        return [block.code for block in self.query(CodeBlock)]
