"""JSON bodies → checked values, with the name of the field in every complaint.

Knows JSON's dangers (depth, huge numbers, NaN); knows no endpoint. Invariant: what a `Fields` method returns has the
type and range it says, and a field that nobody asked for is remembered.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from localrun.serve.failures import ApiError

MAX_DEPTH = 64
"""Schemas of real programs reach about 20; Python's own limit is far above."""
MAX_SCHEMA = 256 << 10
"""Characters of one JSON Schema: some 4,000 properties, which take three seconds to be made into a grammar."""
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises `ApiError` 400."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start:,}") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not a JSON object")
    _check_depth(value)
    if _HALVES.search(data) and (place := _half(value)) is not None:
        raise ApiError(400, f"{place or 'a name'} holds half a character (a lone surrogate)", param=place or None)
    return value


def _half(value: object) -> str | None:
    """Where the first text is that cannot be encoded; None if all can."""
    todo: list[tuple[str, object]] = [("", value)]
    while todo:
        place, here = todo.pop()
        if isinstance(here, str) and not is_text(here):
            return place
        if isinstance(here, list):
            todo += ((f"{place}[{i}]", inner) for i, inner in enumerate(here))
        elif isinstance(here, dict):
            if not all(map(is_text, here)):
                return place
            todo += ((f"{place}.{name}" if place else name, inner) for name, inner in here.items())
    return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep()
        level = [child for node in level for child in _children(node)]


def _children(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _too_deep() -> ApiError:
    return ApiError(400, f"the body is nested more than {MAX_DEPTH} levels deep")


def is_text(value: str) -> bool:
    """Whether a string can be encoded: JSON may hold halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def schema_text(schema: object, place: str) -> str:
    """A JSON Schema as text. Raises `ApiError` 400 for one that is too large to be enforced in time."""
    text = json.dumps(schema, ensure_ascii=False)
    if len(text) > MAX_SCHEMA:
        message = f"{place} is a schema of {len(text):,} characters, more than {MAX_SCHEMA:,}"
        raise ApiError(400, message, param=place)
    return text


class Fields:
    """The fields of one object. A field that is null counts as absent."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._values = values
        self._where = where
        self._asked: set[str] = set()

    def name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def wrong(self, key: str, message: str) -> ApiError:
        """A complaint about a field."""
        return ApiError(400, f"{self.name(key)} {message}", param=self.name(key))

    def get(self, key: str) -> Any:
        self._asked.add(key)
        return self._values.get(key)

    def unknown(self) -> list[str]:
        """Fields that nobody asked for and that are not null."""
        return sorted(key for key, value in self._values.items() if key not in self._asked and value is not None)

    def integer(self, key: str, low: int, high: int) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "is not a whole number")
        if not low <= value <= high:
            raise self.wrong(key, f"is {shown(value)}, outside [{low}, {high}]")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "is not a number")
        if not low <= value <= high or math.isnan(value):
            raise self.wrong(key, f"is {shown(value)}, outside [{low:g}, {high:g}]")
        return float(value)

    def boolean(self, key: str) -> bool | None:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "is not true or false")
        return value

    def text(self, key: str) -> str | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, "is not a text")
        if not is_text(value):
            raise self.wrong(key, "holds half a character (a lone surrogate)")
        return value

    def word(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self.text(key)
        if value is not None and value not in choices:
            raise self.wrong(key, f"is {shown(value)}; it is one of {', '.join(choices)}")
        return value

    def texts(self, key: str, most: int) -> tuple[str, ...]:
        """A text or a list of at most `most` texts."""
        value = self.get(key)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(v, str) and is_text(v) for v in values):
            raise self.wrong(key, "is not a text or a list of texts")
        if len(values) > most:
            raise self.wrong(key, f"has {len(values)} entries, more than {most}")
        return tuple(values)

    def object(self, key: str) -> dict[str, Any] | None:
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "is not an object")
        return value

    def items(self, key: str) -> list[Any] | None:
        value = self.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, "is not a list")
        return value

    def inside(self, key: str) -> Fields | None:
        """The fields of a nested object."""
        value = self.object(key)
        return Fields(value, self.name(key)) if value is not None else None


def shown(value: object) -> str:
    """A value in a message, cut."""
    if isinstance(value, int) and not -(10**20) < value < 10**20:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
