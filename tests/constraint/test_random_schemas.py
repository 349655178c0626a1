"""Whatever the schema: what its grammar accepts is what `jsonschema` calls valid, and random outputs are valid."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from localrun.constraint import check
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import ConstraintError
from localrun.params import ConstraintSpec
from tests.constraint.random_schemas import VALUES, RandomSchemas
from tests.constraint.suite import written_forms
from tests.constraint.walk import walk


@pytest.mark.parametrize("seed", range(2))
def test_a_random_schema_is_enforced_exactly_or_refused(seed: int) -> None:
    source, taken = RandomSchemas(seed), 0
    for _ in range(40):
        schema = source.schema(2)
        text = json.dumps(schema)
        validator = Draft202012Validator(schema)
        try:
            checked = check(ConstraintSpec("json_schema", text, "s"))
        except ConstraintError as error:
            unsatisfiable = "no value satisfies" in str(error)
            assert not (unsatisfiable and any(map(validator.is_valid, VALUES))), text
            continue
        taken += 1
        acceptor = checked.grammar.acceptor
        accepted = [value for value in VALUES if any(map(acceptor.accepts, written_forms(value)))]
        assert accepted == [value for value in VALUES if validator.is_valid(value)], text
        constraint = checked.bind(ByteTable())
        for walk_seed in range(2):
            output = walk(constraint, walk_seed, budget=150)
            if output is not None:
                assert validator.is_valid(json.loads(output)) or "multipleOf" in text, (text, output)
                constraint.validate(output)
    assert taken > 15
