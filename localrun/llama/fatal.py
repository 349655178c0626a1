"""The end of a process in which the engine cannot go on: one line instead of a debugger's output.

Knows ggml's abort callback; knows no command. Some failures (a GPU that runs out of memory inside a computation, an RPC
server that goes away) end the process from within the library: there is no way back. Invariant: what is registered here
runs on whatever thread failed, with every other thread still where it was, so it must neither wait nor lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import NoReturn

EXIT_CODE = 1
_STDERR = 2
_last_words: list[Callable[[], None]] = []
_kept: list[object] = []
"""ctypes callbacks live as long as something refers to them."""


def before_the_end(function: Callable[[], None]) -> Callable[[], None]:
    """Run `function` before the engine ends the process (to put a terminal right). Returns how to undo it."""
    _last_words.append(function)
    return lambda: _last_words.remove(function) if function in _last_words else None


def end_with_a_line(library: ctypes.CDLL) -> None:
    """Make the library's own aborts one `error:` line and exit code 1."""
    # An exception that C++ does not catch takes another way, on which a debugger is started to print the stack.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_end)
    register = library.ggml_set_abort_callback
    register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    register(ctypes.cast(callback, ctypes.c_void_p))
    _kept.append(callback)


def _end(message: bytes) -> NoReturn:
    for function in _last_words:
        with contextlib.suppress(Exception):  # the process ends now, and the reason below is what matters
            function()
    line = f"error: the engine failed and cannot go on: {reason(message)}\n"
    os.write(_STDERR, line.encode())  # not through sys.stderr, whose lock another thread may hold
    os._exit(EXIT_CODE)


def reason(message: bytes) -> str:
    """ggml's words without the place in its source that they begin with, on one line."""
    text = " ".join(message.decode("utf-8", "replace").split())
    place, _, words = text.partition(": ")
    return words if ".c" in place and words else text
