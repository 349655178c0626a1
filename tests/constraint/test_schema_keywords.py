"""Keywords of JSON Schema, one schema each: every output at random is valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.constraint.schemas import accepts, assert_walks_are_valid

A, B = {"required": ["a"]}, {"required": ["b"]}


A3: dict[str, Any] = {"a": {}, "b": {}, "c": {}}


KEYWORDS: dict[str, Any] = {
    "minimum": {"type": "integer", "minimum": 3, "maximum": 12},
    "multipleOf": {"type": "integer", "multipleOf": 7},
    "number": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "uniqueItems": {"type": "array", "items": {"enum": ["a", "b", 1, True, None]}, "uniqueItems": True, "minItems": 2},
    "not": {"not": {"type": ["string", "object"]}},
    "not const": {"type": ["string", "integer"], "not": {"enum": ["a", 1, 2]}},
    "if": {"type": "object", "if": {"properties": {"k": {"const": 1}}}, "then": A, "else": B},
    "patternProperties": {"type": "object", "patternProperties": {"^s": {"type": "string"}, "n$": {"type": "integer"}}},
    "additionalProperties": {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "boolean"}},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^[ab]+$"}},
    "oneOf beside properties": {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
        "oneOf": [A, B],
    },
    "required without properties": {"type": "object", "required": ["x", "y"]},
    "contains": {"type": "array", "contains": {"type": "integer"}, "minContains": 2, "maxContains": 3, "maxItems": 6},
    "dependentRequired": {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}, **B}}},
    "maxProperties": {"type": "object", "properties": {**A3}, "minProperties": 1, "maxProperties": 2},
    "prefixItems": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    "enum of everything": {"enum": [None, True, 0, -1.5, "é\"\\\n", [], [1, [2]], {}, {"a": {"b": []}}]},
    "anything": {},
    "formats": {
        "type": "array",
        "items": {"type": "string", "anyOf": [{"format": f} for f in ("date", "time", "date-time", "uuid")]},
        "minItems": 3,
    },
    "network formats": {
        "type": "array",
        "items": {"type": "string", "anyOf": [{"format": f} for f in ("email", "hostname", "ipv4", "ipv6", "uri")]},
        "minItems": 3,
    },
    "null in oneOf": {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 3}, {"type": "integer"}]},
}  # fmt: skip


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_outputs_at_random_satisfy_the_schema(keyword: str) -> None:
    assert_walks_are_valid(KEYWORDS[keyword], seeds=6)
    assert_walks_are_valid(KEYWORDS[keyword], seeds=2, pretty=True)


def test_ordinary_formats_accept_ordinary_values() -> None:
    values = {
        "date": ["2024-02-29", "1999-12-31"],
        "time": ["12:30:00Z", "23:59:59.5+02:00"],
        "date-time": ["2024-01-31T08:00:00Z"],
        "duration": ["P1Y2M", "PT5M", "P3W", "P1DT12H"],
        "email": ["a.b+c@example.com"],
        "hostname": ["a.example.com"],
        "ipv4": ["192.168.0.1"],
        "ipv6": ["::1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8"],
        "uri": ["https://example.com/a/b?c=d#e"],
        "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
        "json-pointer": ["", "/a/b~1c"],
    }
    wrong = {"date": ["2023-02-29", "2024-13-01"], "time": ["25:00:00Z"], "ipv4": ["256.1.1.1"], "ipv6": ["1::2::3"]}
    for name, texts in values.items():
        assert [text for text in texts if not accepts({"type": "string", "format": name}, json.dumps(text))] == []
    for name, texts in wrong.items():
        assert [text for text in texts if accepts({"type": "string", "format": name}, json.dumps(text))] == []
