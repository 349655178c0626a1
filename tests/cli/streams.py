"""A stream that says it is a terminal, and a clock that a test turns."""

from __future__ import annotations

import io
from dataclasses import dataclass


class Tty(io.StringIO):
    """Takes what would go to a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """What would stand in the last line now."""
        return self.getvalue().split("\n")[-1].split("\r\x1b[K")[-1]


@dataclass
class Clock:
    """Seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
