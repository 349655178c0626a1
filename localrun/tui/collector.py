"""Garbage collection at the right moments.

Knows Python's collector. A full collection of a running Textual application takes 0.1 to 0.2 s, and by default comes
every second or two while an answer is drawn: each is a key press that hangs. Invariant: inside `calm`, full collections
happen when `tidy` is called; the collector's own come a hundred times more rarely.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 50, 100)
"""Young objects are still collected often (that takes a few milliseconds); old ones almost never by themselves."""


@contextmanager
def calm() -> Iterator[None]:
    """For the life of the application. What exists already (modules, style sheets) is never looked at again."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def tidy() -> None:
    """Collect everything, now that nobody will notice."""
    gc.collect()
