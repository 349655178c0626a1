"""JSON Schema: everything is enforced, or refused by name; every output that completes is valid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localrun.constraint import check, compile
from localrun.constraint.checked import CheckedConstraint
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import ConstraintError, InvalidOutputError
from localrun.params import ConstraintSpec
from tests.constraint.walk import walk


def checked(schema: Any, **options: Any) -> CheckedConstraint:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return check(ConstraintSpec("json_schema", text, "s.json", **options))


def accepts(schema: Any, text: str, **options: Any) -> bool:
    return checked(schema, **options).grammar.acceptor.accepts(text)


def refusal(schema: Any) -> str:
    with pytest.raises(ConstraintError) as caught:
        checked(schema)
    assert "\n" not in caught.value.message
    return caught.value.message


def assert_walks_are_valid(schema: Any, seeds: int = 10, **options: Any) -> None:
    """Random outputs satisfy the schema; at least one was completed."""
    constraint = compile(ConstraintSpec("json_schema", json.dumps(schema), "s.json", **options), ByteTable())
    outputs = [text for seed in range(seeds) if (text := walk(constraint, seed)) is not None]
    assert outputs
    for text in outputs:
        json.loads(text)
        constraint.validate(text)


# References


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


# Patterns


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"\S", ["a", " a "], ["", "  "]),
        (r"^\d+$", ["1", "42"], ["", "a1", "1\n"]),
        (r"^[\w-]+$", ["a-b_1"], ["a b", ""]),
        (r"^https:\/\/x$", ["https://x"], ["https://xy"]),
        (r"^a|b$", ["ax", "xb"], ["xa", "bx"]),
        (r"^(?:ab)+$", ["ab", "abab"], ["aba", ""]),
        (r"^hello\!$", ["hello!"], ["hello"]),
        (r"^[0-9]{3,}$", ["123", "12345"], ["12"]),
        ("", ["", "x"], []),
        ("b", ["b", "abc"], ["ac"]),
        (r'^"\\\n$', ['"\\\n'], ['"\\n']),
        (r"^[^\"\\]*$", ["a\tb"], ['"', "\\"]),
        (r"^\u00e9🙂$", ["é🙂"], ["e"]),
        (r"^(a|b$)", ["ab", "b"], ["bc"]),
        (r"^a?b*?c+?$", ["c", "abbcc"], ["ab"]),
        (r"[$^.]", ["a.b", "$"], ["ab"]),
    ],
)
def test_a_pattern_is_found_anywhere_unless_it_is_anchored(pattern: str, yes: list[str], no: list[str]) -> None:
    schema = {"type": "string", "pattern": pattern}
    verdicts = {text: accepts(schema, json.dumps(text, ensure_ascii=False)) for text in [*yes, *no]}
    assert verdicts == {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
    assert_walks_are_valid(schema, seeds=5)


@pytest.mark.parametrize(
    "pattern", ["^(?=a)b$", "(?<!a)b", r"(a)\1", r"\bword", r"\p{L}", "a^b", r"\ud83d\ude42", "[", "(", "*", "a{2}{3}+"]
)
def test_a_pattern_that_no_grammar_can_express_is_refused_with_its_place(pattern: str) -> None:
    assert "/properties/a/pattern" in refusal({"properties": {"a": {"pattern": pattern}}})


def test_patterns_lengths_formats_and_constants_hold_together() -> None:
    schema = {
        "allOf": [{"pattern": "a"}, {"pattern": "b$"}, {"minLength": 3, "maxLength": 4}, {"not": {"const": "aab"}}]
    }
    schema["type"] = "string"
    assert [text for text in ("aab", "abab", "ab", "xxb", "axb", "aaaab") if accepts(schema, f'"{text}"')] == [
        "abab",
        "axb",
    ]
    assert "no value satisfies" in refusal({"type": "string", "pattern": "^a+$", "maxLength": 3, "minLength": 5})
    assert "no value satisfies" in refusal({"allOf": [{"pattern": "^a"}, {"pattern": "^b"}], "type": "string"})


# Faults in the schema


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":', "s.json:1:6: this is no JSON"),
        ("", "s.json:1:1: this is no JSON"),
        ("type: object", "s.json:1:1: this is no JSON"),
        ("[1]", "a JSON Schema is an object, this is an array"),
        ("3", "this is a number"),
        ("null", "this is null"),
        ('{"type":"strng"}', "at /type"),
        ('{"properties":{"a":{"minLength":-1}}}', "at /properties/a/minLength"),
        ('{"required":"a"}', "at /required"),
        ('{"type":"string","type":"object"}', "'type' occurs twice"),
        ('{"minimum":NaN}', "NaN is no JSON"),
        ('{"$schema":"http://json-schema.org/draft-04/schema#"}', "at /$schema"),
        ('{"minLength":5,"maxLength":2,"type":"string"}', "no value satisfies"),
        ('{"minimum":5,"maxLength":2,"maximum":4,"type":"number"}', "no value satisfies"),
        ("false", "no value satisfies"),
        ('{"type":"object","required":["a"],"additionalProperties":false}', "no value satisfies"),
        ("[" * 100_000, "nested deeper"),
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


# Bounds at their edges


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


# Keywords, one schema each: outputs at random are all valid

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


# The text


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


def test_draft_7_is_read_as_draft_7() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"n": {"type": "integer"}},
        "type": "array",
        "items": [{"$ref": "#/definitions/n", "maximum": 3}, {"type": "string"}],
        "additionalItems": False,
    }
    assert accepts(schema, '[5,"a"]')  # what stands beside $ref is ignored
    assert not accepts(schema, '[5,"a",1]')
    del schema["$schema"]
    assert accepts(schema, '[5,"a"]')


def test_the_final_check_names_the_place() -> None:
    grammar = checked({"type": "object", "properties": {"a": {"type": "integer"}}}).grammar
    with pytest.raises(InvalidOutputError, match="at /a: 'x' is not of type 'integer'"):
        grammar.validate('{"a":"x"}')
    with pytest.raises(InvalidOutputError, match="no JSON"):
        grammar.validate('{"a":')


def test_no_number_is_rounded_over_a_bound_by_its_reader() -> None:
    assert not accepts({"type": "number", "exclusiveMaximum": 1}, "0.99999999999999999")
    assert not accepts({"type": "number", "not": {"type": "integer"}}, "50040003783090026.4")
    assert accepts({"type": "number", "exclusiveMaximum": 1}, "0.9999999999")
    assert accepts({"type": "number", "not": {"type": "integer"}}, "-12345.678")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"prefixItems": 5}', "at /prefixItems: 5 is not"),
        ('{"dependentSchemas": 5}', "at /dependentSchemas: 5 is not"),
        ('{"dependentRequired": 5}', "at /dependentRequired: 5 is not"),
        ('{"properties": {"a": {"unevaluatedProperties": 5}}}', "at /properties/a/unevaluatedProperties: 5 is not"),
        ('{"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": 5}', "at /prefixItems: 5 is not"),
        ('{"$ref": "#/x/a", "x": {"a": {"if": 5}}}', "at /x/a/if: 5 is not"),
        ('{"$ref": "#/x", "x": {"properties": {"a": {"type": "foo"}}}}', "at /x/properties/a/type: 'foo' is not"),
    ],
)
def test_a_keyword_of_the_wrong_kind_is_refused_with_its_place_in_either_draft(text: str, place: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        check(ConstraintSpec("json_schema", text, "schema"))
    assert place in caught.value.message


# What is no JSON, or no text


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ('{"const":NaN}', "at /const: NaN"),
        ('{"const":1e400}', "at /const: 1e400"),
        ('{"enum":[1,-1e999]}', "at /enum/1: -1e999"),
        ('{"properties":{"a/b":{"maximum":Infinity}}}', "at /properties/a~1b/maximum: Infinity"),
        ('{"examples":[[-Infinity]]}', "at /examples/0/0: -Infinity"),
        ('{"const":' + "9" * 401 + "}", "at /const: 99999999999999999999... has 401 digits"),
        ("NaN", "at (root): NaN"),
        (r'{"const":"a\ud800"}', r"at /const: character 2 of 'a\ud800' is half of a surrogate pair"),
        (r'{"properties":{"\ud800":{}}}', "at /properties: a name: character 1"),
        (r'{"required":["\udfff"]}', "at /required/0: character 1"),
        ('{"minLength":1e18}', "at /minLength: a length of 1e+18 characters"),
        ('{"maxLength":4294967295}', "at /maxLength: a length of 4294967295 characters"),
        ('{"not":{"type":"string","minLength":1e18}}', "/not/minLength: a length of 1e+18"),
    ],
)
def test_numbers_and_texts_that_are_none_are_refused_with_their_place(schema: str, place: str) -> None:
    assert place in refusal(schema)


@pytest.mark.parametrize("output", ["NaN", "-Infinity", "1e999", "[-1E400]", "9" * 5000])
@pytest.mark.parametrize("schema", [{}, {"multipleOf": 0.01}])
def test_an_output_with_a_number_that_is_none_is_invalid(output: str, schema: Any) -> None:
    with pytest.raises(InvalidOutputError, match="number"):
        checked(schema).grammar.validate(output)
