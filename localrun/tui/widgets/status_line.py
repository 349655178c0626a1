"""The line at the bottom: model, context, speed.

Knows numbers and widths; asks nobody. Invariant: what does not fit is left out whole, the least important first; a
number that is shown is never cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from localrun.chat.conversation import Room
from localrun.chat.conversation.meter import visible

_WIDE = 100
"""From this width on the gauge is long."""
_NEARLY_FULL = 0.8
"""From this share on the gauge warns: there is still time to choose in peace."""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything the line can show."""

    model: str = ""
    loading: str = ""
    """What is being loaded, while it is."""
    temperature: float | None = None
    grammar: str = ""
    room: Room | None = None
    activity: str = ""
    """What is going on now: reading the prompt, thinking, writing."""
    meter: tuple[str, ...] = ()
    """What the last answer cost."""
    hint: str = ""
    """Keys of what has the focus, in place of everything else."""


def gauge(room: Room, n_cells: int) -> Content:
    """A bar: used, reserved, free."""
    limit = max(room.limit, 1)
    used = min(n_cells, round(n_cells * room.used / limit))
    reserved = min(n_cells - used, round(n_cells * room.reserved / limit))
    full = room.used + room.reserved > room.limit * _NEARLY_FULL
    return Content.assemble(
        ("━" * used, "$warning" if full else "$primary"),
        ("━" * reserved, "$accent 60%"),
        ("━" * (n_cells - used - reserved), "$faint"),
    )


def status_content(status: Status, width: int) -> Content:
    """The line for a screen of that width."""
    if status.hint:
        keys = status.hint.split(" · ")
        while len(keys) > 1 and cell_len(" · ".join(keys)) > width:
            keys.pop()
        return Content.styled(" · ".join(keys), "$muted")
    parts = _parts(status, 10 if width >= _WIDE else 6)
    while len(parts) > 1 and _width(parts) > width:
        least = max(parts, key=lambda part: part[0])
        parts.remove(least)
    separator = Content.styled(" · ", "$muted")
    return separator.join([content for _, content in parts])


def _width(parts: list[tuple[int, Content]]) -> int:
    return sum(cell_len(content.plain) for _, content in parts) + 3 * (len(parts) - 1)


def _parts(status: Status, n_cells: int) -> list[tuple[int, Content]]:
    """The parts from left to right, each with its rank: the highest goes first when room is short."""
    parts: list[tuple[int, Content]] = []
    if status.loading:
        parts.append((1, Content.styled(visible(status.loading), "$warning")))
    elif status.model:
        parts.append((1, Content.styled(visible(status.model), "$foreground")))
    else:
        parts.append((1, Content.styled("no model: /model", "$warning")))
    if status.temperature is not None:
        parts.append((7, Content.styled(f"T {status.temperature:g}", "$muted")))
    if status.grammar:
        parts.append((5, Content.styled(f"grammar {visible(status.grammar)}", "$accent")))
    if status.room is not None and status.room.limit:
        room = status.room
        reserved = f" + {room.reserved:,}" if room.reserved else ""
        numbers = Content.styled(f" {room.used:,}{reserved} of {room.limit:,}", "$muted")
        parts.append((2, gauge(room, n_cells) + numbers))
    if status.activity:
        parts.append((0, Content.styled(status.activity, "$secondary")))
    for rank, words in enumerate(status.meter if not status.activity else ()):
        parts.append(((4, 3, 8)[min(rank, 2)], Content.styled(words, "$muted")))
    return parts


class StatusLine(Static):
    """One line; `set` changes parts of it."""

    HELP = (
        "Model · temperature · context: used + reserved for the answer, of the limit · tokens of the last prompt that"
        " were found in a cache · speed · time to the first token (TTFT)."
    )

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 2; color: $muted; background: $background; text-wrap: nowrap; }
    """

    status: reactive[Status] = reactive(Status(), layout=False)

    def __init__(self) -> None:
        super().__init__(id="status", markup=False)

    def set(self, **changes: Any) -> None:
        """Change some fields of the status."""
        self.status = replace(self.status, **changes)

    def render(self) -> Content:
        return status_content(self.status, max(self.content_size.width, 10))
