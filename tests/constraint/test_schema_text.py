"""The JSON text that a schema allows: one way to write each value, compact or indented."""

from __future__ import annotations

import json
from typing import Any

from tests.constraint.schemas import accepts, checked


def test_only_legal_json_without_loose_white_space() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["a", "n"],
    }
    assert accepts(schema, '{"a":"x","n":1}')
    for bad in (
        '{"a":"x", "n":1}', '{"a":"x","n":01}', '{"a":"\n","n":1}', '{"a":"\x00","n":1}', '{"a":"\\q","n":1}',
        '{"a":"x","n":1', '{"a":"x","n":1} ', '{"a":"x","n":1,}', "{'a':1}", '{"a":"x","n":+1}', '{"a":"x","n":1.}',
        '{"a":"x","n":1}{', '{"n":1,"a":"x","a":"y"}', '{"a":"x","n":99999999999999999999}',
    ):  # fmt: skip
        assert not accepts(schema, bad), bad


def test_pretty_output_is_indented_like_json_dumps() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "integer"}},
            "b": {"type": "object"},
            "c": {"type": "array"},
        },
    }
    value = {"a": [1, 2], "b": {"x": {"y": []}}, "c": []}
    assert accepts(schema, json.dumps(value, indent=2), pretty=True)
    assert not accepts(schema, json.dumps(value, indent=4), pretty=True)
    assert not accepts(schema, json.dumps(value), pretty=True)


def test_indentation_is_bounded_in_recursive_values() -> None:
    value: Any = []
    for _ in range(10):
        value = [value]
    assert accepts({"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
                   json.dumps(value, indent=2), pretty=True)  # fmt: skip


def test_properties_keep_the_order_of_the_schema() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False}
    assert accepts(schema, '{"a":1,"c":2}')
    assert not accepts(schema, '{"c":2,"a":1}')


def test_names_that_need_escapes_work() -> None:
    names = ['a"b', "a\\b", "a\nb", "a/b~c", "é🙂", "", "$ref", "%json", "{x}"]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names}
    assert accepts(schema, json.dumps(dict.fromkeys(names, 1), separators=(",", ":"), ensure_ascii=False))


def test_large_schemas_compile() -> None:
    kinds = ["string", "integer", "boolean"]
    wide = {"type": "object", "properties": {f"property_{i}": {"type": kinds[i % 3]} for i in range(1000)}}
    assert accepts(wide, '{"property_0":"x","property_999":1}') is False
    assert accepts(wide, '{"property_0":"x","property_997":1}')
    deep: Any = {"type": "string"}
    for level in range(50):
        deep = {"type": "object", "properties": {f"level_{level}": deep}, "required": [f"level_{level}"]}
    assert checked(deep)
