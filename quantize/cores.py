"""How many cores to work with."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_cores() -> int:
    """Cores that nobody else seems to use, at least one.

    The engine's threads wait for each other hundreds of times a token: one that shares its core with another busy
    process stalls all of them. The workers of the pass do not wait, and may have every core.
    """
    cores = available_cores()
    return max(1, cores - round(os.getloadavg()[0])) if hasattr(os, "getloadavg") else cores
