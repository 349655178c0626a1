"""The matcher: masks are exact, ends are allowed where the output may end, and every step can be taken back."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localrun.constraint import check, compile, prepare
from localrun.constraint.compiled import CompiledConstraint
from localrun.constraint.json_state import JsonState
from localrun.constraint.matcher import MAX_NUMBER_BYTES, MAX_STRING_BYTES, TokenMatcher
from localrun.constraint.vocabulary import ByteTable
from localrun.errors import ConstraintError
from localrun.params import ConstraintSpec
from tests.constraint.walk import allowed_tokens

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["name", "age"],
}


class WordTable(ByteTable):
    """All bytes, some words, a second end token, and tokens that are no text."""

    words = (b'{"', b'":', b"na", b"name", b'"name":"', b"ab", b"abc", b"true", b"  ", b'","', b'"}', "é".encode())
    end = 300

    def pieces(self) -> Sequence[bytes]:
        found = [bytes([i]) for i in range(256)] + list(self.words)
        found += [b""] * (300 - len(found))  # unused
        return [*found, b"<end>", b"<|eot|>", b"name", b"<think>"]

    @property
    def n_tokens(self) -> int:
        return 304

    @property
    def eog_ids(self) -> frozenset[int]:
        return frozenset({300, 301})

    def is_eog(self, token: int) -> bool:
        return token in self.eog_ids

    def is_control(self, token: int) -> bool:
        return token >= 300

    def piece(self, token: int) -> bytes:
        return self.pieces()[token]

    def encode(self, text: bytes, *, special: bool = False) -> list[int]:
        pieces = self.pieces()
        if special and text in (b"<think>", b"<|eot|>"):
            return [pieces.index(text)]
        found = []
        while text:
            fitting = [i for i in range(256 + len(self.words)) if pieces[i] and text.startswith(pieces[i])]
            if not fitting:
                break
            found.append(max(fitting, key=lambda i: len(pieces[i])))
            text = text[len(pieces[found[-1]]) :]
        return found


def schema(value: Any, table: ByteTable | None = None, **options: Any) -> CompiledConstraint:
    return compile(ConstraintSpec("json_schema", json.dumps(value), "s", **options), table or WordTable())


def tokens_allowed(matcher: TokenMatcher) -> set[int]:
    logits = np.zeros(304, dtype=np.float32)
    matcher.mask(logits)
    return set(np.flatnonzero(np.isfinite(logits)).tolist())


@pytest.mark.parametrize("seed", range(2))
def test_the_mask_allows_exactly_the_tokens_whose_text_the_grammar_takes(seed: int) -> None:
    rng = random.Random(seed)
    constraint = schema(PERSON)
    acceptor = constraint.checked.grammar.acceptor
    table = WordTable()
    matcher, text = constraint.matcher(), b""
    for _ in range(40):
        allowed = tokens_allowed(matcher)
        if forced := matcher.forced():  # then only the way the model would write it is left
            assert allowed == {forced[0]}
            matcher.accept(forced[0])
            text += table.piece(forced[0])
            continue
        for token in range(256 + len(table.words)):
            taken = acceptor.prefix_fits(text + table.piece(token))
            assert (token in allowed) == taken, (text, table.piece(token))
        assert {300, 301} & allowed == ({300, 301} if matcher.may_end else set())
        assert not allowed & {302, 303, 290}
        choices = sorted(allowed - {300, 301})
        if not choices:
            break
        token = rng.choice(choices)
        matcher.accept(token)
        text += table.piece(token)


def test_logits_of_allowed_tokens_are_untouched() -> None:
    logits = np.linspace(-5, 5, 304, dtype=np.float32)
    before = logits.copy()
    schema(PERSON).matcher().mask(logits)
    finite = np.isfinite(logits)
    assert np.array_equal(logits[finite], before[finite])
    assert finite.sum() == 1


def test_every_end_token_is_allowed_where_the_output_may_end_and_nowhere_else() -> None:
    constraint = compile(ConstraintSpec("gbnf", 'root ::= "ab" "c"?'), WordTable())
    matcher = constraint.matcher()
    assert tokens_allowed(matcher) & {300, 301} == set()
    with pytest.raises(ConstraintError, match="may not end"):
        matcher.accept(300)
    for token in WordTable().encode(b"ab"):
        matcher.accept(token)
    assert matcher.may_end
    assert not matcher.must_end
    assert tokens_allowed(matcher) == {300, 301, ord("c")}
    matcher.accept(301)
    matcher.accept(ord("c"))
    assert matcher.must_end
    assert tokens_allowed(matcher) == {300, 301}
    assert matcher.forced() == []


def test_tokens_that_are_no_text_are_allowed_only_where_the_grammar_names_them() -> None:
    grammar = 'root ::= <think> (!<think>)* <think> "name"'
    matcher = compile(ConstraintSpec("gbnf", grammar), WordTable()).matcher()
    assert tokens_allowed(matcher) == {303}
    matcher.accept(303)
    inside = tokens_allowed(matcher)
    assert {303, ord("x"), 258} <= inside
    assert not inside & {290, 300, 301, 302}
    matcher.accept(ord("x"))
    matcher.accept(303)
    assert 302 not in tokens_allowed(matcher)
    matcher.accept(259)
    assert matcher.must_end


def test_a_token_that_the_model_lacks_is_an_error_with_its_place() -> None:
    for grammar, problem in (
        ("root ::= <nosuch>", "is not one token"),
        ("root ::= <[5000]>", "outside this model's vocabulary"),
    ):
        checked = check(ConstraintSpec("gbnf", grammar, "g.gbnf"))
        with pytest.raises(ConstraintError, match=r"g\.gbnf:1:10: .*" + problem):
            checked.bind(WordTable())


def test_a_token_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ConstraintError, match="does not fit"):
        schema(PERSON).matcher().accept(ord("x"))


def test_rolled_back_is_as_if_never_taken() -> None:
    matcher = schema(PERSON).matcher()
    for token in WordTable().encode(b'{"name":"a'):
        matcher.accept(token)
    before = tokens_allowed(matcher)
    ahead = [ord("b"), ord('"'), ord(",")]
    for token in ahead:
        matcher.accept(token)
    matcher.rollback(len(ahead))
    assert tokens_allowed(matcher) == before
    matcher.rollback(0)
    for token in ahead:
        matcher.accept(token)


def test_a_fork_goes_its_own_way() -> None:
    matcher = schema(PERSON).matcher()
    matcher.accept(ord("{"))
    fork = matcher.fork()
    fork.accept(ord('"'))
    assert tokens_allowed(matcher) != tokens_allowed(fork)
    matcher.accept(ord('"'))
    assert tokens_allowed(matcher) == tokens_allowed(fork)
    assert tokens_allowed(schema(PERSON).matcher()) != tokens_allowed(fork)


def test_forced_tokens_are_those_the_model_would_write() -> None:
    matcher = schema(PERSON).matcher()
    forced = matcher.forced()
    table = WordTable()
    assert b"".join(table.piece(token) for token in forced).startswith(b'{"')
    assert forced == table.encode(b"".join(table.piece(token) for token in forced))
    for token in forced:
        matcher.accept(token)
    assert tokens_allowed(matcher)


def test_all_constraints_of_one_vocabulary_share_its_tables() -> None:
    vocabulary = prepare(WordTable())
    first = check(ConstraintSpec("regex", "[ab]+")).bind_to(vocabulary)
    second = check(ConstraintSpec("choice", ("a", "abc"))).bind_to(vocabulary)
    assert first.tables is second.tables
    assert tokens_allowed(second.matcher()) == {ord("a"), 261, 262}


# Closing


def closed(constraint: CompiledConstraint, budget: int, letter: int = ord("a")) -> tuple[str | None, int]:
    """Fill strings with a letter until the matcher closes the value: (text, tokens spent)."""
    table = WordTable()
    matcher, taken = constraint.matcher(), []
    while len(taken) < budget:
        completion = matcher.closing(budget - len(taken))
        step = completion or [letter if letter in tokens_allowed(matcher) else min(tokens_allowed(matcher))]
        for token in step:
            matcher.accept(token)
        taken += step
        if completion:
            break
    return (b"".join(table.piece(token) for token in taken).decode() if matcher.may_end else None), len(taken)


@pytest.mark.parametrize("budget", [12, 20, 50, 200, 1000])
def test_the_last_tokens_of_the_budget_close_the_value(budget: int) -> None:
    constraint = schema(PERSON)
    text, spent = closed(constraint, budget)
    assert text is not None
    assert budget * 0.5 - 10 <= spent <= budget
    constraint.validate(text)


def test_a_budget_that_cannot_suffice_is_left_alone() -> None:
    assert schema(PERSON).matcher().closing(3) is None
    assert closed(schema({"type": "string", "minLength": 500}), 100)[0] is None


def test_closing_can_be_switched_off_and_is_never_done_to_other_constraints() -> None:
    assert closed(schema(PERSON, close=False), 50)[0] is None
    matcher = compile(ConstraintSpec("gbnf", "root ::= [a-z]+"), WordTable()).matcher()
    assert matcher.closing(1) is None


def test_closing_leaves_the_matcher_as_it_was() -> None:
    matcher = schema(PERSON).matcher()
    before = tokens_allowed(matcher)
    completion = matcher.closing(16)
    assert tokens_allowed(matcher) == before
    assert completion is None or len(completion) <= 16


@pytest.mark.parametrize(
    "value",
    [
        {"type": "array", "items": {"type": "string", "format": "date-time"}, "minItems": 3},
        {"type": "object", "required": ["a"], "properties": {"a": {"enum": ["x", {"deep": [1, {"er": None}]}]}}},
        {"type": "array", "items": {"type": "integer", "minimum": 100, "maximum": 999}, "minItems": 2},
        {"type": "string", "pattern": "b.*2$"},
        {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
        {},
    ],
)  # fmt: skip
def test_all_kinds_of_values_are_closed_validly(value: Any) -> None:
    constraint = schema(value)
    for budget in (140, 250):
        text, spent = closed(constraint, budget)
        assert text is not None
        assert spent <= budget
        constraint.validate(text)


# Runaways


def test_a_string_that_goes_on_forever_is_ended() -> None:
    constraint = schema({"type": "string"})
    matcher = constraint.matcher()
    matcher.accept(ord('"'))
    for _ in range(MAX_STRING_BYTES // 2):
        matcher.accept(261)  # two bytes
    assert all(WordTable().piece(token).startswith(b'"') for token in tokens_allowed(matcher))
    matcher.rollback(1)
    assert ord("a") in tokens_allowed(matcher)


def test_a_number_that_goes_on_forever_is_ended() -> None:
    matcher = schema({"type": "array", "items": {"type": "number"}}).matcher()
    matcher.accept(ord("["))
    digits = f"{'1' * (MAX_NUMBER_BYTES - 6)}.{'1' * 5}".encode()
    for digit in digits:
        matcher.accept(digit)
    assert not tokens_allowed(matcher) & set(b"0123456789")
    alone = schema({"type": "number"}).matcher()
    for digit in digits:
        alone.accept(digit)
    assert tokens_allowed(alone) == {300, 301}


def test_the_place_in_a_text_follows_quotes_and_escapes() -> None:
    state = JsonState()
    for data, inside in (
        (b'{"a', True),
        (b"\\", True),
        (b'"', True),
        (b'\\\\"', False),
        (b':"', True),
        (b'\\"', True),
        (b'"', False),
    ):
        state = state.after(data)
        assert state.in_string == inside, data
    assert JsonState().after(b"[12.5e").run == 4 + 1
    assert JsonState().after(b'["abc').run == 3


def test_a_tokenizer_that_adds_a_space_in_front_forces_the_right_text() -> None:
    class Spaced(WordTable):
        def encode(self, text: bytes, *, special: bool = False) -> list[int]:
            return super().encode(b" " + text, special=special)

    matcher = schema(PERSON, Spaced()).matcher()
    forced = matcher.forced()
    assert b"".join(WordTable().piece(token) for token in forced).startswith(b'{"')
    assert tokens_allowed(matcher) == {forced[0]}


def test_walk_tokens_are_what_the_mask_allows() -> None:
    assert allowed_tokens(compile(ConstraintSpec("regex", "[ab]"), ByteTable()).matcher()) == [97, 98]
