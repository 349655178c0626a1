"""What goes along with the next message, and what waits: files, long pastes, queued messages, an edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.containers import Horizontal
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from localrun.chat.conversation.meter import visible


@dataclass
class ChipRemoved(Message):
    """The user does not want this after all."""

    key: str


class Chip(Static):
    """One small label with a cross."""

    HELP = "Goes along with the next message. Click to remove it; Backspace in the empty prompt removes the last one."

    DEFAULT_CSS = """
    Chip {
        width: auto; max-width: 48; height: 1; padding: 0 1; margin: 0 1 0 0;
        background: $panel; color: $secondary; text-wrap: nowrap; text-overflow: ellipsis;
    }
    Chip:hover { background: $error 30%; }
    Chip.-state { color: $warning; }
    """

    def __init__(self, key: str, words: str, *, is_state: bool = False) -> None:
        super().__init__(Content(f"{visible(words)} ×"), classes="-state" if is_state else "", markup=False)
        self.key = key
        self.words = words

    def on_click(self, event: Click) -> None:
        event.stop()
        self.post_message(ChipRemoved(self.key))


class Chips(Horizontal):
    """A row of chips; takes no room while it is empty."""

    DEFAULT_CSS = """
    Chips { height: auto; display: none; padding: 0 2; }
    Chips.-some { display: block; }
    """

    async def show(self, chips: Sequence[Chip]) -> None:
        """Replace the chips."""
        await self.remove_children()
        await self.mount_all(chips)
        self.set_class(bool(chips), "-some")

    @property
    def words(self) -> list[str]:
        return [chip.words for chip in self.query(Chip)]
