"""The places a model can lie in: RAM and graphics memory, as plain values.

Knows nothing of the engine: who loads the engine fills these in. Invariant: `budget` never promises memory that the
user's other programs, or the driver, will want.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localrun.hardware.memory import available_memory, total_memory

DeviceKind = Literal["gpu", "unified"]

_GIB = 1 << 30
_GPU_MARGIN = _GIB
"""What the driver and the desktop take beside a model; llama.cpp's own fitting leaves as much free (`--fit-target`)."""
_RAM_MARGIN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. Of a unified one, `total` is the working set that the system recommends."""

    name: str
    kind: DeviceKind
    total: int
    free: int
    backend: str = ""
    splits_rows: bool = False
    """Whether the backend can share the rows of one matrix among its devices."""

    @property
    def budget(self) -> int:
        """Bytes that may be planned with."""
        if self.kind == "unified":
            return min(self.free, self.total)  # the recommended working set holds the margin already
        return max(0, self.free - min(_GPU_MARGIN, self.total // 8))


@dataclass(frozen=True, slots=True)
class Memory:
    """RAM in bytes."""

    total: int
    available: int

    @property
    def budget(self) -> int:
        """Bytes that may be planned with: a twentieth of the machine, and half a GiB at least, stays free."""
        margin = min(max(int(self.total * _RAM_MARGIN_SHARE), _GIB // 2), 2 * _GIB)
        return max(0, self.available - min(margin, self.available // 4))


def system_memory() -> Memory:
    """The RAM of this machine (or control group) now."""
    return Memory(total_memory(), available_memory())
