"""JSON Schema, held against the standard's own test suite.

Instances are tried in all orders of their properties (the grammar fixes one) and without white space. `format` is only
an annotation for the suite and is enforced here, so its instances are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest

from localrun.constraint.grammar import Grammar
from localrun.constraint.schema import compile_schema
from localrun.errors import ConstraintError
from tests.constraint.suite import Group, groups, written_forms


@cache
def compiled(draft: str) -> list[tuple[Group, Grammar | None]]:
    """Each group with its grammar; None for one that is refused."""
    found: list[tuple[Group, Grammar | None]] = []
    for group in groups(draft):
        try:
            found.append((group, compile_schema(json.dumps(group.schema), group.keyword)))
        except ConstraintError as error:
            if "no value satisfies" in str(error):  # that is a verdict and no refusal: nothing may be valid
                assert not any(valid for _, _, valid in group.instances), group.description
            else:
                found.append((group, None))
    return found


def verdicts(draft: str, *, valid: bool) -> list[str]:
    """The instances of this kind whose verdict is wrong."""
    wrong = []
    for group, grammar in compiled(draft):
        for description, value, expected in group.instances:
            if grammar is not None and expected == valid and group.keyword != "format":
                accepted = any(grammar.acceptor.accepts(text) for text in written_forms(value))
                if accepted != expected:
                    wrong.append(f"{group.keyword} / {group.description} / {description}")
    return wrong


@pytest.mark.parametrize("draft", ["draft2020-12", "draft7"])
def test_no_invalid_instance_is_accepted(draft: str) -> None:
    assert verdicts(draft, valid=False) == []


@pytest.mark.parametrize("draft", ["draft2020-12", "draft7"])
def test_no_valid_instance_is_rejected_by_a_schema_that_is_taken(draft: str) -> None:
    assert verdicts(draft, valid=True) == []


@pytest.mark.parametrize("draft", ["draft2020-12", "draft7"])
def test_nine_of_ten_schemas_are_taken(draft: str) -> None:
    refused = Counter(group.keyword for group, grammar in compiled(draft) if grammar is None)
    assert refused.total() <= 0.1 * len(compiled(draft)), refused


def test_what_the_final_validation_accepts_is_what_the_suite_calls_valid() -> None:
    from localrun.errors import InvalidOutputError

    for group, grammar in compiled("draft2020-12"):
        if grammar is None or group.keyword == "format":
            continue
        for description, value, valid in group.instances:
            try:
                grammar.validate(json.dumps(value))
                passed = True
            except InvalidOutputError:
                passed = False
            assert passed == valid, (group.keyword, group.description, description)
