"""The final check of a JSON output against the schema as the user wrote it.

Knows `jsonschema`; fetches nothing. Invariant: an output passes if and only if it is one JSON value that satisfies the
original schema, with formats checked and multiples computed exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from localrun.constraint.schema.dialects import DRAFT_7
from localrun.constraint.schema.document import Document
from localrun.constraint.schema.expr import exact
from localrun.constraint.schema.places import escape, shown
from localrun.errors import InvalidOutputError

_MAX_DIGITS = 4000  # Python reads whole numbers of at most 4,300 digits


def _exact_multiple_of(validator: Any, divisor: float, instance: Any, schema: Any) -> Iterator[Any]:
    """`multipleOf` on the numbers as they are written; binary division calls 0.07 no multiple of 0.01."""
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "number") and Fraction(exact(instance)) % Fraction(exact(divisor)) != 0:
        yield ValidationError(f"{instance!r} is not a multiple of {divisor}")


class FinalCheck:
    """Validates outputs of one schema."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._validator: Any = None

    def __call__(self, text: str) -> None:
        """Raise `InvalidOutputError` with the place and the reason if `text` does not satisfy the schema."""
        try:
            value = json.loads(text, parse_constant=_no_number, parse_float=_number, parse_int=_integer)
            fault = self._first_fault(value)
        except json.JSONDecodeError as error:
            raise InvalidOutputError(f"the output is no JSON: {error}") from error
        except _NumberError as error:
            raise InvalidOutputError(f"the output is no JSON that can be read: {error}") from error
        except RecursionError as error:
            raise InvalidOutputError("the output is nested too deep to be validated") from error
        if fault is not None:
            pointer = "".join(f"/{escape(str(part))}" for part in fault.absolute_path)
            raise InvalidOutputError(f"the output violates the schema at {shown(pointer)}: {fault.message[:200]}")

    def _first_fault(self, value: Any) -> Any:
        from jsonschema.exceptions import best_match

        if self._validator is None:
            self._validator = self._make()
        return best_match(self._validator.iter_errors(value))

    def _make(self) -> Any:
        from jsonschema import Draft7Validator, Draft202012Validator, validators
        from referencing import Registry

        base = Draft7Validator if self._document.dialect == DRAFT_7 else Draft202012Validator
        strict = validators.extend(base, {"multipleOf": _exact_multiple_of})  # type: ignore[no-untyped-call]
        # An empty registry: nothing but the document itself can be referred to, so nothing is fetched.
        return strict(self._document.root, registry=Registry(), format_checker=base.FORMAT_CHECKER)


class _NumberError(Exception):
    """What stands for a number is none, or none that can be computed with."""


def _no_number(text: str) -> Any:
    raise _NumberError(f"{text} is no JSON number")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NumberError(f"the number {text[:24]} is too large")
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _NumberError(f"a number has {len(digits):,} digits")
    return int(digits)
