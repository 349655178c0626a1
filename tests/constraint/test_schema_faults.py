"""Faults in a JSON Schema: refused by name and place before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from localrun.errors import ConstraintError, InvalidOutputError
from tests.constraint.schemas import accepts, checked, refusal


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":', "s.json:1:6: this is no JSON"),
        ("", "s.json:1:1: this is no JSON"),
        ("type: object", "s.json:1:1: this is no JSON"),
        ("[1]", "a JSON Schema is an object, this is an array"),
        ("3", "this is a number"),
        ("null", "this is null"),
        ('{"type":"strng"}', "at /type: 'strng' is not a type; the types are array, boolean, integer, null, number"),
        ('{"items":{"type":["objekt"]}}', "at /items/type/0: 'objekt' is not a type; the types are array"),
        ('{"items":{"type":"objekt"}}', "object, string; did you mean 'object'?"),
        (
            '{"$schema":"http://json-schema.org/draft-07/schema#","type":null}',
            "at /type: null is not a type; the types",
        ),
        ('{"properties":{"type":"string"}}', "at /properties/type: 'string' is not of type 'object', 'boolean'"),
        ('{"dependencies":{"a":5}}', "at /dependencies/a: 5 is not of type"),
        ('{"properties":{"a":{"minLength":-1}}}', "at /properties/a/minLength"),
        ('{"required":"a"}', "at /required"),
        ('{"type":"string","type":"object"}', "'type' occurs twice"),
        ('{"minimum":NaN}', "NaN is no JSON"),
        ('{"$schema":"http://json-schema.org/draft-04/schema#"}', "at /$schema"),
        ('{"minLength":5,"maxLength":2,"type":"string"}', "no value satisfies"),
        ('{"minimum":5,"maxLength":2,"maximum":4,"type":"number"}', "no value satisfies"),
        ("false", "no value satisfies"),
        ('{"type":"object","required":["a"],"additionalProperties":false}', "no value satisfies"),
        ("[" * 100_000, "s.json: at /0/0/0"),
        ("[" * 100_000, "nested deeper"),
        ('{"a/b":[1,{"x":"[{"},' * 120 + "0" + "]}" * 120, "s.json: at /a~1b/2/a~1b/2/"),
        ('{"allOf":[' * 95 + "{}" + "]}" * 95, "s.json: at /allOf/0/allOf/0/"),
        ('{"allOf":[' * 95 + "{}" + "]}" * 95, "nested"),
        ('{"minimum":1e300,"type":"number"}', "beyond"),
        ('{"const":"\\ud800"}', "s.json"),
    ],
)
def test_a_schema_that_cannot_work_is_refused_before_anything_is_loaded(text: str, problem: str) -> None:
    assert problem in refusal(text)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"uniqueItems": True, "items": {"type": "string"}}}}, "/properties/a"),
        ({"properties": {"a": {"format": "no-such-format"}}}, "/properties/a/format"),
        ({"items": {"not": {"multipleOf": 3}}}, "/items/not/multipleOf"),
        ({"allOf": [{"not": {"format": "date"}}]}, "/allOf/0/not/format"),
        ({"unevaluatedItems": False}, "/unevaluatedItems"),
        ({"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}, "/properties"),
        ({"$dynamicRef": "#x"}, "/$dynamicRef"),
        ({"minProperties": 3}, "names could repeat"),
        (
            {"properties": {"a": {"oneOf": [{"pattern": "a"}, {"pattern": "b", "format": "email"}]}}},
            "/properties/a/oneOf",
        ),
    ],
)
def test_a_keyword_that_cannot_be_enforced_is_refused_with_its_pointer(schema: Any, pointer: str) -> None:
    assert pointer in refusal(schema)


def test_lenient_turns_a_refusal_into_a_final_check() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    assert "uniqueItems" in refusal(schema)
    with pytest.raises(ConstraintError) as caught:
        checked({"type": "string", "format": "no-such-format"})
    assert "--schema-lenient" in str(caught.value.hint)
    lenient = checked({"type": "string", "pattern": r"^(?=.*\d)\w+$"}, lenient=True)
    assert any("/pattern" in note for note in lenient.notes)
    assert lenient.grammar.acceptor.accepts('"abc"')
    lenient.grammar.validate('"a1"')
    with pytest.raises(InvalidOutputError, match="violates the schema"):
        lenient.grammar.validate('"abc"')


def test_unknown_keywords_are_noted_and_keywords_inside_values_are_not() -> None:
    assert any("'patern'" in note for note in checked({"patern": "x"}).notes)
    values = {"const": {"uniqueItems": True, "pattern": "("}, "default": {"not": 1}, "examples": [{"$ref": "#/x"}]}
    assert checked(values).notes == ()
    assert accepts({"enum": [{"format": "x"}]}, '{"format":"x"}')
    assert accepts({"properties": {"pattern": {"type": "integer"}}}, '{"pattern":1}')


def test_the_final_check_names_the_place() -> None:
    grammar = checked({"type": "object", "properties": {"a": {"type": "integer"}}}).grammar
    with pytest.raises(InvalidOutputError, match="at /a: 'x' is not of type 'integer'"):
        grammar.validate('{"a":"x"}')
    with pytest.raises(InvalidOutputError, match="no JSON"):
        grammar.validate('{"a":')
