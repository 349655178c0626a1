"""The OpenMP runtime under the engine: how long its threads spin, and when they end.

Knows libgomp's environment and its count of threads; knows no model. Invariants: the user's own settings win, and what
is done here changes no result.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

# libgomp's threads spin at every barrier; with another busy process on the cores, decoding collapses (from 100 to
# 3 tokens/s on two cores). 10,000 turns cost nothing on an idle machine.
_SPIN_COUNT = "10000"
_SOFT = 1
"""`omp_pause_soft` of OpenMP 5.0."""


def bound_spinning() -> None:
    """Shorten the spinning at barriers. Must run before the runtime is loaded."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)


def end_team(library: ctypes.CDLL) -> None:
    """End the helper threads of the calling thread; its next parallel region makes new ones (about 0.1 ms).

    A thread that computes keeps a team of helpers. libgomp counts the members of all teams of a process, idle ones
    too, and where they are more than the cores, nobody spins at barriers any more: with two models loaded, one at work
    and one idle, decoding falls to 0.6 of its speed on two cores. So whoever has nothing to compute ends its team.
    Other runtimes (LLVM's pauses the teams of all threads) and builds without OpenMP are left alone.
    """
    pause: Any = getattr(library, "omp_pause_resource_all", None)
    if pause is None or hasattr(library, "__kmpc_fork_call"):
        return
    pause.restype, pause.argtypes = ctypes.c_int, [ctypes.c_int]
    pause(_SOFT)
