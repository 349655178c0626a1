"""What the engine's library has allocated, as it says in its log.

Knows the wording of llama.cpp's log lines; takes nothing itself. Invariant: outside the `with` block nothing listens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from localrun.llama.library import engine_log

_LINE = re.compile(r"(\S+)\s+(model|KV|RS|compute|output) buffer size =\s+([\d.]+) MiB")


@dataclass(slots=True)
class BufferSizes:
    """Bytes by (device buffer, kind): kinds are `model`, `KV`, `RS`, `compute` and `output`."""

    sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    complete: bool = True
    """False if nobody listened for a while."""

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    def of(self, kind: str) -> int:
        """Bytes of one kind on all devices."""
        return sum(size for (_, name), size in self.sizes.items() if name == kind)


@contextmanager
def buffer_sizes() -> Iterator[BufferSizes]:
    """Collects the sizes of the buffers that are made inside the block."""
    found = BufferSizes()

    def hear(line: str) -> None:
        if "buffer size" in line and (match := _LINE.search(line)):
            key = (match[1], match[2])
            found.sizes[key] = found.sizes.get(key, 0) + round(float(match[3]) * (1 << 20))

    log = engine_log()
    mark = log.mark()
    log.listeners.append(hear)
    try:
        yield found
    finally:
        log.listeners.remove(hear)
        found.complete = not log.missed_since(mark)
