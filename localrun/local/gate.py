"""Who is inside something that is about to be freed.

Knows threads; knows nothing of what it guards. Invariant: after `close` and `wait_empty`, no other thread is inside
and none gets in.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localrun.errors import EngineError


class Gate:
    """Lets callers in until it is closed, and knows when the last one has left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        """How often each thread is inside."""
        self._closed = False
        self._process = os.getpid()

    @contextmanager
    def inside(self, on_entry: Callable[[], object] | None = None) -> Iterator[None]:
        """Stay inside for a block; `on_entry` runs before anybody can close.

        Raises `EngineError` when it is closed, and in a forked process, which has the memory but not the threads.
        """
        if os.getpid() != self._process:
            raise EngineError("the model was loaded before this process was forked", hint="load it in this process")
        thread = threading.get_ident()
        with self._changed:
            if self._closed:
                raise EngineError("the model is closed", hint="load it again")
            self._inside[thread] += 1
            if on_entry is not None:
                on_entry()
        try:
            yield
        finally:
            with self._changed:
                self._inside[thread] -= 1
                if not self._inside[thread]:
                    del self._inside[thread]
                self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in any more. Those who are inside stay there: see `wait_empty`."""
        with self._changed:
            self._closed = True

    def wait_empty(self) -> None:
        """Wait until no other thread is inside. One that is inside itself does not wait for itself."""
        thread = threading.get_ident()
        if os.getpid() != self._process:
            return  # whoever was inside is in the other process
        with self._changed:
            self._changed.wait_for(lambda: not self._inside.keys() - {thread})
