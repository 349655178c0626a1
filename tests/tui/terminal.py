"""A terminal for tests: a program on a pseudo-terminal, its screen kept by pyte (VT100 in pure Python)."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

import pyte

PATIENCE_S = 30.0


class Terminal:
    """Keys in, screen out."""

    def __init__(self, command: Sequence[str], *, columns: int = 100, rows: int = 30, **environment: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": os.getcwd(), **environment},
            start_new_session=True,
        )
        self.bytes = b""

    @property
    def text(self) -> str:
        """What a person would see."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def keys(self, text: str) -> None:
        """Type."""
        os.write(self._master, text.encode())

    def expect(self, text: str) -> None:
        """Wait until the text is on the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            self._read(0.1)
            assert time.monotonic() < deadline, f"{text!r} never came:\n{self.text}"

    def end(self) -> int:
        """Wait for the end of the program; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self._read(0.1)
            assert time.monotonic() < deadline, f"it never ended:\n{self.text}"
        self._read(0.2)
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was: line mode, and the ordinary screen."""
        modes = termios.tcgetattr(self._slave)
        return modes[:4] == self.before[:4] and self.bytes.count(b"\x1b[?1049h") == self.bytes.count(b"\x1b[?1049l")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _read(self, timeout: float) -> None:
        ready, _, _ = select.select([self._master], [], [], timeout)
        if ready:
            data = os.read(self._master, 65_536)
            self.bytes += data
            # pyte does not know the queries of newer terminals (CSI ? … $ p, CSI > … u) and would print their tails.
            self._stream.feed(_without_queries(data))


def _without_queries(data: bytes) -> bytes:
    import re

    return re.sub(rb"\x1b\[(\?[0-9;]*\$p|[<>=][0-9;]*u|\?[0-9;]*u)", b"", data)
