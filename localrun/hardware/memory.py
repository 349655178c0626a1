"""How much memory there is, and what a context costs.

Knows the operating system's figures and GGUF headers; knows no engine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from localrun.gguf import GGUFHeader
from localrun.params import KVType

_KV_BYTES = {"f16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}
"""Bytes per value: a Q8_0 block is 34 bytes for 32 values, a Q4_0 block 18."""


def available_memory() -> int:
    """Bytes that can be taken without swapping."""
    if sys.platform.startswith("linux"):
        available = _linux_available()
        if available is not None:
            return available
    import psutil

    return int(psutil.virtual_memory().available)


def kv_bytes_per_token(header: GGUFHeader, kv_type: KVType = "f16") -> int:
    """Bytes of keys and values of one token over all layers; 0 where the header does not say.

    2 × layers × KV heads × head dimension × bytes, per-layer head counts taken one by one. Layers with a sliding
    window are counted as if they kept everything, so this is an upper bound.
    """
    n_layers = header.n_layers or 0
    n_heads = header.of_architecture("attention.head_count") or 0
    n_embd = header.n_embd or 0
    if not n_layers or not n_embd or not n_heads:
        return 0
    per_layer = header.array(f"{header.architecture}.attention.head_count_kv")
    n_kv = (
        sum(int(n) for n in per_layer)
        if per_layer is not None
        else (n_layers * (header.of_architecture("attention.head_count_kv") or n_heads))
    )
    key = header.of_architecture("attention.key_length") or n_embd // n_heads
    value = header.of_architecture("attention.value_length") or n_embd // n_heads
    return int(n_kv * (key + value) * _KV_BYTES[kv_type])


def _linux_available() -> int | None:
    """`MemAvailable`, lowered to the control group's limit where one is set."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            available = min(available, max(0, int(limit) - used))
    except (OSError, ValueError):  # no control group, or the old hierarchy: the machine's figure stands
        return available
    return available
