"""Multiples of a number, as JSON writes them: by their last digits, or by llguidance's automaton.

Knows which multiples their last digits tell (those of 2, 5, 0.25, 1000 …), and what llguidance (1.9) can count: it
holds the step and its power of ten in 32 bits and bounds in doubles. Invariant: what is written is a multiple within
the bounds for every reader; steps and bounds that would overflow are `NumberTooLarge`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from math import lcm, nextafter

from localrun.constraint.schema.expr import Num

MAX_STEP = 100_000
"""Units of the last digit of a step that is counted: llguidance's automaton has as many states."""
_MAX_ENDINGS = 700  # ways in which a multiple may end that are written out
_MAX_SCALED = 400_000_000  # a step times its power of ten, so that one more digit stays below 2^32
_DOUBLE_DIGITS = 15  # that every reader keeps
_MAX_WHOLE = 2**63 - 1024  # the largest double that llguidance reads as a whole number
_MAX_DECIMALS = 10  # of a number that is written


class NumberTooLarge(Exception):
    """A bound or step that cannot be enforced."""


def of_step(shape: Num) -> Fraction:
    """The step between the numbers of a shape that can be written."""
    assert shape.multiple_of is not None
    grid = Fraction(1) if shape.whole else Fraction(1, 10**_MAX_DECIMALS)
    return _common(shape.multiple_of, grid)


def _common(a: Fraction, b: Fraction) -> Fraction:
    both = lcm(a.denominator, b.denominator)
    return Fraction(lcm(int(a * both), int(b * both)), both)


def _decimals(step: Fraction) -> int:
    """Digits behind the point of a step."""
    return next(n for n in range(_MAX_DECIMALS + 1) if 10**n % step.denominator == 0)


def by_endings(step: Fraction) -> str | None:
    """A regular expression for the multiples that their last digits tell, without their bounds; else None.

    It allows zeros at the start, and no zeros behind the last digit of the step.
    """
    decimals = _decimals(step)
    units = int(step * 10**decimals)
    size = next((n for n in range(40) if 10**n % units == 0), None)  # digits that tell
    if size is None or 10**size // units > _MAX_ENDINGS:
        return None
    options: list[str] = []
    for shown in range(decimals + 1):
        cut = decimals - shown  # digits that are zeros and not written
        told = max(size - cut, 0)
        unit = lcm(units, 10 ** min(cut, size)) // 10 ** min(cut, size)
        for number in range(0, 10**told, unit):
            options += _ending(f"{number:0{told}d}" if told else "", shown)
    return "/-?(?:" + "|".join(dict.fromkeys(options)) + ")/"


def _ending(told: str, decimals: int) -> Iterator[str]:
    """Numbers with so many decimals whose last digits are `told`."""
    if decimals > len(told) or not told:
        yield rf"[0-9]+{_fraction('', decimals - len(told), told)}"
        return
    whole, fraction = told[: len(told) - decimals], told[len(told) - decimals :]
    behind = _fraction(fraction, 0, "")
    yield rf"[0-9]{'+' if not whole else '*'}{whole}{behind}"
    yield (whole.lstrip("0") or "0") + behind


def _fraction(before: str, free: int, after: str) -> str:
    digits = before + (f"[0-9]{{{free}}}" if free else "") + after
    return rf"\.{digits}" if digits else ""


def counted(step: Fraction, shape: Num) -> str:
    """The body of a rule for multiples that have to be counted. Raises `NumberTooLarge`."""
    decimals = _decimals(step)
    units = int(step * 10**decimals)
    if units > MAX_STEP:
        raise NumberTooLarge(f"multiples of more than {MAX_STEP:,} units of the last digit cannot be enforced")
    if units * 10**decimals > _MAX_SCALED:
        raise NumberTooLarge(f"multiples of {_plain(step)} have too many digits to be counted")
    whole = Fraction(step.numerator)
    bodies = []
    if decimals:
        # Longer fractions are read as the nearest double; beyond them only whole numbers are written.
        edge = Fraction(10 ** (_DOUBLE_DIGITS - decimals))
        tiers = [(step, -edge, edge), (whole, None, -edge - 1), (whole, edge + 1, None)]
    else:
        tiers = [(whole, None, None)]
    for tier_step, least, most in tiers:
        low, high = _between(tier_step, shape, least, most)
        if low <= high:
            leaf = {
                "type": "integer" if tier_step.denominator == 1 else "number",
                "multipleOf": _plain(tier_step),
                "minimum": _plain(low),
                "maximum": _plain(high),
                "x-guidance": {"whitespace_flexible": False},
            }
            bodies.append(f"%json {json.dumps(leaf)}")
    for body in bodies:
        if problem := _problem_of(body):
            raise NumberTooLarge(f"multiples of {_plain(step)} in this range cannot be enforced: {problem}")
    if not bodies:
        raise NumberTooLarge(f"no multiple of {_plain(step)} in this range can be written in digits that readers keep")
    return " | ".join(bodies)


def _between(step: Fraction, shape: Num, least: Fraction | None, most: Fraction | None) -> tuple[Fraction, Fraction]:
    """The first and the last multiple within the bounds of a shape and of what can be counted."""
    limit = Fraction(_MAX_WHOLE)
    low, high = -limit if least is None else least, limit if most is None else most
    first, last = -(-low // step) * step, high // step * step
    if shape.low is not None:
        first = max(first, _next(Fraction(shape.low), step, is_open=shape.low_open))
    if shape.high is not None:
        last = min(last, -_next(-Fraction(shape.high), step, is_open=shape.high_open))
    return _as_double(first, inward=float("inf")), _as_double(last, inward=float("-inf"))


def _next(bound: Fraction, step: Fraction, *, is_open: bool) -> Fraction:
    """The first multiple from a bound on, or above it."""
    found = -(-bound // step) * step
    return found + step if is_open and found == bound else found


def _as_double(bound: Fraction, *, inward: float) -> Fraction:
    """A whole bound as a double holds it, or the next one inside: llguidance reads bounds as doubles."""
    if bound.denominator != 1 or abs(bound) <= 2**53:
        return bound
    near = float(bound)
    wrong = Fraction(near) < bound if inward > 0 else Fraction(near) > bound
    return Fraction(nextafter(near, inward) if wrong else near)


@functools.lru_cache(maxsize=256)
def _problem_of(body: str) -> str | None:
    """What llguidance has against a rule with this body, if anything: it counts with few digits."""
    from llguidance import LLMatcher

    from localrun.constraint.foreign import readable, try_compile
    from localrun.constraint.vocabulary import byte_tokenizer

    compiled = try_compile(byte_tokenizer(), LLMatcher.grammar_from_lark(f"start: {body}\n"))
    return readable(compiled.get_error()) if compiled.is_error() else None


def _plain(value: Decimal | Fraction) -> int | float:
    exact = Fraction(value)
    return int(exact) if exact.denominator == 1 else float(exact)
