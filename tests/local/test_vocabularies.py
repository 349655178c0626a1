"""The tables of a vocabulary: from the model the first time, from the disk and earlier after that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localrun.constraint import check
from localrun.constraint.compiled import PreparedVocabulary
from localrun.errors import ModelLoadError
from localrun.gguf import GGUFHeader, read_header
from localrun.llama.model import LlamaModel
from localrun.llama.vocabulary import Vocabulary
from localrun.local.constraining import Vocabularies
from localrun.params import ConstraintSpec
from localrun.paths import default_paths

pytestmark = pytest.mark.model


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALRUN_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def loaded(smollm2: Path) -> Iterator[tuple[GGUFHeader, Vocabulary]]:
    model = LlamaModel.load(smollm2, vocab_only=True)
    yield read_header(smollm2), model.vocabulary
    model.close()


class Unread:
    """A vocabulary whose tokens nobody may ask for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def pieces(self) -> list[bytes]:
        raise AssertionError("the tokens were on disk")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vocabulary, name)


def first_run(header: GGUFHeader, vocabulary: Vocabulary) -> PreparedVocabulary:
    vocabularies = Vocabularies(header, lambda: vocabulary)
    prepared = vocabularies.prepared().result()
    vocabularies.close()
    return prepared


def test_what_comes_from_the_disk_is_what_the_model_says(loaded: tuple[GGUFHeader, Vocabulary]) -> None:
    header, vocabulary = loaded
    fresh = first_run(header, vocabulary).tables
    again = Vocabularies(header, lambda: Unread(vocabulary)).prepared().result().tables
    assert list(again.pieces) == vocabulary.pieces()
    assert frozenset(again.eog) == vocabulary.eog_ids
    assert again.byte_tokens == fresh.byte_tokens
    for one, other in ((fresh.text, again.text), (fresh.ends_string, again.ends_string)):
        assert np.array_equal(one, other)


def test_tables_from_the_disk_mask_and_force_alike(loaded: tuple[GGUFHeader, Vocabulary]) -> None:
    header, vocabulary = loaded
    fresh = first_run(header, vocabulary)
    again = Vocabularies(header, lambda: Unread(vocabulary)).prepared().result()
    schema = check(ConstraintSpec("json_schema", '{"type":"object","properties":{"naïve":{}},"required":["naïve"]}'))
    one, other = schema.bind_to(fresh).matcher(), schema.bind_to(again).matcher()
    for token in vocabulary.encode('{"naïve":["a'.encode()):
        assert np.array_equal(one.allowed(), other.allowed())
        assert one.forced() == other.forced()
        one.accept(token)
        other.accept(token)


def test_the_tables_are_made_before_the_model_is_there(
    loaded: tuple[GGUFHeader, Vocabulary], monkeypatch: pytest.MonkeyPatch
) -> None:
    header, vocabulary = loaded
    first_run(header, vocabulary)
    made, there = threading.Event(), threading.Event()

    def tables(*arguments: Any) -> Any:
        from localrun.constraint.tables import make_tables
        from localrun.constraint.vocabulary import build_tokenizer

        result = make_tables(arguments[0], build_tokenizer(*arguments))
        made.set()
        return result

    def table() -> Vocabulary:
        assert there.wait(60)
        return vocabulary

    monkeypatch.setattr("localrun.constraint.tables_of", tables)
    prepared = Vocabularies(header, table).prepared()
    assert made.wait(60)
    assert not prepared.done()
    there.set()
    assert prepared.result().table is vocabulary


def test_a_model_that_cannot_be_loaded_says_so_instead(loaded: tuple[GGUFHeader, Vocabulary]) -> None:
    header, vocabulary = loaded

    def fails() -> Vocabulary:
        raise ModelLoadError("no such weights")

    for _ in range(2):  # without tokens on disk, and with them
        with pytest.raises(ModelLoadError, match="no such weights"):
            Vocabularies(header, fails).prepared().result()
        first_run(header, vocabulary)


def test_the_tokens_of_one_vocabulary_are_kept_once(loaded: tuple[GGUFHeader, Vocabulary]) -> None:
    for _ in range(2):
        first_run(*loaded)
    assert len(list(default_paths().vocabularies.iterdir())) == 1
