"""Bounds of numbers, lengths and counts hold at their edges."""

from __future__ import annotations

import json

import pytest

from tests.constraint.schemas import accepts, checked


def test_bounds_at_their_edges() -> None:
    strings = {"type": "array", "items": {"type": "string"}}
    assert accepts({**strings, "maxItems": 0}, "[]")
    assert not accepts({**strings, "maxItems": 0}, '[""]')
    assert accepts({"type": "object", "properties": {}}, "{}")
    for length in (1999, 2000, 2001, 65536):
        inner = {"type": "string", "maxLength": length}
        nested = {
            "properties": {"a": {"properties": {"b": inner}, "required": ["b"], "type": "object"}},
            "type": "object",
        }
        assert accepts(nested, json.dumps({"a": {"b": "x" * length}}, separators=(",", ":")))
        assert not accepts(nested, json.dumps({"a": {"b": "x" * (length + 1)}}, separators=(",", ":")))
    many = {"type": "array", "items": {"type": "number"}, "minItems": 10, "maxItems": 1000}
    assert not accepts(many, json.dumps(list(range(9)), separators=(",", ":")))
    assert accepts(many, json.dumps(list(range(1000)), separators=(",", ":")))
    assert not accepts(many, json.dumps(list(range(1001)), separators=(",", ":")))
    assert accepts({"type": "string", "minLength": 3000}, json.dumps("x" * 3000))
    assert not accepts({"type": "string", "minLength": 3000}, json.dumps("x" * 2999))


def test_lengths_count_characters_and_not_bytes_or_escapes() -> None:
    schema = {"type": "string", "minLength": 2, "maxLength": 2}
    assert accepts(schema, '"🙂é"')
    assert accepts(schema, r'"\n\u0001"')
    assert not accepts(schema, '"🙂"')
    assert not accepts(schema, '"abc"')


@pytest.mark.parametrize(
    ("bounds", "yes", "no"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, ["0.5", "0.001", "0.25"], ["0", "0.0", "0.51", "-0.1"]),
        ({"minimum": -1.5, "exclusiveMaximum": 2}, ["-1.5", "0", "1.999"], ["-1.51", "2", "2.0", "-2"]),
        ({"minimum": 99}, ["99", "100", "99.5", "1000"], ["98.9", "9", "-100"]),
        ({"maximum": -10}, ["-10", "-10.0", "-11"], ["-9.9", "0", "10"]),
        ({"multipleOf": 0.01, "minimum": 0, "maximum": 1}, ["0.07", "1"], ["0.075", "1.01"]),
    ],
)
def test_numbers_stay_in_their_range(bounds: dict[str, float], yes: list[str], no: list[str]) -> None:
    schema = {"type": "number", **bounds}
    verdicts = {text: accepts(schema, text) for text in [*yes, *no]}
    assert verdicts == {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
    for text in yes:
        checked(schema).grammar.validate(text)


def test_no_number_is_rounded_over_a_bound_by_its_reader() -> None:
    assert not accepts({"type": "number", "exclusiveMaximum": 1}, "0.99999999999999999")
    assert not accepts({"type": "number", "not": {"type": "integer"}}, "50040003783090026.4")
    assert accepts({"type": "number", "exclusiveMaximum": 1}, "0.9999999999")
    assert accepts({"type": "number", "not": {"type": "integer"}}, "-12345.678")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("schema", "least"),
    [
        ({"type": "array", "contains": {}, "minContains": 101}, 101),
        ({"type": "array", "contains": {"type": "integer"}, "minContains": 101}, 101),
        ({"type": "array", "contains": {"type": "integer"}, "minContains": 3}, 3),
        ({"not": {"contains": {}, "maxContains": 100}}, 101),
    ],
)
def test_however_many_items_must_match_they_are_counted_in_one_way(schema: dict[str, object], least: int) -> None:
    def written(n: int) -> str:
        return json.dumps([*range(n), *(["no"] if schema.get("contains") else [])], separators=(",", ":"))

    assert accepts(schema, written(least))
    assert accepts(schema, written(2 * least))
    assert not accepts(schema, written(least - 1))
