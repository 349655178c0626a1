"""One message of the transcript, with the keys that act on it.

Knows how a message looks and what can be asked of it; does nothing itself but fold and unfold. Invariant: text is shown
literally, the user's own included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from localrun.chat.conversation.meter import visible
from localrun.store import Attachment
from localrun.tui.widgets.answer_markdown import AnswerMarkdown, code_blocks, grown_parts, in_parts
from localrun.tui.widgets.code_block import CopyRequested
from localrun.tui.widgets.reasoning import Reasoning
from localrun.tui.words import attachment_words

Wish = Literal["edit", "regenerate", "previous", "next", "continue"]


@dataclass
class MessageWish(Message):
    """The user wants something done with a message."""

    message_id: int
    wish: Wish


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands among its alternatives: number `index` of `count`, counted from 1."""

    index: int = 1
    count: int = 1

    @property
    def words(self) -> str:
        return f"‹ {self.index}/{self.count} ›" if self.count > 1 else ""


class MessageView(Vertical, can_focus=True):
    """What all messages have in common: focus, a mark when focused, and walking from one to the next."""

    HINT = "Esc back · c copy · ↑↓ walk"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "copy", "Copy"),
        Binding("left", "wish('previous')", "Other version", key_display="←→"),
        Binding("right", "wish('next')", "Next version", show=False),
        Binding("up", "step(-1)", "Message above", show=False),
        Binding("down", "step(1)", "Message below", show=False),
    ]

    DEFAULT_CSS = """
    MessageView {
        height: auto;
        max-width: 108;
        padding: 0 2 0 1;
        border-left: outer transparent;
        background: transparent;
    }
    MessageView:focus { border-left: outer $primary; }
    MessageView > .footer { color: $muted; height: auto; }
    MessageView > .footer.-empty { display: none; }
    """

    def __init__(self, message_id: int, text: str, place: Place) -> None:
        super().__init__()
        self.message_id = message_id
        self.text = text
        self.place = place
        self.is_asleep = False

    async def sleep(self) -> None:
        """Keep the height, hide everything: far from the screen, what is laid out is one widget a message.

        By inline styles, because a class would have the style sheet applied to everything in the message.
        """
        if not self.is_asleep and self.size.height:
            self.is_asleep = True
            self.styles.height = self.outer_size.height
            for child in self.children:
                child.styles.display = "none"

    def wake(self) -> None:
        """Show everything again."""
        self.is_asleep = False
        self.styles.height = "auto"
        for child in self.children:
            child.styles.display = None

    def footer_words(self) -> str:
        """What stands below the message."""
        return self.place.words

    def footer(self) -> Static:
        words = self.footer_words()
        return Static(Content(words), classes="footer" if words else "footer -empty", markup=False)

    def refresh_footer(self) -> None:
        words = self.footer_words()
        footer = self.query_one(".footer", Static)
        footer.update(Content(words))
        footer.set_class(not words, "-empty")

    def action_copy(self) -> None:
        self.post_message(CopyRequested(self.text, "the message"))

    def action_wish(self, wish: Wish) -> None:
        self.post_message(MessageWish(self.message_id, wish))

    def action_step(self, step: int) -> None:
        """Focus the message above or below; below the last one is the prompt."""
        views = list(self.screen.query(MessageView))
        place = views.index(self) + step
        if place >= len(views):
            self.post_message(LeftTranscript())
        elif place >= 0:
            views[place].focus()


@dataclass
class LeftTranscript(Message):
    """The user walked down past the last message."""


@dataclass
class PartBegun(Message):
    """An answer has grown beyond a part: others may have left the screen."""


class UserView(MessageView):
    """A message of the user's."""

    HINT = "Esc back · e edit · c copy · ←→ other versions · ↑↓ walk"
    HELP = "Your message. **e** edits it into a new branch, **c** copies it, **←→** show its other versions."

    BINDINGS: ClassVar[list[BindingType]] = [Binding("e", "wish('edit')", "Edit")]

    DEFAULT_CSS = """
    UserView { background: $surface; border-left: outer $primary 45%; margin: 0 0 1 0; padding: 0 2 0 1; }
    UserView > .attachment { color: $secondary; height: auto; }
    """

    def __init__(
        self, message_id: int, text: str, place: Place = Place(), attachments: Sequence[Attachment] = ()
    ) -> None:
        super().__init__(message_id, text, place)
        self.attachments = tuple(attachments)

    def compose(self) -> ComposeResult:
        for attachment in self.attachments:
            yield Static(Content(attachment_words(attachment)), classes="attachment", markup=False)
        if self.text:
            yield Static(Content(visible(self.text)), markup=False)
        yield self.footer()


