"""Numbers as JSON writes them: from a shape to terminals and leaves.

Knows decimal notation; leaves ranges and multiples to llguidance's own number grammar. Invariant: integers have at most
19 digits and numbers without bounds a short exponent, so no number is read as infinite.
"""

from __future__ import annotations

import json
from decimal import Decimal

from localrun.constraint.schema.expr import Num
from localrun.constraint.schema.grammar import RuleSet

_INTEGER = r"/-?(?:0|[1-9][0-9]{0,18})/"
_NUMBER = r"/-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,16})?(?:[eE][\-+]?[0-9]{1,2})?/"
_DECIMAL = r"/-?(?:0|[1-9][0-9]{0,16})(?:\.[0-9]{1,16})?/"  # below 10^17, whatever it is
_FRACTION = r"/-?(?:0|[1-9][0-9]{0,14})\.[0-9]{0,14}[1-9]/"
_LARGEST = Decimal(10) ** 18
"""Bounds up to here are exact in llguidance (64-bit integers)."""


class NumberTooLarge(Exception):
    """A bound that llguidance cannot take."""


def symbol(shape: Num, rules: RuleSet) -> str:
    """The rule or terminal for the numbers of a shape. Raises `NumberTooLarge`."""
    if shape.values is not None:
        return rules.terminal("/" + "|".join(sorted(map(_literal, shape.values))) + "/")
    low, high = _useful(shape.low, low=True), _useful(shape.high, low=False)
    if shape.whole is False:
        if low is not None or high is not None or shape.multiple_of is not None:
            raise NumberTooLarge("numbers with a fraction cannot be bounded at the same time")
        return rules.terminal(_FRACTION)
    if low is None and high is None and shape.multiple_of is None:
        bounded = shape.low is not None or shape.high is not None
        return rules.terminal(_INTEGER if shape.whole else _DECIMAL if bounded else _NUMBER)
    leaf: dict[str, object] = {"type": "integer" if shape.whole else "number"}
    if low is not None:
        leaf["exclusiveMinimum" if shape.low_open else "minimum"] = _plain(low)
    if high is not None:
        leaf["exclusiveMaximum" if shape.high_open else "maximum"] = _plain(high)
    if shape.multiple_of is not None:
        leaf["multipleOf"] = _plain(shape.multiple_of)
    leaf["x-guidance"] = {"whitespace_flexible": False}
    return rules.leaf(f"%json {json.dumps(leaf)}")


def _useful(bound: Decimal | None, *, low: bool) -> Decimal | None:
    """The bound, or None where our numbers of at most 19 digits are inside it anyway."""
    if bound is None or abs(bound) <= _LARGEST:
        return bound
    if (bound < 0) == low:
        return None
    raise NumberTooLarge(f"the bound {bound:g} is beyond 10^18")


def _plain(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _literal(value: Decimal) -> str:
    """A number as a regular expression that is just it, in its shortest common notation."""
    whole = value == value.to_integral_value() and abs(value) < 10**21
    text = str(int(value)) if whole else json.dumps(float(value))
    return "".join(rf"\x{{{ord(char):x}}}" for char in text)
