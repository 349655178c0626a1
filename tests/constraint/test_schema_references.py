"""References of a JSON Schema: followed inside the document, and named where they lead nowhere, out, or in a circle."""

from __future__ import annotations

import json

from tests.constraint.schemas import accepts, assert_walks_are_valid, refusal


def test_recursive_schemas_run() -> None:
    node = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/N"}},
        "required": ["v"],
    }
    for schema in (
        {"$defs": {"N": node}, "$ref": "#/$defs/N"},
        {"definitions": {"N": json.loads(json.dumps(node).replace("$defs", "definitions"))}, "$ref": "#/definitions/N"},
        {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["v"]},
    ):
        assert accepts(schema, '{"v":1,"next":{"v":2,"next":{"v":3}}}')
        assert not accepts(schema, '{"v":1,"next":{"next":{"v":3}}}')
        assert_walks_are_valid(schema)


def test_references_that_run_in_a_circle_are_named() -> None:
    assert "circle" in refusal({"$defs": {"A": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"})
    both = {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}
    assert "#/$defs/A -> #/$defs/B -> #/$defs/A" in refusal(both)
    assert "circle" in refusal({"allOf": [{"anyOf": [{"$ref": "#"}, {"type": "null"}]}]})
    assert "circle" in refusal({"not": {"$ref": "#"}})


def test_references_that_lead_nowhere_or_out_are_named_and_nothing_is_fetched() -> None:
    assert "leads nowhere" in refusal({"properties": {"a": {"$ref": "#/$defs/X"}}})
    assert "leads nowhere" in refusal({"$ref": "#anchor"})
    assert "leads out of the document" in refusal({"$ref": "https://example.com/schema.json"})
    assert "leads out of the document" in refusal({"$ref": "other.json#/a"})
    assert "no schema" in refusal({"$ref": "#/title", "title": "text"})


def test_a_value_that_could_never_end_is_refused() -> None:
    assert "no value satisfies" in refusal({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})
