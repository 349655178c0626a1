"""A converted vocabulary gives the token ids that Hugging Face's tokenizers give, on a thousand strings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from quantize.checkpoint.config import Config
from quantize.metadata import string
from quantize.vocabulary import Vocabulary, read_vocabulary
from quantize.writer import encode_header
from tests.quantize.checkpoint import engine, tiny

RECORDED: dict[str, Any] = tiny.load("tokenizers")
TEXTS: list[str] = tiny.load("texts")

# What the engine itself splits or normalizes in another way, whatever a file says: vowel signs in words for the two
# patterns that tell capitals from small letters; vowel signs and Hangul for WordPiece that strips accents.
ENGINE_DIFFERS = {
    "gpt-4o": re.compile("[\u0900-\u097f]"),
    "tekken": re.compile("[\u0900-\u097f]"),
    "word-pieces": re.compile("[\u0900-\u097f\uac00-\ud7af]"),
}


def vocabulary_of(name: str, folder: Path) -> Vocabulary:
    files = RECORDED[name]["files"]
    tiny.write_files(folder, files)
    tokenizer = json.loads(files["tokenizer.json"])
    ids = [*tokenizer["model"]["vocab"].values(), *[token["id"] for token in tokenizer["added_tokens"]]]
    return read_vocabulary(folder, Config({}, folder / "config.json"), max(ids) + 1)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_token_ids_equal_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    recorded = RECORDED[name]
    vocabulary = vocabulary_of(name, tmp_path)
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(encode_header({"general.architecture": string("llama"), **vocabulary.metadata}, [], 32))
    other = ENGINE_DIFFERS.get(name)
    compared = [i for i, text in enumerate(TEXTS) if other is None or not other.search(text)]
    with engine.opened(path, vocabulary_only=True) as model:
        ours = {i: engine.tokenize(model, TEXTS[i], add_special=False) for i in compared}
        with_special = engine.tokenize(model, TEXTS[0], add_special=True)
    assert len(compared) > 900
    assert ours == {i: recorded["ids"][i] for i in compared}
    assert with_special == recorded["with_special"]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_pre_tokenizer_is_derived_from_the_steps_not_from_the_tokens(name: str, tmp_path: Path) -> None:
    assert vocabulary_of(name, tmp_path).metadata["tokenizer.ggml.pre"].value == RECORDED[name]["pre"]
