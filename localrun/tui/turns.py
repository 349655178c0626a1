"""Whose turn it is to run Python.

Knows the interpreter's lock. The thread of the engine and that of the screen share it, and whoever waits for it asks
for it only after the switch interval: a key press may wait that long for each step of the engine's Python, and a token
for each frame. Invariant: inside `short_turns`, nobody waits longer than half a millisecond before he asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TURN_S = 0.0005
"""Python's own is 5 ms. With a real model decoding, the slowest hundredth of key presses gained about a tenth."""


@contextmanager
def short_turns() -> Iterator[None]:
    """For the life of the application."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
