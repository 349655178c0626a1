"""Choosing a model, and downloading it if it is not here yet.

Knows a shelf of models and a download in a thread; opens no model. Invariant: leaving the screen cancels the download,
and a cancelled or failed download leaves no model behind that could be chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from localrun.chat.conversation.meter import visible
from localrun.errors import LocalrunError
from localrun.tui.ports import ModelChoice, ModelShelf
from localrun.tui.widgets.hanging import Hanging
from localrun.tui.words import size_words

_FIT_STYLES = {"fits": "$success", "tight": "$warning", "too big": "$error", "unknown": "$muted"}


class ModelScreen(ModalScreen[str | None]):
    """The picker. Returns the name of a model that is on this machine."""

    HELP = (
        "**Enter** chooses a model; one that is not here yet is downloaded first (**Esc** cancels). Each line shows the"
        " size and whether it fits into this machine's memory."
    )

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back")]

    DEFAULT_CSS = """
    ModelScreen { align: center middle; background: $background 60%; }
    ModelScreen > #dialog {
        width: 84; max-width: 96%; height: auto; max-height: 90%; overflow-y: auto;
        background: $surface; border: round $faint; padding: 1 2;
        border-title-color: $primary; border-subtitle-color: $muted;
    }
    ModelScreen #model-text { height: auto; color: $foreground; margin: 0 0 1 0; }
    ModelScreen OptionList { height: auto; max-height: 45vh; background: $surface; border: none; padding: 0; }
    ModelScreen OptionList:focus { border: none; background-tint: transparent; }
    ModelScreen OptionList > .option-list--option { padding: 0 1; }
    ModelScreen OptionList > .option-list--option-highlighted,
    ModelScreen OptionList:focus > .option-list--option-highlighted {
        background: $primary 25%; color: $foreground; text-style: none;
    }
    ModelScreen #download { height: auto; display: none; margin-top: 1; }
    ModelScreen.-downloading #download { display: block; }
    ModelScreen ProgressBar, ModelScreen ProgressBar Bar { width: 1fr; }
    ModelScreen #download-words { color: $muted; }
    ModelScreen #model-problem { color: $error; height: auto; }
    """

    def __init__(self, shelf: ModelShelf, *, current: str | None = None, text: str = "", wanted: str | None = None):
        """`text` says why the screen is shown; `wanted` is the model to begin with."""
        super().__init__()
        self._shelf = shelf
        self._current = current
        self._text = text
        self._wanted = wanted
        self._choices: tuple[ModelChoice, ...] = ()
        self._cancel: threading.Event | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as dialog:
            dialog.border_title = Content("Models")
            dialog.border_subtitle = Content("Enter choose · Esc back")
            yield Static(Content(visible(self._text)), id="model-text", markup=False)
            yield OptionList(id="model-list", markup=False)
            with Vertical(id="download"):
                yield ProgressBar(show_eta=True)
                yield Static("", id="download-words", markup=False)
            yield Static("", id="model-problem", markup=False)

    def on_mount(self) -> None:
        self.query_one("#model-text").display = bool(self._text)
        self.query_one(OptionList).focus()
        self.query_one(OptionList).loading = True
        self._look()

    @work(thread=True, exclusive=True, group="look")
    def _look(self) -> None:
        try:
            choices = self._shelf.choices()
        except LocalrunError as error:
            self.app.call_from_thread(self._show_problem, error)
            choices = ()
        self.app.call_from_thread(self._show, choices)

    def _show(self, choices: Sequence[ModelChoice]) -> None:
        if not self.is_attached:
            return
        if self._wanted is not None and self._wanted not in [choice.name for choice in choices]:
            choices = [*choices, ModelChoice(self._wanted, None, False, detail="as you named it")]
        self._choices = tuple(choices)
        options = self.query_one(OptionList)
        options.loading = False
        options.clear_options()
        width = max((len(choice.name) for choice in choices), default=0)
        for choice in choices:
            options.add_option(Option(_label(choice, width, choice.name == self._current), id=choice.name))
        if not choices:
            self.query_one("#model-problem", Static).update("No list of models; name one: /model NAME")
        names = [choice.name for choice in choices]
        default = next((choice.name for choice in choices if choice.is_default), None)
        wanted = next((name for name in (self._wanted, self._current, default) if name in names), None)
        options.highlighted = names.index(wanted) if wanted is not None else (0 if names else None)

    def _show_problem(self, error: LocalrunError) -> None:
        if not self.is_attached:
            return
        words = error.message if error.hint is None else f"{error.message}\n{error.hint}"
        problem = self.query_one("#model-problem", Static)
        problem.update(Content(visible(words)))
        self.call_after_refresh(problem.scroll_visible, animate=False)  # on a small screen it may lie below the edge

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        choice = next(choice for choice in self._choices if choice.name == event.option.id)
        if choice.is_here:
            self.dismiss(choice.name)
        elif self._cancel is None:
            self._start(choice)

    def _start(self, choice: ModelChoice) -> None:
        self._cancel = threading.Event()
        self.query_one("#model-problem", Static).update("")
        self.query_one(ProgressBar).update(total=choice.size_bytes, progress=0)
        self.query_one("#download-words", Static).update(Content(f"Downloading {visible(choice.name)} · Esc cancels"))
        self.add_class("-downloading")
        self._fetch(choice.name, self._cancel)

    @work(thread=True, group="fetch")
    def _fetch(self, name: str, cancel: threading.Event) -> None:
        def progress(done: int, total: int | None) -> None:
            if not cancel.is_set():
                self.app.call_from_thread(self._progress, name, done, total)

        try:
            self._shelf.fetch(name, progress, cancel.is_set)
        except LocalrunError as error:
            if not cancel.is_set():
                self.app.call_from_thread(self._failed, error)
            return
        self.app.call_from_thread(self._fetched, name, cancel)

    def _fetched(self, name: str, cancel: threading.Event) -> None:
        if self.is_attached and not cancel.is_set():  # asked here: the user may have left since the last byte came
            self.dismiss(name)

    def _progress(self, name: str, done: int, total: int | None) -> None:
        if not self.is_attached or self._cancel is None:
            return
        self.query_one(ProgressBar).update(total=total, progress=done)
        amount = f"{size_words(done)} of {size_words(total)}" if total else size_words(done)
        self.query_one("#download-words", Static).update(
            Content(f"Downloading {visible(name)} · {amount} · Esc cancels")
        )

    def _failed(self, error: LocalrunError) -> None:
        if not self.is_attached:
            return
        self._cancel = None
        self.remove_class("-downloading")
        self._show_problem(error)

    def on_unmount(self) -> None:
        if self._cancel is not None:
            self._cancel.set()

    def action_back(self) -> None:
        """Cancel the download; without one, leave."""
        if self._cancel is None:
            self.dismiss(None)
            return
        self._cancel.set()
        self._cancel = None
        self.remove_class("-downloading")


def _label(choice: ModelChoice, width: int, is_current: bool) -> Hanging:
    text = Content.assemble(
        (f"{visible(choice.name):{width}}", "$foreground"),
        (f"  {size_words(choice.size_bytes):>8}", "$muted"),
        ("  here      " if choice.is_here else "  download  ", "$success" if choice.is_here else "$muted"),
        (choice.fit if choice.fit != "unknown" else "", _FIT_STYLES[choice.fit]),
        (f"\n{visible(choice.detail)}" if choice.detail else "", "$muted"),
    )
    return Hanging(Content.styled("● " if is_current else "  ", "$primary"), text)
