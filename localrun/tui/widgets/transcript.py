"""The messages on the current path, newest at the bottom.

Knows views and scrolling; gets values, asks nobody. Invariant: while the user is at the bottom it stays there; once he
has scrolled up, nothing moves under his eyes. Parts of answers that are far from the screen sleep, and the oldest
messages of a very long path are mounted on demand, so the cost of a key press does not grow with the chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from localrun.tui.widgets.message import AnswerView, MessageView, PartBegun

SHOWN_MESSAGES = 30
"""How many messages are mounted at once. Older ones come when the user scrolls to the top."""


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
        self._is_looking = False

    async def show(self, views: Sequence[Widget], n_hidden: int) -> None:
        """Replace everything; `n_hidden` older messages are not among the views."""
        with self.app.batch_update():
            await self.remove_children()
            if n_hidden:
                await self.mount(_Earlier(Content(f"▴ {n_hidden} earlier messages"), markup=False))
            await self.mount_all(views)
        self.anchor()
        self._look_around()

    async def show_welcome(self, text: Content) -> None:
        """Nothing has been said yet."""
        await self.remove_children()
        await self.mount(Static(text, id="welcome", markup=False))

    async def add(self, view: MessageView) -> None:
        """Add a message at the end."""
        await self.query("#welcome").remove()
        await self.mount(view)
        self._look_around()

    @property
    def views(self) -> list[MessageView]:
        """The mounted messages from top to bottom."""
        return [child for child in self.children if isinstance(child, MessageView)]

    def view(self, message_id: int) -> MessageView | None:
        """The view of a message, if it is mounted."""
        return next((view for view in self.views if view.message_id == message_id), None)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._look_around()
        if new_value <= 0 < old_value and self.query(_Earlier):
            self.post_message(EarlierWanted())

    def on_resize(self) -> None:
        self._look_around()

    @on(PartBegun)
    def _part_begun(self, event: PartBegun) -> None:
        """Following a growing answer moves the view without `watch_scroll_y`."""
        event.stop()
        self._look_around()

    def _look_around(self) -> None:
        """Soon, wake what is near the screen and let the rest sleep; once for many changes."""
        if not self._is_looking:
            self._is_looking = True
            self.call_after_refresh(self._wake_near)

    async def _wake_near(self) -> None:
        self._is_looking = False
        for view in self.views:
            begin = view.virtual_region.y
            if not self._is_near(view, begin):
                await view.sleep()
            elif view.is_asleep:
                view.wake()
                self._woken(view, begin)
            for part in view.parts if isinstance(view, AnswerView) and not view.is_asleep else ():
                place = begin + part.virtual_region.y
                if not self._is_near(part, place):
                    await part.sleep()
                elif part.is_asleep:
                    await part.wake()
                    self._woken(part, place)

    def _is_near(self, widget: Widget, begin: int) -> bool:
        """Whether something that begins on that row is on the screen, or less than half a screen away."""
        margin = self.size.height / 2
        end = begin + widget.virtual_region.height
        return end >= self.scroll_y - margin and begin <= self.scroll_y + self.size.height + margin

    def _woken(self, widget: Widget, begin: int) -> None:
        """Look again, and if it lay above the screen and turns out longer or shorter, keep in place what is read."""
        before = widget.virtual_region.height
        if begin + before <= self.scroll_y and not self._follows:
            self.call_after_refresh(self._keep_place, widget, before)
        self.call_after_refresh(self._look_around)

    def _keep_place(self, widget: Widget, before: int) -> None:
        difference = widget.virtual_region.height - before
        if difference:
            self.scroll_relative(y=difference, animate=False, immediate=True)

    @property
    def _follows(self) -> bool:
        """Whether the view stays at the bottom while messages grow."""
        return self.is_anchored and self.scroll_y >= self.max_scroll_y


def first_shown(n_messages: int, limit: int = SHOWN_MESSAGES) -> int:
    """The index of the first message to mount."""
    return max(0, n_messages - limit)
