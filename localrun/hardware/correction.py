"""How far the planner was off on this machine, so that it is less off next time.

Knows ratios only. Invariant: one odd measurement cannot ruin planning: the factor moves slowly and stays within
bounds.
"""

from __future__ import annotations

from localrun.hardware.machine import this_machine
from localrun.hardware.notes import read_note, write_note

_NOTE = "memory"
_WEIGHT = 0.3
"""Share of the newest load in the running mean."""
_CLOSE = 0.02
"""A plan that was right to two percent teaches nothing, and costs no writing."""
_BOUNDS = (0.9, 1.5)


def memory_correction() -> float:
    """What loads on this machine took, over what was planned; 1 before the first."""
    value = read_note(_NOTE).get(this_machine().identity)
    return _bounded(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0


def learn(planned: int, taken: int) -> float:
    """Take one load into account: bytes planned and bytes taken. Returns the new factor."""
    if planned <= 0 or taken <= 0:
        return memory_correction()
    known = memory_correction()
    ratio = _bounded(taken / planned)
    if abs(ratio - known) < _CLOSE:
        return known
    factor = _bounded((1 - _WEIGHT) * known + _WEIGHT * ratio)
    write_note(_NOTE, read_note(_NOTE) | {this_machine().identity: round(factor, 4)})
    return factor


def _bounded(value: float) -> float:
    low, high = _BOUNDS
    return min(high, max(low, value))
