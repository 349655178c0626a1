"""Texts of a chat template in constraints: its special tokens are tokens, what ends a generation ends the text."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from localrun.constraint import check, prepare
from localrun.constraint.compiled import PreparedVocabulary
from localrun.constraint.matcher import TokenMatcher
from localrun.llama.model import LlamaModel
from localrun.llama.vocabulary import Vocabulary
from localrun.params import ConstraintSpec
from tests.sdist import vocabulary_file


@pytest.fixture(scope="module")
def qwen() -> Iterator[tuple[Vocabulary, PreparedVocabulary]]:
    loaded = LlamaModel.load(vocabulary_file("qwen2"), vocab_only=True)
    yield loaded.vocabulary, prepare(loaded.vocabulary)
    loaded.close()


def allowed(matcher: TokenMatcher, vocabulary: Vocabulary) -> set[int]:
    logits = np.zeros(vocabulary.n_tokens, dtype=np.float32)
    matcher.mask(logits)
    return set(np.flatnonzero(np.isfinite(logits)).tolist())


def accepts(matcher: TokenMatcher, vocabulary: Vocabulary, text: str) -> bool:
    """Whether these are the tokens of a whole output; special tokens are meant."""
    for token in vocabulary.encode(text.encode(), special=True):
        if token not in allowed(matcher, vocabulary):
            return False
        matcher.accept(token)
    return matcher.may_end


def choice(qwen: tuple[Vocabulary, PreparedVocabulary], *texts: str) -> TokenMatcher:
    return check(ConstraintSpec("choice", texts, special=True)).bind_to(qwen[1]).matcher()


def test_a_name_is_told_from_a_longer_one_by_the_special_token_behind_it(
    qwen: tuple[Vocabulary, PreparedVocabulary],
) -> None:
    texts = ("weather<|im_start|>", "weather_soon<|im_start|>", "x y")
    for text in texts:
        assert accepts(choice(qwen, *texts), qwen[0], text)
    for text in ("weather", "weather_soon", "weather<|im_end|>", "weather<|im_start|>x", "x"):
        assert not accepts(choice(qwen, *texts), qwen[0], text)
    plain = check(ConstraintSpec("choice", texts)).bind_to(qwen[1]).matcher()
    assert not accepts(plain, qwen[0], texts[0]), "without being asked to, a choice is plain text"


def test_a_text_ends_before_a_token_that_ends_the_generation(qwen: tuple[Vocabulary, PreparedVocabulary]) -> None:
    vocabulary = qwen[0]
    [end] = vocabulary.encode(b"<|im_end|>", special=True)
    assert end in vocabulary.eog_ids
    matcher = choice(qwen, ", more", "<|im_end|>")
    assert end in allowed(matcher, vocabulary)
    assert accepts(matcher, vocabulary, ", more")


@pytest.mark.parametrize("value", [7, 70417, True, {"a": 1}])
def test_a_number_ends_where_what_follows_it_begins(qwen: tuple[Vocabulary, PreparedVocabulary], value: object) -> None:
    schema = json.dumps({"type": ["integer", "boolean", "object"]})
    checked = check(ConstraintSpec("json_schema", schema, followers=("\n</p>", "<|im_start|>")))
    written = json.dumps(value, separators=(",", ":"))
    for follower in ("\n</p>", "<|im_start|>"):
        assert accepts(checked.bind_to(qwen[1]).matcher(), qwen[0], written + follower)
        checked.grammar.validate(written + follower)
    for follower in ("", "</p>", "<|im_start|>\n</p>"):
        assert not accepts(checked.bind_to(qwen[1]).matcher(), qwen[0], written + follower)
