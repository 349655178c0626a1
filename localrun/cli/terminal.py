"""Puts a terminal right that a full-screen application had to leave behind.

Knows what a terminal can be switched to (Textual's driver switches it); knows no application. Invariant: what is made
here may run on any thread at any time: it writes to a descriptor and waits for nobody.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

_STDIN, _STDOUT = 0, 1
_RESET = (
    "\x1b[<u"  # the keyboard's own protocol
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"  # mouse
    "\x1b[?1004l\x1b[?2004l"  # focus, bracketed paste
    "\x1b[?1049l\x1b[?25h"  # the other screen, the cursor
)


def terminal_restorer() -> Callable[[], None]:
    """A function that brings the terminal back to how it is now."""
    if sys.platform == "win32":
        return lambda: None
    import termios

    attributes = termios.tcgetattr(_STDIN)

    def restore() -> None:
        os.write(_STDOUT, _RESET.encode())
        termios.tcsetattr(_STDIN, termios.TCSANOW, attributes)

    return restore
