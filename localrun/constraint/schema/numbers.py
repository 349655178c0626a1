"""Numbers as JSON writes them: from a shape to a terminal, or a leaf.

Knows decimal notation. Ranges are written as regular expressions of our own, compared digit by digit, since
llguidance's (1.9) takes 0 for a number in (0, 0.5]; multiples are in `multiples`. Invariant: a number in a range is
written without an exponent, an integer has at most 19 digits, and no number is read as infinite.
"""

from __future__ import annotations

import functools
import json
from decimal import Decimal

from localrun.constraint.schema import multiples
from localrun.constraint.schema.expr import Num
from localrun.constraint.schema.grammar import RuleSet
from localrun.constraint.schema.multiples import NumberTooLarge

_INTEGER = r"/-?(?:0|[1-9][0-9]{0,18})/"
_NUMBER = r"/-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,16})?(?:[eE][\-+]?[0-9]{1,2})?/"
_SHORT = r"/-?(?:0|[1-9][0-9]{0,16})(?:\.[0-9]{1,16})?/"  # below 10^17, whatever it is
_WRITTEN = r"/-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,16})?/"
_WHOLE_ONLY = r"/-?[0-9]+/"
# At most 15 digits: readers turn longer fractions into the nearest double, which may be a bound or an integer.
_EXACT = r"/-?(?:[0-9]{1,5}(?:\.[0-9]{1,10})?|[0-9]{6,10}(?:\.[0-9]{1,5})?|[0-9]{11,19})/"
_FRACTION_ONLY = r"/-?(?:[0-9]{1,5}\.[0-9]{0,9}[1-9]|[0-9]{6,10}\.[0-9]{0,4}[1-9]|[0-9]{11,13}\.[0-9]?[1-9])/"
_FRACTION = r"(?:\.[0-9]{1,16})?"
_REST = r"[0-9]{0,16}"
_LONGEST = 19  # digits before the point
_LARGEST = Decimal(10) ** _LONGEST


def symbol(shape: Num, rules: RuleSet) -> str:
    """The rule or terminal for the numbers of a shape. Raises `NumberTooLarge`."""
    if shape.values is not None:
        return rules.terminal("/" + "|".join(sorted(map(_literal, shape.values))) + "/")
    low, high = _useful(shape.low, low=True), _useful(shape.high, low=False)
    endings = None
    if shape.multiple_of is not None:
        if shape.whole is False:
            raise NumberTooLarge("multiples that are no integers cannot be enforced")
        step = multiples.of_step(shape)
        endings = multiples.by_endings(step)
        if endings is None:
            return rules.leaf(multiples.counted(step, shape))
    bounded = shape.low is not None or shape.high is not None
    if low is not None or high is not None:
        definition = _range(low, shape.low_open, high, shape.high_open)
    elif endings is not None:
        definition = _WRITTEN
    else:
        definition = _INTEGER if shape.whole else _SHORT if bounded or shape.whole is False else _NUMBER
    if shape.whole is not None:
        definition = f"({definition}) & {_WHOLE_ONLY if shape.whole else _FRACTION_ONLY}"
    elif low is not None or high is not None or endings is not None:
        definition = f"({definition}) & {_EXACT}"
    if endings is not None:
        definition = f"{definition} & {endings}"
    if bounded and _is_dead(definition):
        raise NumberTooLarge("no number in this range can be written in digits that every reader keeps")
    return rules.terminal(definition)


def _useful(bound: Decimal | None, *, low: bool) -> Decimal | None:
    """The bound, or None where every number that is written is inside it anyway."""
    if bound is None or abs(bound) < _LARGEST:
        return bound
    if (bound < 0) == low:
        return None
    raise NumberTooLarge(f"the bound {bound:g} is beyond 10^{_LONGEST}")


