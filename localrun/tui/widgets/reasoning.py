"""What the model thought before its answer: one line, which opens.

Knows text and time. Invariant: closed, it costs one line and no work, however long the thoughts are.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.reactive import reactive
from textual.widgets import Static

from localrun.chat.conversation.meter import visible


class Reasoning(Vertical):
    """The reasoning of one answer."""

    HELP = "The model's thoughts. Click, or press space on the message, to open or close them."

    DEFAULT_CSS = """
    Reasoning { height: auto; margin: 0 0 1 0; }
    Reasoning > #reasoning-line { color: $muted; height: 1; }
    Reasoning > #reasoning-line:hover { color: $foreground; }
    Reasoning > #reasoning-text {
        display: none;
        color: $muted;
        border-left: outer $faint;
        padding: 0 1;
    }
    Reasoning.-open > #reasoning-text { display: block; }
    """

    is_open: reactive[bool] = reactive(False, init=False)

    def __init__(self, text: str = "", *, seconds: float | None = None, n_tokens: int = 0, done: bool = False) -> None:
        super().__init__()
        self.text = text
        self.seconds = seconds
        self._n_tokens = n_tokens
        self._done = done

    def compose(self) -> ComposeResult:
        yield Static(self._line(), id="reasoning-line", markup=False)
        yield Static("", id="reasoning-text", markup=False)

    def append(self, text: str, seconds: float) -> None:
        """More thoughts have come; `seconds` is how long it has been thinking."""
        self.text += text
        self.seconds = seconds
        self._refresh()

    def finish(self, seconds: float | None, n_tokens: int) -> None:
        """The thinking is over."""
        self.seconds, self._n_tokens, self._done = seconds, n_tokens, True
        self._refresh()

    def toggle(self) -> None:
        """Open or close."""
        self.is_open = not self.is_open

    def watch_is_open(self) -> None:
        self.set_class(self.is_open, "-open")
        self._refresh()

    def _refresh(self) -> None:
        if not self.is_mounted:
            return
        self.query_one("#reasoning-line", Static).update(self._line())
        if self.is_open:
            self.query_one("#reasoning-text", Static).update(Content(visible(self.text.strip())))

    def _line(self) -> Content:
        arrow = "▾" if self.is_open else "▸"
        seconds = f"{self.seconds:.1f} s" if self.seconds is not None else ""
        if not self._done:
            return Content(f"{arrow} Thinking… {seconds}".rstrip())
        length = f"{self._n_tokens:,} tokens" if self._n_tokens else f"{len(self.text.split()):,} words"
        words = f"Thought for {seconds} · {length}" if seconds else f"Thought · {length}"
        return Content(f"{arrow} {words}")

    def on_click(self, event: Click) -> None:
        if event.widget is not None and event.widget.id == "reasoning-line":
            event.stop()
            self.toggle()
