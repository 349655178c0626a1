"""JSON values by type: what a schema says, one type at a time.

Knows the shapes that schemas are rewritten into and how two of them are joined; knows no schema text and no grammar.
Invariant: a list of shapes stands for "one of these"; everything in a shape must hold at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import gcd

Expr = frozenset[tuple[str, bool]]
"""A conjunction of schemas, each by its id, wanted (True) or unwanted (False). Empty: any value."""

ANY: Expr = frozenset()


def pointer_of(expr: Expr) -> str:
    """A place in the document for errors about an expression."""
    return min((schema_id.partition("~made")[0] for schema_id, _ in expr), key=len, default="")


@dataclass(frozen=True, slots=True)
class Null:
    """`null`."""


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Num:
    """A number. `whole` True: integers; False: numbers with a fraction; None: both."""

    whole: bool | None = None
    low: Decimal | None = None
    low_open: bool = False
    high: Decimal | None = None
    high_open: bool = False
    multiple_of: Fraction | None = None
    values: frozenset[Decimal] | None = None
    """If given: one of these, and nothing else is left to check."""

    def contains(self, value: Decimal) -> bool:
        if self.values is not None and value not in self.values:
            return False
        if self.whole is not None and (value == value.to_integral_value()) != self.whole:
            return False
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        if self.high is not None and (value > self.high or (self.high_open and value == self.high)):
            return False
        return self.multiple_of is None or Fraction(value) % self.multiple_of == 0


@dataclass(frozen=True, slots=True)
class Str:
    """A string. Lengths count characters."""

    min_len: int = 0
    max_len: int | None = None
    patterns: frozenset[str] = frozenset()
    not_patterns: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    values: frozenset[str] | None = None
    not_values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Contains:
    """At least `low` and at most `high` items satisfy `wanted`; `unwanted` is its negation."""

    wanted: Expr
    unwanted: Expr
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Arr:
    """An array: `prefix` by position, then `items`."""

    prefix: tuple[Expr, ...] = ()
    items: Expr = ANY
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False

    def item(self, index: int) -> Expr:
        return self.prefix[index] if index < len(self.prefix) else self.items


@dataclass(frozen=True, slots=True)
class Layer:
    """What one schema says about properties: by name, by pattern, and about the others."""

    properties: tuple[tuple[str, Expr], ...] = ()
    patterns: tuple[tuple[str, Expr], ...] = ()
    additional: Expr = ANY

    def of(self, name: str) -> Expr:
        """What this layer wants of the property `name`."""
        found = [expr for other, expr in self.properties if other == name]
        found += [expr for pattern, expr in self.patterns if re.search(pattern, name)]
        return frozenset().union(*found) if found else self.additional


@dataclass(frozen=True, slots=True)
class Obj:
    """An object: all layers hold."""

    layers: tuple[Layer, ...] = ()
    required: tuple[str, ...] = ()
    names: Expr = ANY
    min_props: int = 0
    max_props: int | None = None


Shape = Null | Bool | Num | Str | Arr | Obj

EVERYTHING: tuple[Shape, ...] = (Null(), Bool(True), Bool(False), Num(), Str(), Arr(), Obj())


def exact(value: float) -> Decimal:
    """The decimal number that a JSON number is written as; its exponent tells `1e30` from the digits of 10^30."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return number or Decimal(0)  # -0 is 0


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def join(a: Shape, b: Shape) -> Shape | None:
    """The values that both describe; None if that is plainly nothing."""
    match a, b:
        case (Null(), Null()) | (Bool(), Bool()):
            return a if a == b else None
        case Num(), Num():
            return _join_numbers(a, b)
        case Str(), Str():
            return _join_strings(a, b)
        case Arr(), Arr():
            return _join_arrays(a, b)
        case Obj(), Obj():
            required = tuple(dict.fromkeys(a.required + b.required))
            joined = Obj(
                tuple(dict.fromkeys(a.layers + b.layers)),
                required,
                a.names | b.names,
                max(a.min_props, b.min_props),
                _least(a.max_props, b.max_props),
            )
            too_many = joined.max_props is not None and max(len(required), joined.min_props) > joined.max_props
            return None if too_many else joined
        case _:
            return None


def _join_numbers(a: Num, b: Num) -> Num | None:
    if a.values is not None or b.values is not None:
        few, other = (a, b) if a.values is not None else (b, a)
        kept = frozenset(value for value in few.values or () if other.contains(value) and few.contains(value))
        return Num(values=kept) if kept else None
    if a.whole is not None and b.whole is not None and a.whole != b.whole:
        return None
    low, low_open = max(((x.low, x.low_open) for x in (a, b) if x.low is not None), default=(None, False))
    high, open_ = min(((x.high, not x.high_open) for x in (a, b) if x.high is not None), default=(None, True))
    joined = Num(
        a.whole if a.whole is not None else b.whole,
        low,
        low_open,
        high,
        not open_,
        _common_multiple(a.multiple_of, b.multiple_of),
    )
    return None if _is_empty_number(joined) else joined


def _common_multiple(a: Fraction | None, b: Fraction | None) -> Fraction | None:
    if a is None or b is None:
        return a if b is None else b
    return Fraction(a.numerator * b.numerator // gcd(a.numerator, b.numerator), gcd(a.denominator, b.denominator))


def _is_empty_number(number: Num) -> bool:
    if number.low is None or number.high is None:
        return False
    if number.low > number.high or (number.low == number.high and (number.low_open or number.high_open)):
        return True
    step = Fraction(1) if number.whole else None
    if number.multiple_of is not None:
        step = _common_multiple(number.multiple_of, step)
    if step is None:
        return False
    first = -(-Fraction(number.low) // step) * step
    if number.low_open and first == Fraction(number.low):
        first += step
    return first > Fraction(number.high) or (number.high_open and first == Fraction(number.high))


def _join_strings(a: Str, b: Str) -> Str | None:
    values = a.values if b.values is None else b.values if a.values is None else a.values & b.values
    joined = Str(
        max(a.min_len, b.min_len),
        _least(a.max_len, b.max_len),
        a.patterns | b.patterns,
        a.not_patterns | b.not_patterns,
        a.formats | b.formats,
        values,
        a.not_values | b.not_values,
    )
    if joined.max_len is not None and joined.min_len > joined.max_len:
        return None
    if values is not None:
        kept = frozenset(
            value
            for value in values - joined.not_values
            if len(value) >= joined.min_len and (joined.max_len is None or len(value) <= joined.max_len)
        )
        return replace(joined, values=kept, min_len=0, max_len=None, not_values=frozenset()) if kept else None
    return joined


def _join_arrays(a: Arr, b: Arr) -> Arr | None:
    n = max(len(a.prefix), len(b.prefix))
    joined = Arr(
        tuple(a.item(i) | b.item(i) for i in range(n)),
        a.items | b.items,
        max(a.min_items, b.min_items),
        _least(a.max_items, b.max_items),
        tuple(dict.fromkeys(a.contains + b.contains)),
        a.unique or b.unique,
    )
    return None if joined.max_items is not None and joined.min_items > joined.max_items else joined
