"""Draft 7 is read as draft 7, and a keyword of the wrong kind is refused in either draft."""

from __future__ import annotations

import pytest

from localrun.constraint import check
from localrun.errors import ConstraintError
from localrun.params import ConstraintSpec
from tests.constraint.schemas import accepts


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