def _range(low: Decimal | None, low_open: bool, high: Decimal | None, high_open: bool) -> str:
    """The numbers between two bounds: those from zero on, and those below it."""
    parts = []
    if high is None or high > 0 or (high == 0 and not high_open):
        conditions = []
        if low is not None and low >= 0:
            conditions.append(_at_least(low, low_open))
        if high is not None:
            conditions.append(_at_most(high, high_open))
        parts.append(_signed("", conditions or [_at_least(Decimal(0), False)]))
    if low is None or low < 0:
        # -0 is not written: it equals 0, which the other part has.
        conditions = [_at_least(-high, high_open) if high is not None and high < 0 else _at_least(Decimal(0), True)]
        if low is not None:
            conditions.append(_at_most(-low, low_open))
        parts.append(_signed("-", conditions))
    return " | ".join(parts)


def _signed(sign: str, conditions: list[str]) -> str:
    return " & ".join(f"/{sign}(?:{condition})/" for condition in conditions)


def _digits(value: Decimal) -> tuple[str, str]:
    """The digits before and after the point, the latter without zeros at the end."""
    whole, _, fraction = f"{value:f}".partition(".")
    return whole.lstrip("0") or "0", fraction.rstrip("0")


def _at_least(bound: Decimal, is_open: bool) -> str:
    """Numbers from `bound` (not below 0) on, or above it, as a regular expression over their digits."""
    whole, fraction = _digits(bound)
    n = len(whole)
    options = [f"[1-9][0-9]{{{n},{_LONGEST - 1}}}{_FRACTION}"] if n < _LONGEST else []
    for i, digit in enumerate(whole):
        if digit < "9":
            options.append(f"{whole[:i]}[{int(digit) + 1}-9][0-9]{{{n - 1 - i}}}{_FRACTION}")
    for j, digit in enumerate(fraction):
        if digit < "9":
            options.append(rf"{whole}\.{fraction[:j]}[{int(digit) + 1}-9]{_REST}")
    point = rf"{whole}\.{fraction}"
    if is_open:
        options.append(rf"{point}{_REST}[1-9]{_REST}")
    else:
        options.append(f"{point}{_REST}" if fraction else f"{whole}{_FRACTION}")
    return "|".join(options)


def _at_most(bound: Decimal, is_open: bool) -> str:
    """Numbers from 0 up to `bound`, or below it, as a regular expression over their digits."""
    whole, fraction = _digits(bound)
    n = len(whole)
    options = [f"(?:0|[1-9][0-9]{{0,{n - 2}}}){_FRACTION}"] if n > 1 else []
    for i, digit in enumerate(whole):
        least = 1 if i == 0 and n > 1 else 0
        if int(digit) > least:
            options.append(f"{whole[:i]}[{least}-{int(digit) - 1}][0-9]{{{n - 1 - i}}}{_FRACTION}")
    for j, digit in enumerate(fraction):
        before = rf"{whole}\.{fraction[:j]}" if j else whole
        options.append(before)
        if digit > "0":
            options.append(rf"{whole}\.{fraction[:j]}[0-{int(digit) - 1}]{_REST}")
    if not is_open:
        options.append(rf"{whole}\.{fraction}0{{0,16}}" if fraction else rf"{whole}(?:\.0{{1,16}})?")
    return "|".join(options) or r"[^\x{0}-\x{10ffff}]"


@functools.lru_cache(maxsize=1024)
def _is_dead(definition: str) -> bool:
    """Whether no text is a terminal with this definition."""
    from llguidance import LLMatcher

    from localrun.constraint.foreign import try_compile
    from localrun.constraint.vocabulary import byte_tokenizer

    compiled = try_compile(byte_tokenizer(), LLMatcher.grammar_from_lark(f"start: T\nT: {definition}\n"))
    return compiled.is_error() or not any(compiled.compute_bitmask()[:32])


def written_number(value: Decimal) -> str:
    """A number in its shortest common notation, in which every reader finds the number of the schema again.

    Readers take `1e30` for the nearest double and digits for what they say, so each stays what it was.
    """
    as_digits = value.as_tuple().exponent == 0 or (
        value == value.to_integral_value() and abs(value) < 10**21 and Decimal(float(value)) == value
    )
    return str(int(value)) if as_digits else json.dumps(float(value))


def _literal(value: Decimal) -> str:
    """A number as a regular expression that is just it."""
    text = written_number(value)
    return "".join(rf"\x{{{ord(char):x}}}" for char in text)
