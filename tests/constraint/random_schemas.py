"""Random schemas out of every keyword that is enforced, and values to try on them."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("a", "b", "c")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 1.5, 2.5, "", "a", "ab", "abc", "b", [], [1], ["a"], [1, "a"], [1, 1], {},
    {"a": 1}, {"b": "a"}, {"a": 1, "b": 2}, {"c": [1]}, [[]], {"a": {}},
)  # fmt: skip
_COUNTS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
)
_TYPES = ("null", "boolean", "number", "integer", "string", "array", "object", ["string", "null"], ["integer", "array"])


class RandomSchemas:
    """A stream of schemas that depends on the seed alone."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def schema(self, depth: int) -> Any:
        rng = self.rng
        if depth <= 0:
            constant = {"const": rng.choice(VALUES)}
            return rng.choice([True, {}, constant, {"enum": rng.sample(VALUES, 3)}, {"type": rng.choice(_TYPES)}])
        found: dict[str, Any] = {}
        for _ in range(rng.randint(1, 4)):
            found.update(rng.choice([self._scalar, self._array, self._object, self._logic])(depth - 1))
        return found

    def _scalar(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        return rng.choice(
            [
                {"type": rng.choice(_TYPES)},
                {"enum": rng.sample(VALUES, rng.randint(1, 6))},
                {rng.choice(bounds): rng.choice([-1, 0, 1, 2, 1.5, 3, 0.5])},
                {"multipleOf": rng.choice([1, 2, 0.5, 3])},
                {rng.choice(_COUNTS): rng.choice([0, 1, 2, 3])},
                {"pattern": rng.choice(["^a", "b$", "^[a-c]*$", "a", "^ab?c?$", "^(a|b)$"])},
            ]
        )

    def _array(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        return rng.choice(
            [
                {"items": self.schema(depth)},
                {"prefixItems": [self.schema(depth) for _ in range(rng.randint(1, 2))]},
                {"contains": self.schema(depth)},
                {"uniqueItems": rng.random() < 0.7},
            ]
        )

    def _object(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        names = rng.sample(NAMES, rng.randint(1, 3))
        return rng.choice(
            [
                {"properties": {name: self.schema(depth) for name in names}},
                {"required": names},
                {"additionalProperties": self.schema(depth)},
                {"patternProperties": {rng.choice(["^a", "b", "."]): self.schema(depth)}},
                {"propertyNames": rng.choice([{"maxLength": 1}, {"pattern": "^a"}, {"enum": ["a", "b"]}])},
                {"dependentRequired": {names[0]: rng.sample(NAMES, 1)}},
                {"dependentSchemas": {names[0]: self.schema(depth)}},
            ]
        )

    def _logic(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        keyword = rng.choice(["allOf", "anyOf", "oneOf"])
        return rng.choice(
            [
                {keyword: [self.schema(depth) for _ in range(rng.randint(1, 3))]},
                {"not": self.schema(depth)},
                {"if": self.schema(depth), "then": self.schema(depth), "else": self.schema(depth)},
            ]
        )
