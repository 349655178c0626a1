"""How much memory there is.

Knows the operating system's figures, and takes the control group's limit where one is set; knows no model.
"""

from __future__ import annotations

import sys
from pathlib import Path


def available_memory() -> int:
    """Bytes that can be taken without swapping."""
    if sys.platform.startswith("linux"):
        available = _linux_available()
        if available is not None:
            return available
    import psutil

    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    """Bytes of RAM that this machine, or its control group, has."""
    if sys.platform.startswith("linux"):
        total = _meminfo("MemTotal:")
        if total is not None:
            limit, _ = _control_group()
            return min(total, limit) if limit is not None else total
    import psutil

    return int(psutil.virtual_memory().total)


def _linux_available() -> int | None:
    """`MemAvailable`, lowered to the control group's limit where one is set."""
    available = _meminfo("MemAvailable:")
    limit, used = _control_group()
    if available is None or limit is None:
        return available
    return min(available, max(0, limit - used))


def _meminfo(name: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    except (OSError, StopIteration, ValueError):
        return None


def _control_group() -> tuple[int | None, int]:
    """Limit and use of the control group; None where there is no limit, or the hierarchy is the old one."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return (None if limit == "max" else int(limit)), used
    except (OSError, ValueError):  # the machine's own figure stands
        return None, 0
