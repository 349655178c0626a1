"""Constraints on the vocabularies of real models: byte-level BPE, SentencePiece, and one with very long tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from localrun.constraint import check, prepare
from localrun.constraint.compiled import CompiledConstraint, PreparedVocabulary
from localrun.llama.model import LlamaModel
from localrun.llama.vocabulary import Vocabulary
from localrun.params import ConstraintSpec
from tests.sdist import vocabulary_file

NAMES = ("gpt-2", "llama-spm")
TEXT = "héllo 🙂 👩‍👩‍👧‍👦 日本語 🇫🇷" + " " * 128 + "X"


@cache
def model(name: str) -> tuple[Vocabulary, PreparedVocabulary]:
    table = LlamaModel.load(vocabulary_file(name), vocab_only=True).vocabulary
    return table, prepare(table)


def bound(name: str, kind: Any, source: str | tuple[str, ...]) -> tuple[Vocabulary, CompiledConstraint]:
    table, vocabulary = model(name)
    return table, check(ConstraintSpec(kind, source)).bind_to(vocabulary)


def generate(table: Vocabulary, constraint: CompiledConstraint, seed: int, budget: int = 200) -> Iterator[int]:
    """The tokens of one output of a model that finds every token equally likely, as the engine would take them."""
    rng = np.random.default_rng(seed)
    matcher, left = constraint.matcher(), budget
    while left > 0:
        step = matcher.forced()[:left] or matcher.closing(left)
        if not step:
            logits = rng.gumbel(size=table.n_tokens).astype(np.float32)
            matcher.mask(logits)
            step = [int(np.argmax(logits))]
        for token in step:
            if token in table.eog_ids:
                return
            assert not table.is_control(token)
            matcher.accept(token)
            yield token
        left -= len(step)
        if matcher.must_end:
            return


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_is_forced_comes_out_byte_by_byte_the_same(name: str) -> None:
    literal = "".join(f"\\U{ord(char):08x}" for char in TEXT)
    table, constraint = bound(name, "gbnf", f'root ::= "{literal}"')
    tokens = list(generate(table, constraint, 0, budget=1000))
    assert b"".join(map(table.piece, tokens)).decode() == TEXT


@pytest.mark.parametrize("name", NAMES)
def test_outputs_of_a_model_that_knows_nothing_satisfy_the_schema(name: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "full_name_of_the_person": {"type": "string", "minLength": 1, "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-zäöü]+$"}, "maxItems": 3},
        },
        "required": ["full_name_of_the_person", "age"],
        "additionalProperties": False,
    }
    table, constraint = bound(name, "json_schema", json.dumps(schema))
    for seed in range(5):
        text = b"".join(map(table.piece, generate(table, constraint, seed))).decode()
        constraint.validate(text)


@pytest.mark.parametrize("name", NAMES)
def test_forced_tokens_are_the_tokenization_of_their_text(name: str) -> None:
    schema = {"type": "object", "properties": {"full_name": {"type": "string"}}, "required": ["full_name"]}
    table, constraint = bound(name, "json_schema", json.dumps(schema))
    forced = constraint.matcher().forced()
    text = b"".join(map(table.piece, forced))
    assert b'{"full_name":"'.startswith(text)
    assert len(text) > 8
    assert len(forced) <= len(table.encode(text)) + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_choice_is_made_by_its_first_tokens_and_ends(name: str) -> None:
    strings = ("yes", "no", "yesterday", "ñandú")
    table, constraint = bound(name, "choice", strings)
    texts = {b"".join(map(table.piece, generate(table, constraint, seed))).decode() for seed in range(15)}
    assert texts <= set(strings)
    assert len(texts) > 1


def test_end_tokens_are_all_known_and_control_tokens_are_masked() -> None:
    table, constraint = bound("llama-bpe", "gbnf", "root ::= [^\\x00]*")
    assert len(table.eog_ids) > 1
    logits = np.zeros(table.n_tokens, dtype=np.float32)
    constraint.matcher().mask(logits)
    allowed = set(np.flatnonzero(np.isfinite(logits)).tolist())
    assert table.eog_ids <= allowed
    assert not allowed & (table.control_ids - table.eog_ids)
    assert len(allowed) > 100_000
