"""What the tests of JSON Schema ask: is it taken, what does it accept, how is it refused, are outputs at random valid.

Knows the compiler and walks over bytes; knows no schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from localrun.constraint import check, compile
from localrun.constraint.checked import CheckedConstraint
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import ConstraintError
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
