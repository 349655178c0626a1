"""How far a long piece of work is: the value that every stage reports to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one stage is. Work is counted in whatever the stage counts (weights, tokens)."""

    stage: str
    """`base`, `calibration text`, `importance`, `quantize`, `evaluation text`, `report`."""
    detail: str
    """What was just worked on: a tensor, a slice."""
    done: int
    total: int
    seconds: float
    """Since the stage began."""
    bytes_written: int = 0

    @property
    def eta(self) -> float | None:
        """Seconds left at the present rate, None before there is one."""
        return self.seconds * (self.total - self.done) / self.done if self.done else None


ProgressCallback = Callable[[Progress], None]
