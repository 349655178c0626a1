"""How many cores to work with."""

from __future__ import annotations

import os
import time

_LOOK_SECONDS = 0.25


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_cores() -> int:
    """Cores that nobody else uses at the moment, at least one. Takes a quarter of a second.

    The engine's threads wait for each other hundreds of times a token: one that shares its core with another busy
    process stalls all of them. The workers of the pass do not wait, and may have every core.
    """
    cores = available_cores()
    before = _idle_and_total()
    if before is None or cores == 1:
        return cores
    time.sleep(_LOOK_SECONDS)
    after = _idle_and_total()
    if after is None or after[1] == before[1]:
        return cores
    return max(1, round(cores * (after[0] - before[0]) / (after[1] - before[1])))


def _idle_and_total() -> tuple[int, int] | None:
    """Time that all cores were idle, and all their time, in the kernel's ticks; None where it does not tell."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(value) for value in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return ticks[3] + ticks[4], sum(ticks)
