"""What the engine's library has allocated, as it says in its log.

Knows the wording of llama.cpp's log lines; takes nothing itself. Invariant: outside the `with` block nothing listens.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from localrun.llama.library import engine_log
from localrun.llama.log import logger

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

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if match := _LINE.search(record.getMessage()):
                key = (match[1], match[2])
                found.sizes[key] = found.sizes.get(key, 0) + round(float(match[3]) * (1 << 20))

    mark = engine_log().mark()
    collector, level, propagate = Collector(logging.DEBUG), logger.level, logger.propagate
    if not logger.isEnabledFor(logging.DEBUG):
        # The lines are of level DEBUG. Who listens at a higher level must not hear more because of us.
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    logger.addHandler(collector)
    try:
        yield found
    finally:
        found.complete = not engine_log().missed_since(mark)
        logger.removeHandler(collector)
        logger.setLevel(level)
        logger.propagate = propagate
