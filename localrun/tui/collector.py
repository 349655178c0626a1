"""Garbage collection at the right moments.

Knows Python's collector. A full collection of a running Textual application takes 0.1 to 0.2 s, and by default comes
every second or two while an answer is drawn: each is a key press that hangs. Invariant: inside `calm`, full collections
happen when `tidy` is called, smaller ones when `tidy_young` is; the collector's own come a hundred times more rarely.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (2_000, 500, 100)
"""New objects are looked at often (less than a millisecond each time; 20,000 at once would take ten, in the midst of a
frame); what survived that is looked at by `tidy_young`, and almost never otherwise."""
_MANY_YOUNG = 10
"""How often new objects were looked at before it is worth while to look at the survivors."""


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


def tidy_young() -> None:
    """Collect what became garbage lately (some ten milliseconds), if there is much of it."""
    if gc.get_count()[1] >= _MANY_YOUNG:
        gc.collect(1)
