"""How many cores this process may use.

Knows the operating system's ways to tell; knows no engine. Invariant: never less than one.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path


def usable_cpus() -> int:
    """Logical processors this process may run on (affinity counts, as in containers)."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@lru_cache(maxsize=1)
def physical_cores() -> int:
    """Physical cores among the usable processors: decoding gains nothing from a core's second thread."""
    if hasattr(os, "sched_getaffinity"):
        cores = {_core_of(cpu) for cpu in os.sched_getaffinity(0)}
        return max(1, len(cores))
    import psutil

    return max(1, min(psutil.cpu_count(logical=False) or 1, usable_cpus()))


def _core_of(cpu: int) -> str:
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return siblings.read_text().strip()
    except OSError:  # no sysfs (some containers): every processor counts as a core
        return f"cpu{cpu}"