class AnswerView(MessageView):
    """An answer, complete or growing."""

    HINT = "Esc back · c copy · y copy code · r again · g go on · space reasoning · ←→ other versions · ↑↓ walk"
    HELP = (
        "The model's answer. **r** makes another one, **c** copies it, **y** copies its code, **space** opens the"
        " reasoning, **g** goes on with an answer that was stopped, **←→** show its other versions."
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "wish('regenerate')", "Again"),
        Binding("y", "copy_code", "Copy code"),
        Binding("g", "wish('continue')", "Go on"),
        Binding("space", "fold", "Reasoning"),
    ]

    DEFAULT_CSS = """
    AnswerView { margin: 0; }
    AnswerView > .footer { margin: 0 0 1 0; }
    """

    def __init__(
        self,
        message_id: int,
        text: str = "",
        place: Place = Place(),
        *,
        reasoning: Reasoning | None = None,
        footer: str = "",
    ) -> None:
        super().__init__(message_id, text, place)
        self._reasoning = reasoning
        self._footer = footer
        self._next_code = 0

    def compose(self) -> ComposeResult:
        if self._reasoning is not None:
            yield self._reasoning
        for part in in_parts(self.text):
            yield AnswerMarkdown(part, asleep=bool(part))
        yield self.footer()

    @property
    def parts(self) -> list[AnswerMarkdown]:
        """The text in parts, each of which may be asleep."""
        return [child for child in self.children if isinstance(child, AnswerMarkdown)]

    @property
    def reasoning(self) -> Reasoning | None:
        return self._reasoning

    async def sleep(self) -> None:
        for part in self.parts:
            await part.sleep()
        if not any(part.is_growing for part in self.parts):
            await super().sleep()

    def footer_words(self) -> str:
        return " · ".join(words for words in (self._footer, self.place.words) if words)

    def set_footer(self, words: str) -> None:
        """What stands below the answer: how it ended and what it cost."""
        self._footer = words
        self.refresh_footer()

    async def append(self, text: str) -> None:
        """Show more of the answer."""
        self.text += text
        last = self.parts[-1]
        head, *grown = grown_parts(last.text, text)
        await last.grow(head)
        if grown:
            last.rest()
            tail = AnswerMarkdown()
            await self.mount_all([*(AnswerMarkdown(part, asleep=True) for part in grown[:-1]), tail], after=last)
            await tail.grow(grown[-1])
            self.post_message(PartBegun())

    async def append_reasoning(self, text: str, seconds: float) -> None:
        """Show more of the reasoning."""
        if self._reasoning is None:
            self._reasoning = Reasoning()
            await self.mount(self._reasoning, before=0)
        self._reasoning.append(text, seconds)

    async def finish(self) -> None:
        """The answer is complete."""
        for part in self.parts:
            await part.finish()

    def action_fold(self) -> None:
        if self._reasoning is not None:
            self._reasoning.toggle()

    def action_copy_code(self) -> None:
        """Copy the next block of code; pressing again takes the one after it."""
        blocks = code_blocks(self.text)
        if not blocks:
            self.notify("This answer holds no code.", markup=False)
            return
        index = self._next_code % len(blocks)
        self._next_code = index + 1
        self.post_message(CopyRequested(blocks[index], f"block {index + 1} of {len(blocks)}"))


class MarkView(MessageView):
    """Where the model stops seeing what is above: a summary that can be opened, or a plain mark."""

    HINT = "Esc back · space open · c copy · ↑↓ walk"
    HELP = "From here on the model no longer sees the messages above word for word. **space** opens the summary."

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "fold", "Open")]

    DEFAULT_CSS = """
    MarkView { margin: 0 0 1 0; color: $warning; }
    MarkView > #mark-text { display: none; color: $muted; border-left: outer $warning 50%; padding: 0 1; }
    MarkView.-open > #mark-text { display: block; }
    """

    def __init__(self, message_id: int, kind: str, text: str) -> None:
        super().__init__(message_id, text, Place())
        self._kind = kind

    def compose(self) -> ComposeResult:
        yield Static(self._line(), id="mark-line", markup=False)
        if self._kind == "summary":
            yield Static(Content(visible(self.text)), id="mark-text", markup=False)
        yield self.footer()

    def _line(self) -> Content:
        if self._kind == "shift":
            return Content(f"── {visible(self.text)} ──")
        arrow = "▾" if self.has_class("-open") else "▸"
        words = len(self.text.split())
        return Content(f"{arrow} Summary: {words:,} words stand for the messages above")

    def append(self, text: str) -> None:
        """The summary grows."""
        self.text += text
        self._refresh()

    def _refresh(self) -> None:
        self.query_one("#mark-line", Static).update(self._line())
        self.query_one("#mark-text", Static).update(Content(visible(self.text)))

    def action_fold(self) -> None:
        if self._kind == "summary":
            self.toggle_class("-open")
            self._refresh()

    def on_click(self) -> None:
        self.action_fold()
