"""How long a thread may keep the interpreter while another one waits for it.

The screen and the server answer people on one thread while the engine's thread is at work; both want the interpreter
for each frame and each piece of an answer. Invariant: inside `short_turns`, nobody waits longer than half a millisecond
before he asks; after the last of several that overlap, everything is as before the first.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURN_S = 0.0005
"""Python's own 5 ms would hold the engine's thread up after every decode, and a key press at every step."""
_lock = threading.Lock()
_users = 0
_before = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """For the life of a screen or of a server."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(_TURN_S)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setswitchinterval(_before)
