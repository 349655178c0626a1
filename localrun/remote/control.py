"""Ending a remote answer from another thread, in whatever it is waiting for.

Knows the socket of the running call; knows no HTTP. Invariant: after `end`, a blocked read returns at once and no pause
lasts on; the first reason stays.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, Literal

Reason = Literal["interrupted", "timeout"]


class Control:
    """One answer's off switch."""

    def __init__(self, timeout_s: float | None = None) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.reason: Reason | None = None
        self._timer: threading.Timer | None = None
        if timeout_s is not None:
            self._timer = threading.Timer(timeout_s, self.end, ["timeout"])
            self._timer.daemon = True
            self._timer.start()

    def end(self, reason: Reason = "interrupted") -> None:
        """End the answer soon. Any thread may call it, any number of times."""
        with self._lock:
            self.reason = self.reason or reason
            self._ended.set()
            self._shut()

    def pause(self, seconds: float) -> None:
        """Wait, unless the answer ends meanwhile."""
        self._ended.wait(seconds)

    def close(self) -> None:
        """The answer is over: no timer and no socket is kept."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._socket = None

    def trace(self, name: str, info: dict[str, Any]) -> None:
        """Hears from the HTTP client what it does, and remembers the socket it opens."""
        if name in ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete"):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._ended.is_set():
                    self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the other side may have closed it first
                self._socket.shutdown(socket.SHUT_RDWR)
