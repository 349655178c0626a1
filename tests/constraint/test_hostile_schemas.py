"""Whatever the schema: it is enforced, or a `ConstraintError` on one line; never anything else."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from localrun.constraint import check, prepare
from localrun.constraint.checked import CheckedConstraint
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import ConstraintError
from localrun.params import ConstraintSpec
from tests.constraint.hostile_schemas import KEYWORDS, WRONG, hostile, places
from tests.constraint.schemas import accepts, assert_walks_are_valid, checked, refusal
from tests.constraint.walk import walk


def enforced_or_refused(text: str) -> CheckedConstraint | None:
    """The constraint, or None where it was refused on one line."""
    try:
        return check(ConstraintSpec("json_schema", text, "s"))
    except ConstraintError as error:
        lines = error.message.splitlines()
    assert len(lines) == 1, (text, lines)
    return None


@pytest.mark.parametrize("part", range(4))
def test_a_keyword_of_any_type_at_any_place_is_enforced_or_refused(part: int) -> None:
    every = ({keyword: wrong} for keyword in KEYWORDS for wrong in WRONG)
    for number, inner in enumerate(every):
        schemas = list(places(inner))
        for schema in schemas[(number + part) % 8 :: 8]:
            enforced_or_refused(json.dumps(schema))


def test_keywords_at_random_are_enforced_or_refused_and_outputs_are_valid() -> None:
    vocabulary, taken = prepare(ByteTable()), 0
    for seed in range(400):
        text = hostile(seed)
        found = enforced_or_refused(text)
        if found is None:
            continue
        taken += 1
        constraint = found.bind_to(vocabulary)
        output = walk(constraint, seed, budget=100)
        if output is not None:
            constraint.validate(output)
    assert taken > 50


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"if": {"$ref": "#/nowhere"}}, "at /if/$ref: the reference '#/nowhere' leads nowhere"),
        ({"if": {"$ref": "https://example.com/a"}}, "at /if/$ref: the reference"),
        ({"if": {"$ref": "#"}}, "circle: # -> #/if -> #"),
        ({"$id": "http://x.org/a", "$ref": "//["}, "at /$ref: '//[' is no URI"),
        ({"$id": "http://x.org/a", "properties": {"a": {"$id": "//["}}}, "at /properties/a/$id: '//[' is no URI"),
        ({"$ref": "#/allOf/²", "allOf": [True]}, "at /$ref"),
        ({"multipleOf": 1e10 + 1}, "s.json: at"),
        ({"type": "integer", "multipleOf": 4294967295}, "multiples"),
        ({"properties": {"a\nb": {"type": "c"}}}, r"at /properties/a\nb/type"),
        ({"allOf": [{"pattern": f"a{i}"} for i in range(40)]}, "more than 8 patterns"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "at /items/$schema"),
        ({"not": {"dependencies": {"a": ["b"]}}}, "at /not/dependencies: 'dependencies' is of another draft"),
    ],
)
def test_what_neither_grammar_nor_final_check_can_follow_is_refused_with_its_place(schema: Any, problem: str) -> None:
    assert problem in refusal(schema)


def test_schemas_that_multiply_on_one_value_are_refused() -> None:
    twice = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(60)}
    assert "one value would have to be checked" in refusal({"$defs": {**twice, "a60": {}}, "$ref": "#/$defs/a0"})


def test_a_pattern_that_the_final_check_cannot_read_is_refused_in_lenient_mode_too() -> None:
    with pytest.raises(ConstraintError, match="at /pattern: the pattern"):
        checked({"pattern": "["}, lenient=True)


def test_zero_has_no_sign_and_large_constants_keep_every_digit() -> None:
    for bound in ("minimum", "maximum"):
        assert accepts({"type": "integer", bound: -0.0}, "0")
    for value in (10**30, 123456789012345678901234567890, 1e30, -1.5e-9, 1.2345678901234567e19, 1e20):
        assert_walks_are_valid({"const": value})
    assert accepts({"const": 10**30}, "1" + "0" * 30)


@pytest.mark.parametrize("zero", ["0", "-0", "0.0", "-0.0", "-0e5", "0E-9", "1e-400", "-1e-400"])
def test_zero_is_one_number_however_it_is_written(zero: str) -> None:
    for form in ('{"not":{"enum":[ZERO]}}', '{"not":{"const":ZERO}}', '{"not":{"enum":[1,ZERO]}}'):
        number = '{"type":"number","allOf":[' + form.replace("ZERO", zero) + "]}"
        assert not accepts(number, "0")
        assert accepts(number, "-0.5")
        assert accepts(number, "2")
    assert not accepts('{"not":{"const":[ZERO]}}'.replace("ZERO", zero), "[0]")
    for form in (
        '{"if":{"const":ZERO},"then":{"const":0},"else":{"const":1}}',
        '{"oneOf":[{"enum":[ZERO]},{"const":1}]}',
        '{"enum":[1,ZERO]}',
        '{"type":"integer","minimum":ZERO,"maximum":1}',
    ):
        verdicts = [accepts(form.replace("ZERO", zero), text) for text in ("0", "1", "2", "-1")]
        assert verdicts == [True, True, False, False], form


@pytest.mark.parametrize("number", ["1e0", "1.0", "100e-2", "10E-1"])
def test_a_number_is_its_value_however_it_is_written(number: str) -> None:
    for schema, text, holds in (
        ('{"const":ONE}', "1", True),
        ('{"type":"number","not":{"enum":[ONE]}}', "1", False),
        ('{"type":"array","minItems":ONE,"maxItems":ONE,"items":{"type":"null"}}', "[null]", True),
    ):
        assert accepts(schema.replace("ONE", number), text) == holds, schema


def test_a_number_beyond_what_is_computed_with_is_refused_with_its_place() -> None:
    assert "at /not/enum/0: 1E400 is beyond" in refusal('{"not":{"enum":[1E400]}}')
    assert "at /minimum: -1e400 is beyond" in refusal('{"minimum":-1e400}')


def test_a_count_of_distinct_items_above_their_number_is_no_bound() -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 4000}
    assert accepts(schema, "[2,1]")
    assert not accepts(schema, "[2,2]")


def test_a_keyword_of_the_newer_draft_loosens_nothing_in_draft_7() -> None:
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array"}
    for more in (
        {"contains": {"const": 1}, "minContains": 0},
        {"prefixItems": [{"type": "string"}], "items": {"maxLength": 1}},
    ):
        schema = {**draft_7, **more}
        constraint = checked(schema).bind(ByteTable())
        outputs = [text for seed in range(10) if (text := walk(constraint, seed)) is not None]
        for text, validator in itertools.product(outputs, (Draft7Validator(schema), Draft202012Validator(more))):
            assert validator.is_valid(json.loads(text)), text
