"""Values that stand in JSON from outside where nobody expects them."""

from __future__ import annotations

from typing import Any

ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**30, 1e308, float("nan"), "", "x", "\ud83d"),
    *([], [1], [[1], {}], {}, {"a": [1]}, {"a": {}}),
]


def variants(value: Any) -> list[Any]:
    """The value with each of its parts (itself included) replaced by each odd value."""
    found: list[Any] = list(ODD)
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        for other in variants(part):
            copy: Any = dict(value) if isinstance(value, dict) else list(value)
            copy[key] = other
            found.append(copy)
    return found
