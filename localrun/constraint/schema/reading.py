"""The text of a JSON Schema, read into a document.

Knows JSON, and what of it cannot be held (numbers beyond computing, names that occur twice, halves of characters);
knows no keyword. Invariant: what was read is checked against its meta-schema, and every refusal names its place.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from localrun.constraint.schema.dialects import dialect_of
from localrun.constraint.schema.document import Document
from localrun.constraint.schema.places import escape, shown
from localrun.constraint.source_text import SourceText, no_text
from localrun.errors import ConstraintError

MAX_NESTING = 200
"""How deep a schema may be nested. Deeper ones are generated, and Python and llguidance recurse over them."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}:,]', re.DOTALL)


def load(text: str, name: str) -> Document:
    """Read a schema. Raises `ConstraintError` with the place in the text, or the JSON pointer of what is no schema."""
    source = SourceText(text, name)
    depth, deepest = deepest_place(text)
    if depth > MAX_NESTING:
        raise ConstraintError(f"{name}: at {shown(deepest)}: the schema is nested deeper than {MAX_NESTING}")
    try:
        root = json.loads(
            text, object_pairs_hook=_no_duplicates, parse_constant=_Refused, parse_float=_number, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise source.error(error.pos, f"this is no JSON: {error.msg[:1].lower()}{error.msg[1:]}") from error
    if found := _first_refused(root):
        raise ConstraintError(f"{name}: at {shown(found[0])}: {found[1]}")
    if not isinstance(root, dict | bool):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(root), "a number")
        raise ConstraintError(f"{name}: a JSON Schema is an object, this is {kind}")
    return Document(root, dialect_of(root, name), name)


def deepest_place(text: str) -> tuple[int, str]:
    """(depth, JSON pointer) of the deepest brackets outside strings, cut off where they are deeper than `MAX_NESTING`.

    Looked at before `json` recurses into the text, so it takes what is no JSON as well.
    """
    found = (0, "")
    path: list[str | int] = []  # of each open bracket: the name, or the index, of what stands in it
    name = ""
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "[" | "{":
                path.append(0 if token[0] == "[" else "")
                if len(path) > found[0]:
                    found = (len(path), "".join(f"/{escape(str(part))}" for part in path[:-1]))
                    if len(path) > MAX_NESTING:
                        break
            case "]" | "}":
                del path[-1:]
            case ",":
                if path and isinstance(path[-1], int):
                    path[-1] += 1
            case ":":
                if path and isinstance(path[-1], str):
                    path[-1] = name
            case string:
                name = _name(string)
    return found


def _name(string: str) -> str:
    try:
        return str(json.loads(string))
    except json.JSONDecodeError:
        return string[1:-1]


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands for what JSON or we cannot hold (a number, or an object), until its place in the document is known."""

    text: str
    problem: str = "is no JSON number"

    def __str__(self) -> str:
        return f"{self.text if len(self.text) <= 24 else self.text[:20] + '...'} {self.problem}"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            return _Refused("the name", f"{name[:80]!r} occurs twice in one object")
        found[name] = value
    return found


def _number(text: str) -> float | _Refused:
    value = float(text)
    return value if math.isfinite(value) else _Refused(text, "is beyond the numbers that can be computed with")


def _integer(digits: str) -> int | _Refused:
    return _Refused(digits, f"has {len(digits)} digits, too many for a number") if len(digits) > 400 else int(digits)


def _first_refused(root: Any) -> tuple[str, str] | None:
    """(JSON pointer, problem) of the first number that is none, or string that is no text; else None."""
    todo = [(root, "")]
    while todo:
        here, pointer = todo.pop()
        if isinstance(here, _Refused):
            return pointer, str(here)
        if isinstance(here, str) and (problem := no_text(here)):
            return pointer, problem
        if isinstance(here, dict):
            for key, inner in here.items():
                if problem := no_text(key):
                    return pointer, f"a name: {problem}"
                todo.append((inner, f"{pointer}/{escape(key)}"))
        elif isinstance(here, list):
            todo += ((inner, f"{pointer}/{number}") for number, inner in enumerate(here))
    return None
