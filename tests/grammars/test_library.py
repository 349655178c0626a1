"""Every ready grammar and schema says what it is for, takes its accepted examples, and refuses its rejected ones."""

from __future__ import annotations

import pytest

from localrun.constraint import check, compile
from localrun.constraint.library import Entry, entries
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import InvalidOutputError
from tests.constraint.walk import walk


def test_there_are_enough_of_them_with_distinct_names() -> None:
    names = [entry.name for entry in entries()]
    assert len(names) >= 15
    assert len(names) == len(set(names))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_an_entry_keeps_its_promises(entry: Entry) -> None:
    assert entry.purpose
    assert not entry.purpose.endswith(".")
    assert entry.accepted
    assert len(entry.rejected) >= 2
    grammar = check(entry.spec).grammar
    assert grammar.notes == ()
    assert [text for text in entry.accepted if not grammar.acceptor.accepts(text)] == []
    assert [text for text in entry.rejected if grammar.acceptor.accepts(text)] == []
    for text in entry.accepted:
        grammar.validate(text)
    for text in entry.rejected:
        with pytest.raises(InvalidOutputError):
            grammar.validate(text)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_outputs_at_random_pass_the_final_check(entry: Entry) -> None:
    constraint = compile(entry.spec, ByteTable())
    for seed in range(3):
        text = walk(constraint, seed, budget=300)
        if text is not None:
            constraint.validate(text)
