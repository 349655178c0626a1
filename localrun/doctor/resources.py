"""Memory, swap, load and disk: what is free, and what is in the way."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

from localrun.catalog.hub_cache import hub_cache_folder
from localrun.catalog.storage import human_size
from localrun.doctor.finding import Finding
from localrun.hardware.bandwidth import memory_bandwidth
from localrun.hardware.cpu import physical_cores, usable_cpus
from localrun.hardware.devices import system_memory
from localrun.hardware.load import LoadProbe
from localrun.paths import default_paths, nearest_existing

_GB = 10**9
_LITTLE_MEMORY = 2 * _GB
_LITTLE_DISK = 5 * _GB
"""A usual 7B model in four bits takes about 4.5 GB."""
_LOOK_S = 0.4


def look_at_memory() -> Iterator[Finding]:
    """Free RAM, and what lies in swap."""
    import psutil

    memory = system_memory()
    text = f"{human_size(memory.available)} of {human_size(memory.total)} free"
    known = memory_bandwidth(measure=False)
    if known:
        text += f"; reads {known / 1e9:.0f} GB/s"
    facts = {"total": memory.total, "available": memory.available, "bandwidth": known}
    if memory.available < _LITTLE_MEMORY:
        yield Finding(
            "memory", "warning", f"only {text}", "close programs, or take a small model: `localrun plan`", facts
        )
    else:
        yield Finding("memory", "ok", text, facts=facts)
    swap = psutil.swap_memory()
    if swap.total and swap.used > max(_GB, swap.total // 4):
        text = f"{human_size(swap.used)} of {human_size(swap.total)} in use: a model that is swapped out is very slow"
        yield Finding("swap", "warning", text, "close programs that hold memory, or take a smaller model")
    else:
        size = human_size(swap.total) if swap.total else "none"
        yield Finding("swap", "ok", f"{size}, {human_size(swap.used)} in use")


def look_at_load() -> Iterator[Finding]:
    """Cores that other programs keep busy right now."""
    probe = LoadProbe()
    time.sleep(_LOOK_S)
    others = probe.others()
    cores, threads = physical_cores(), usable_cpus()
    text = f"{cores} cores" + (f" ({threads} threads)" if threads != cores else "")
    if hasattr(os, "sched_getaffinity") and threads < (os.cpu_count() or threads):
        text += f", of {os.cpu_count()} in the machine: this process may not use the others"
    if others is not None and others > 0.5 * cores:
        text += f"; other programs use {others:.1f} of them"
        # Nothing is wrong with the installation: the thread count follows the load.
        yield Finding("load", "info", f"{text}: answers are slower while they do")
    else:
        yield Finding("load", "ok", text)


def look_at_disk() -> Iterator[Finding]:
    """Room where models, caches and sessions lie."""
    paths = default_paths()
    places = {"models from the hub": hub_cache_folder(), "caches": paths.cache, "sessions": paths.data}
    seen: set[int] = set()
    for what, folder in places.items():
        place = nearest_existing(folder)
        device = place.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        usage = shutil.disk_usage(place)
        text = f"{human_size(usage.free)} of {human_size(usage.total)} free for {what} ({folder})"
        if usage.free < _LITTLE_DISK:
            fix = "free some room; `localrun list` shows the models, `localrun rm` deletes one"
            yield Finding("disk", "warning", text, fix, {"free": usage.free})
        else:
            yield Finding("disk", "ok", text, facts={"free": usage.free})
