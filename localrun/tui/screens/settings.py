"""The settings of a chat as a form.

Knows the names and forms of the values; the ranges are checked where the values are made. Invariant: what is out of
range is said beside the form, and nothing is changed; every value can be read and written on the narrowest screen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Select, Static, TextArea

from localrun.chat.conversation import ON_FULL, ChatSettings
from localrun.errors import UsageError

_ON_FULL = {"ask": "ask me", "compact": "compact", "shift": "shift"}
_THINK = {"default": "automatic", "yes": "always", "no": "never"}
_THINK_VALUES: dict[str, bool | None] = {"default": None, "yes": True, "no": False}

# name, label, type; empty means None where that is allowed
_NUMBERS: tuple[tuple[str, str, type[int] | type[float]], ...] = (
    ("temperature", "Temperature", float),
    ("top_p", "Top-p", float),
    ("top_k", "Top-k", int),
    ("min_p", "Min-p", float),
    ("repeat_penalty", "Repeat penalty", float),
    ("seed", "Seed", int),
)


class SettingsScreen(ModalScreen[ChatSettings | None]):
    """System prompt, sampling, and what happens when the context is full."""

    HELP = "**Tab** goes from field to field, **Ctrl+S** keeps the settings, **Esc** leaves them as they were."

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("ctrl+s", "keep", "Keep", priority=True),
    ]

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-wide")]  # noqa: RUF012  # Textual's declaration

    DEFAULT_CSS = """
    SettingsScreen { align: center middle; background: $background 60%; }
    SettingsScreen > #dialog {
        width: 80; max-width: 96%; height: auto; max-height: 94%;
        background: $surface; border: round $faint; padding: 1 2;
        border-title-color: $primary; border-subtitle-color: $muted;
        scrollbar-size-vertical: 1;
    }
    SettingsScreen Label { color: $muted; }
    SettingsScreen #system { height: 4; border: none; padding: 0 1; background: $panel; margin: 0 0 1 0; }
    SettingsScreen Grid { grid-size: 4; grid-columns: 15 1fr 15 1fr; grid-gutter: 0 2; height: auto; grid-rows: 1; }
    SettingsScreen Input { border: none; height: 1; padding: 0 1; background: $panel; }
    SettingsScreen Input:focus { background: $primary 25%; }
    SettingsScreen #choices { margin: 1 0 0 0; }
    SettingsScreen.-narrow #dialog { padding: 0 1; }
    SettingsScreen.-narrow #system { height: 3; }
    SettingsScreen.-narrow Grid { grid-size: 2; grid-columns: 14 1fr; grid-gutter: 0 1; }
    SettingsScreen #problem { color: $error; height: auto; }
    SettingsScreen #buttons { height: auto; align-horizontal: right; margin-top: 1; }
    SettingsScreen Button { margin-left: 2; }
    """

    def __init__(self, settings: ChatSettings) -> None:
        super().__init__()
        self._settings = settings

    def compose(self) -> ComposeResult:
        settings = self._settings
        with VerticalScroll(id="dialog", can_focus=False) as dialog:
            dialog.border_title = Content("Settings of this chat")
            dialog.border_subtitle = Content("^s keep · Esc back")
            yield Label("System prompt")
            yield TextArea(
                settings.system, id="system", show_line_numbers=False, highlight_cursor_line=False, tab_behavior="focus"
            )
            with Grid():
                for name, label, _ in _NUMBERS:
                    value = getattr(settings.params.sampling, name)
                    yield Label(label)
                    yield Input(
                        "" if value is None else f"{value:g}",
                        id=name,
                        placeholder="random",
                        compact=True,
                        select_on_focus=False,
                    )
                yield Label("Longest answer")
                longest = settings.params.max_tokens
                yield Input(
                    "" if longest is None else str(longest), id="max_tokens", placeholder="no limit", compact=True
                )
            with Grid(id="choices"):
                yield Label("Context full")
                yield Select(
                    [(label, key) for key, label in _ON_FULL.items()],
                    value=settings.on_full,
                    allow_blank=False,
                    id="on_full",
                    compact=True,
                )
                yield Label("Reasoning")
                yield Select(
                    [(label, key) for key, label in _THINK.items()],
                    value=next(key for key, value in _THINK_VALUES.items() if value == settings.params.think),
                    allow_blank=False,
                    id="think",
                    compact=True,
                )
            yield Static("", id="problem", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Keep", variant="primary", id="keep", compact=True)
                yield Button("Back", id="back", compact=True)

    def on_mount(self) -> None:
        self.query_one("#temperature").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "keep":
            self.action_keep()
        else:
            self.dismiss(None)

    def on_input_submitted(self) -> None:
        self.action_keep()

    def action_keep(self) -> None:
        try:
            settings = self._read()
        except UsageError as error:
            self.query_one("#problem", Static).update(Content(error.message))
            return
        self.dismiss(settings)

    def _read(self) -> ChatSettings:
        settings = self._settings
        numbers = {name: self._number(name, label, kind) for name, label, kind in _NUMBERS}
        if missing := [label for name, label, _ in _NUMBERS if numbers[name] is None and name != "seed"]:
            raise UsageError(f"{missing[0]} needs a number")
        sampling = replace(settings.params.sampling, **numbers)  # type: ignore[arg-type]  # types are those of _NUMBERS
        longest = self._number("max_tokens", "Longest answer", int)
        think = _THINK_VALUES[str(self.query_one("#think", Select).value)]
        params = replace(
            settings.params, sampling=sampling, max_tokens=None if longest is None else int(longest), think=think
        )
        on_full = str(self.query_one("#on_full", Select).value)
        assert on_full in ON_FULL
        system = self.query_one("#system", TextArea).text
        return replace(settings, system=system, params=params, on_full=on_full)

    def _number(self, name: str, label: str, kind: type[int] | type[float]) -> int | float | None:
        written = self.query_one(f"#{name}", Input).value.strip()
        if not written:
            return None
        try:
            return kind(written)
        except ValueError as error:
            what = "a whole number" if kind is int else "a number"
            raise UsageError(f"{label} is {written!r}, which is not {what}") from error
