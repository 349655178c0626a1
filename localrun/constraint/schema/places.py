"""Places in a JSON Schema: JSON pointers, and where in a schema there are schemas.

Knows which keywords hold schemas, and how a pointer is written; knows no keyword's meaning, no dialect and no document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any] | bool

_POINTER_SHOWN = 300  # characters

_ONE = ("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then")
_ONE_MORE = ("unevaluatedItems", "unevaluatedProperties", "additionalItems")
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties", "dependencies")


def shown(pointer: str) -> str:
    """A JSON pointer on one line, short enough for a message."""
    if not pointer:
        return "(root)"
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in pointer)
    return text if len(text) <= _POINTER_SHOWN else text[: _POINTER_SHOWN // 2] + "..." + text[-_POINTER_SHOWN // 2 :]


def escape(key: str) -> str:
    """A property name as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    """The schemas directly inside a schema, each with its relative JSON pointer."""
    for keyword in (*_ONE, *_ONE_MORE):
        if isinstance(schema.get(keyword), dict | bool):
            yield keyword, schema[keyword]
    for keyword in _MANY:
        if isinstance(schema.get(keyword), list):
            yield from ((f"{keyword}/{i}", inner) for i, inner in enumerate(schema[keyword]))
    for keyword in _NAMED:
        if isinstance(schema.get(keyword), dict):
            for name, inner in schema[keyword].items():
                if isinstance(inner, dict | bool):  # `dependencies` may hold lists of names
                    yield f"{keyword}/{escape(name)}", inner
