"""How many cores other programs are using right now.

Knows the operating system's counters; knows no engine. Invariant: it never blocks, and says None where it cannot tell.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PROC_STAT = Path("/proc/stat")
_IS_LINUX: bool = sys.platform.startswith("linux")
_SHORTEST_S = 0.06
"""The kernel counts in ticks of 10 ms: a shorter look would be mostly rounding."""


class LoadProbe:
    """Cores that other programs used since the last look, on the processors this process may use."""

    def __init__(
        self,
        *,
        busy_seconds: Callable[[], float | None] | None = None,
        own_seconds: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._busy_seconds = busy_seconds or _system_busy_seconds
        self._own_seconds = own_seconds
        self._clock = clock
        self._last = self._look()

    def others(self) -> float | None:
        """Cores used by others (0.0 and up) since the last answer; None if that was too short ago, or unknown."""
        if self._clock() - self._last[0] < _SHORTEST_S:
            return None
        last, now = self._last, self._look()
        self._last = now
        if last[1] is None or now[1] is None:
            return None
        elapsed = now[0] - last[0]
        return max(0.0, (now[1] - last[1]) - (now[2] - last[2])) / elapsed

    def _look(self) -> tuple[float, float | None, float]:
        return self._clock(), self._busy_seconds(), self._own_seconds()


def _system_busy_seconds() -> float | None:
    """Seconds that all usable processors together have not been idle."""
    if _IS_LINUX:
        return _linux_busy_seconds()
    import psutil

    times = psutil.cpu_times()
    return float(sum(times) - times.idle)


def _linux_busy_seconds() -> float | None:
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        lines = _PROC_STAT.read_text().splitlines()
    except OSError:  # a container that hides it
        return None
    ticks = 0
    for line in lines:
        name, *fields = line.split()
        if name in usable:
            values = [int(field) for field in fields[:8]]
            # user, nice, system, idle, iowait, irq, softirq, steal: all but idle and iowait keep a core from us.
            ticks += sum(values) - values[3] - values[4]
    return ticks / os.sysconf("SC_CLK_TCK")
