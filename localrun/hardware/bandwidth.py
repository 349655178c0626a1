"""How fast this machine reads memory: the bound of decoding, which reads every active weight for every token.

Measures by reading a block far larger than the caches on all cores. Invariant: takes under a second, and is measured
once a machine unless asked again.
"""

from __future__ import annotations

import os
import threading
import time

from localrun.hardware.machine import this_machine
from localrun.hardware.notes import read_note, write_note

_NOTE = "machine"
_BYTES = 384 << 20
"""Larger than any last-level cache of a personal machine."""
_ROUNDS = 4


def memory_bandwidth(*, measure: bool = True, again: bool = False) -> float | None:
    """Bytes a second that all cores together read; None where it is not known and may not be measured.

    The best figure ever measured counts: other programs can only make it smaller. `again` measures in any case. What a
    busy machine shows is used, but not remembered.
    """
    identity = this_machine().identity
    note = read_note(_NOTE)
    value = note.get("bandwidth") if note.get("identity") == identity else None
    known = float(value) if isinstance(value, int | float) else None
    if not again and (known is not None or not measure):
        return known
    busy = _is_busy()
    found = max(measure_bandwidth(), known or 0.0)
    if not busy and found != known:
        write_note(_NOTE, {"identity": identity, "bandwidth": round(found)})
    return found


def _is_busy() -> bool:
    """Whether others have used more than half of a core lately."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5


def measure_bandwidth(n_bytes: int = _BYTES, rounds: int = _ROUNDS) -> float:
    """Bytes a second: the best of a few rounds, each thread reading its own part."""
    import numpy as np

    n_threads = this_machine().cores
    block = np.ones(n_bytes // 8, dtype=np.uint64)  # written once, so that every page is real
    parts = np.array_split(block, n_threads)
    best = 0.0
    for _ in range(rounds):
        # A reduction by `or` runs as fast as memory delivers, and lets go of the interpreter's lock.
        threads = [threading.Thread(target=np.bitwise_or.reduce, args=(part,)) for part in parts]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = max(best, block.nbytes / (time.perf_counter() - started))
    return best
