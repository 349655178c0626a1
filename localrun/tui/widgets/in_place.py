"""Blocks of a growing answer that change where they stand.

Knows Textual's Markdown blocks. Invariant: a block shows the same as Textual's own; it only costs less while it grows:
a text that keeps its size is painted without laying out the screen, and a list keeps the items that it has. Laying out
takes longer the more widgets there are: an item that holds a paragraph is one widget instead of Textual's four.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.selection import Selection
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Static
from textual.widgets._markdown import MarkdownBullet, MarkdownListItem, MarkdownParagraph
from textual.widgets.markdown import MarkdownBlock

from localrun.tui.widgets.hanging import Hanging


def change_text(widget: Static, text: Visual) -> None:
    """Show another text; the screen is laid out anew only if it needs another size."""
    size = widget.content_size
    fits = size.width > 0 and text.get_height(widget.styles.get_rules(), size.width) == size.height
    widget.update(text, layout=not fits)


class Paragraph(MarkdownParagraph):
    """A paragraph that grows."""

    def set_content(self, content: Content) -> None:
        self._content = content
        change_text(self, content)


class Item(MarkdownParagraph):
    """A list item that holds nothing but a paragraph."""

    def __init__(self, bullet: str, paragraph: MarkdownParagraph) -> None:
        super().__init__(paragraph._markdown, paragraph._token, paragraph.source_range)
        self.bullet = bullet
        self.set_content(paragraph._content)

    @property
    def text(self) -> Content:
        return self._content

    def set_content(self, content: Content) -> None:
        self._content = content
        change_text(self, Hanging(Content.styled(self.bullet, "$primary"), content))

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        text = selection.extract(self._content.plain)
        return (self.bullet + text if selection.start is None else text), "\n"


class ItemList(MarkdownBlock):
    """A bullet or ordered list that grows at its end."""

    DEFAULT_CSS = """
    ItemList Horizontal, ItemList Vertical { height: auto; width: 1fr; }
    """

    def compose(self) -> ComposeResult:
        yield from self.take_rows()

    def take_rows(self) -> list[Widget]:
        """A widget for each item, from the blocks that were parsed; they are gone then."""
        items = [block for block in self._blocks if isinstance(block, MarkdownListItem)]
        self._blocks.clear()
        return [_row(bullet, item._blocks) for bullet, item in zip(_bullets(items), items, strict=True)]

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if not isinstance(block, ItemList):
            await super()._update_from_block(block)
            return
        self._token = block._token
        old, new = list(self.children), block.take_rows()
        # Only the last item can have grown, unless the bullets have become wider; the new ones follow it.
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            if isinstance(before, Item) and isinstance(after, Item) and before.bullet == after.bullet:
                if before.text != after.text:
                    before.set_content(after.text)
            elif index == len(old) - 1 or isinstance(after, Item):
                await self.mount(after, after=before)
                await before.remove()
        await self.mount_all(new[len(old) :])


def _row(bullet: str, blocks: list[MarkdownBlock]) -> Widget:
    if len(blocks) == 1 and isinstance(blocks[0], MarkdownParagraph):
        return Item(bullet, blocks[0])
    mark = MarkdownBullet()
    mark.symbol = bullet
    return Horizontal(mark, Vertical(*blocks))


def _bullets(items: list[MarkdownListItem]) -> list[str]:
    """What stands before each item; numbers end at the same column."""
    if not items or not items[0].bullet.isdigit():
        return [item.bullet for item in items]
    numbers = [f"{number}. " for number in range(int(items[0].bullet), int(items[0].bullet) + len(items))]
    width = max(map(len, numbers)) + 1
    return [number.rjust(width) for number in numbers]
