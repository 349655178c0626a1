"""What in a parsed line of JSON cannot be sent or written again.

Knows JSON's values; knows no rows. Python reads more than JSON and UTF-8 hold: `NaN`, numbers beyond the largest
float, and lone surrogates (`"\\ud800"`). Invariant: a value without a fault can be written as JSON in UTF-8.
"""

from __future__ import annotations

import math
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def fault_in(value: Any, place: str) -> str | None:
    """What is wrong in `value`, with its place (`place/0/name`); None if nothing is."""
    todo = [(value, place)]
    while todo:
        here, where = todo.pop()
        if isinstance(here, float) and not math.isfinite(here):
            return f"{where} is {here}, which is no JSON number"
        if isinstance(here, str) and (found := _SURROGATE.search(here)):
            return f"{where} holds {found[0]!r}, half of a surrogate pair, so it is no text"
        if isinstance(here, dict):
            for key, inner in here.items():
                if _SURROGATE.search(key):
                    return f"{where} holds the key {key!r}, which is no text"
                todo.append((inner, f"{where}/{key}"))
        elif isinstance(here, list):
            todo += ((inner, f"{where}/{number}") for number, inner in enumerate(here))
    return None
