"""A terminal that an application left in the middle is put right."""

from __future__ import annotations

import os
import pty
import subprocess
import sys


def test_what_was_switched_is_switched_back() -> None:
    script = """
import termios, tty
from localrun.cli.terminal import terminal_restorer
before = termios.tcgetattr(0)
restore = terminal_restorer()
tty.setraw(0)
assert termios.tcgetattr(0) != before
restore()
assert termios.tcgetattr(0) == before
print("done", flush=True)
"""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", script], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=30)
    os.close(theirs)
    assert process.returncode == 0, errors
    written = os.read(ours, 4096)
    os.close(ours)
    assert b"\x1b[?1049l\x1b[?25h" in written  # out of the other screen, with a cursor
    assert b"\x1b[?2004l" in written
    assert b"\x1b[?1000l" in written
