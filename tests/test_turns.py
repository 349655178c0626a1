"""Whose turn it is: short while a screen or a server is there, and only then."""

from __future__ import annotations

import subprocess
import sys


def test_turns_are_short_until_the_last_user_has_gone() -> None:
    # In a process of its own: a server of another test may be running in this one.
    script = """
import sys
from localrun.turns import short_turns
before = sys.getswitchinterval()
screen, server = short_turns(), short_turns()
screen.__enter__()
short = sys.getswitchinterval()
assert short < before
server.__enter__()
screen.__exit__(None, None, None)
assert sys.getswitchinterval() == short
server.__exit__(None, None, None)
assert sys.getswitchinterval() == before
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
