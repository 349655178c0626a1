"""What is no JSON, or no text, is refused with its place, in a schema and in an output."""

from __future__ import annotations

from typing import Any

import pytest

from localrun.errors import InvalidOutputError
from tests.constraint.schemas import checked, refusal


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
