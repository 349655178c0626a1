"""The messages on the current path, newest at the bottom.

Knows views and scrolling; gets values, asks nobody. Invariant: while the user is at the bottom it stays there; once he
has scrolled up, nothing moves under his eyes. Old messages of a long path are shown on demand, so the cost of a key
press does not grow with the length of the chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from localrun.tui.widgets.message import MessageView

SHOWN_CHARACTERS = 24_000
"""How much of the path is mounted at once: some ten screens. Older messages come when asked for."""


@dataclass
class EarlierWanted(Message):
    """The user wants to see older messages."""


class _Earlier(Static):
    """The line that stands for the messages that are not mounted."""

    def on_click(self, event: Click) -> None:
        event.stop()
        self.post_message(EarlierWanted())


class Transcript(VerticalScroll, can_focus=False):
    """A scrolling list of messages."""

    HELP = "The conversation. Ctrl+↑ walks into it; the keys of a message are shown at the bottom."

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        padding: 1 1 0 1;
        background: $background;
        align: center bottom;
        scrollbar-size-vertical: 1;
    }
    Transcript > _Earlier { color: $muted; text-align: center; height: 1; margin-bottom: 1; max-width: 108; }
    Transcript > _Earlier:hover { color: $foreground; }
    Transcript > #welcome { color: $muted; text-align: center; padding: 2 2; height: auto; }
    """

    def __init__(self) -> None:
        super().__init__(id="transcript")

    async def show(self, views: Sequence[Widget], n_hidden: int) -> None:
        """Replace everything; `n_hidden` older messages are not among the views."""
        with self.app.batch_update():
            await self.remove_children()
            if n_hidden:
                await self.mount(_Earlier(Content(f"▴ {n_hidden} earlier messages"), markup=False))
            await self.mount_all(views)
        self.anchor()

    async def show_welcome(self, text: Content) -> None:
        """Nothing has been said yet."""
        await self.remove_children()
        await self.mount(Static(text, id="welcome", markup=False))

    async def add(self, view: MessageView) -> None:
        """Add a message at the end."""
        await self.query("#welcome").remove()
        await self.mount(view)

    def view(self, message_id: int) -> MessageView | None:
        """The view of a message, if it is mounted."""
        return next((view for view in self.query(MessageView) if view.message_id == message_id), None)

    def on_scroll_to_top(self) -> None:
        self.post_message(EarlierWanted())


def first_shown(lengths: Sequence[int], budget: int = SHOWN_CHARACTERS) -> int:
    """The index of the first message to mount, so that the last ones fill the budget; at least the last two."""
    total = 0
    for index in range(len(lengths) - 1, -1, -1):
        total += lengths[index]
        if total > budget and index < len(lengths) - 2:
            return index + 1
    return 0
