"""Hostile schemas by the seed: every keyword of both drafts, with values of every wrong type, at every place.

Knows the names of keywords and where schemas are; knows not what is valid.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

_SCHEMA = ("not", "if", "then", "else", "items", "contains", "additionalItems", "additionalProperties",
           "propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema")  # fmt: skip
_LIST = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies")
_REFERENCES = ("#", "#/", "#/$defs/a", "#foo", "a", "#/properties/a~1b~0c%25", "#/%C3", "#/~2", "#/allOf/00",
               "#/allOf/²", "#/allOf/-1", "http://[", "//[", "#/type", "#/enum/0", "#/not", "urn:a:b", "a#foo",
               "https://x.org/a", "#/const")  # fmt: skip
_SCALARS: dict[str, tuple[Any, ...]] = {
    "type": ("string", ["integer", "null"], "object", "array"), "enum": ([1, "a", None], [[], {"a": -0.0}]),
    "const": (-0.0, 10**30, 1e22, {"a": [1]}), "minimum": (-0.0, 1e16, 3), "maximum": (0, 1.5, 2),
    "exclusiveMinimum": (-0.0, 1), "exclusiveMaximum": (-0.0, 9), "multipleOf": (0.01, 7.3, 1e10, 3),
    "minLength": (2, 3.0), "maxLength": (1, 0), "pattern": ("a", "[", "(?=a)", "a{2,1}", "(a*)*", "x**", "^$"),
    "format": ("date", "no", "int32"), "minItems": (1, 2.0), "maxItems": (0, 2), "uniqueItems": (True,),
    "minContains": (0, 2), "maxContains": (0, 1), "minProperties": (0, 2), "maxProperties": (1,),
    "required": (["a"], ["", "~"]), "dependentRequired": ({"a": ["b"]},), "$id": ("a", "#foo", "http://[", "x#"),
    "$anchor": ("foo",), "$dynamicAnchor": ("foo",), "$dynamicRef": ("#foo", "#", "#/a"), "$recursiveRef": ("#",),
    "$schema": ("http://json-schema.org/draft-07/schema#", "http://[", "x"), "default": ({"type": 5},),
    "title": ("a\nb",), "unknown": ({"type": "string"}, [3]), "$ref": _REFERENCES,
}  # fmt: skip
_NAMES = ("a", "b", "", "a/b~c%", "a\nb", "~", "%25", "0", "^a", "(?=x)", "[", "\0", "🙂")
WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e300, 10**30, "", "#", [], [1], ["a", "a"], [None], [[]], [{}], {}, {"a": 1}, {"a": None},
    {"a": []}, {"": {}}, {"a": {"type": 5}}, {"type": []}, {"$ref": 3},
)  # fmt: skip
KEYWORDS = tuple(dict.fromkeys((*_SCALARS, *_SCHEMA, *_LIST, *_NAMED)))


def places(inner: Any) -> Iterator[Any]:
    """Schemas with `inner` at each place where a schema may stand, behind references too."""
    yield inner
    yield from ({keyword: inner} for keyword in _SCHEMA)
    yield from ({keyword: [inner]} for keyword in _LIST)
    yield from ({keyword: {"a/b": inner}} for keyword in _NAMED)
    yield {"$ref": "#/x/y", "x": {"y": inner}}
    yield {"items": {"$ref": "#/x/0"}, "x": [inner]}
    yield {"if": {"$ref": "#/const/y"}, "const": {"y": inner}}
    yield {"$schema": "http://json-schema.org/draft-07/schema#", "not": {"anyOf": [inner]}}


def hostile(seed: int) -> str:
    """A schema of keywords at random, some with values of a wrong type."""
    rng = random.Random(seed)
    bad = rng.choice([0, 0, 0.03, 0.1])
    found = _schema(rng, rng.randint(1, 3), bad)
    if rng.random() < 0.5:
        found.setdefault("$defs", {"a": _schema(rng, 1, bad)})
    return json.dumps(found)


def _schema(rng: random.Random, depth: int, bad: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(rng.randint(1, 4)):
        keyword = rng.choice(KEYWORDS if depth > 0 else tuple(_SCALARS))
        inner = depth - 1
        if rng.random() < bad:
            found[keyword] = rng.choice(WRONG)
        elif keyword in _SCALARS:
            found[keyword] = rng.choice(_SCALARS[keyword])
        elif keyword in _NAMED:
            found[keyword] = {rng.choice(_NAMES): _schema(rng, inner, bad) for _ in range(rng.randint(0, 2))}
        elif keyword in _SCHEMA and rng.random() < 0.7:
            found[keyword] = rng.choice([True, False, _schema(rng, inner, bad), _schema(rng, inner, bad)])
        else:
            found[keyword] = [_schema(rng, inner, bad) for _ in range(rng.randint(1, 2))]
    return found
