"""What the application needs of the world: models to choose from, and a way to open one.

Protocols and values only, so every test of the screen runs without a catalogue and without an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from localrun.responder import Responder

OpenModel = Callable[[str], Responder]
"""Load the model of that name; blocks until it can answer. Raises `LocalrunError`."""

Fit = Literal["fits", "tight", "too big", "unknown"]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model in the picker."""

    name: str
    size_bytes: int | None
    """Size of the file, where known."""
    is_here: bool
    """On this machine already: nothing to download."""
    fit: Fit = "unknown"
    """Whether it fits into this machine's free memory."""
    detail: str = ""
    """Quantization, licence, source: a few words."""
    is_default: bool = False


class ModelShelf(Protocol):
    """The models that can be chosen."""

    def choices(self) -> Sequence[ModelChoice]:
        """All of them, those on this machine first. May read many files: called outside the screen's thread."""
        ...

    def has(self, name: str) -> bool:
        """Whether that model, in the list or not, is on this machine. Raises `LocalrunError` for a malformed name."""
        ...

    def check(self, name: str) -> None:
        """Raises `ModelNotFoundError`, with names that are near, for a model that is neither here nor to be had."""
        ...

    def fetch(self, name: str, progress: Callable[[int, int | None], None], cancelled: Callable[[], bool]) -> None:
        """Download a model; `progress` hears bytes done and in total. Returns early, without a model, once `cancelled`.

        Raises `LocalrunError`.
        """
        ...
