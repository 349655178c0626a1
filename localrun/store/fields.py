"""Fields of an exported session, which anybody may have edited: what type each must have.

Knows names and types; knows no format. Invariant: what passes can be stored, listed and shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

_LARGEST = 2**53
_END_OF_TIME = 253_402_300_800.0
"""The year 10000, which no calendar of the standard library shows."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _is_time(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value < _END_OF_TIME


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "id": lambda value: _is_text(value) or _is_number(value),
    "number": _is_number,
    "n_messages": _is_number,
    "parent_id": _or_none(_is_number),
    "covers_id": _or_none(_is_number),
    "head_id": _or_none(_is_number),
    "name": _is_text,
    "kind": _is_text,
    "text": _is_text,
    "reasoning": _is_text,
    "finish": _or_none(_is_text),
    "named_by": lambda value: value in ("", "exchange", "user"),
    "pinned": lambda value: isinstance(value, bool),
    "created_at": _is_time,
    "touched_at": _is_time,
    "started_at": _is_time,
    "ended_at": _or_none(_is_time),
    "trashed_at": _or_none(_is_time),
    "settings": lambda value: isinstance(value, dict),
    "facts": lambda value: isinstance(value, dict),
    "segments": lambda value: isinstance(value, list),
    "attachments": lambda value: isinstance(value, list),
}


def checked(document: Any, what: str) -> dict[str, Any]:
    """A copy of an object whose fields all have the right types. Raises `TypeError` that names the one that has not."""
    if not isinstance(document, dict):
        raise TypeError(f"a {what} is no object")
    for key, value in document.items():
        if key not in _CHECKS:
            raise TypeError(f"a {what} has no field {key[:40]!r}")
        if not _CHECKS[key](value):
            shown = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
            raise TypeError(f"the field {key!r} of a {what} is {shown[:60]}")
    return dict(document)
