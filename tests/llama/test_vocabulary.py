"""Bytes ↔ token ids, against llama.cpp's own vectors for fifteen vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from localrun.errors import EngineError
from localrun.llama.model import LlamaModel
from localrun.llama.vocabulary import Vocabulary
from tests.sdist import sdist_root, vocabulary_file

# By name in the engine's source archive; each has a file of texts (.inp) and of token ids (.out).
WITH_VECTORS = [
    "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt",
    "phi-3", "qwen2", "qwen35", "refact", "starcoder", "gemma-4",
]  # fmt: skip


SEPARATOR = b"\n__ggml_vocab_test__\n"


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[Callable[[str], Vocabulary]]:
    """Loads vocabularies by name, each once."""
    with ExitStack() as stack:
        loaded: dict[str, Vocabulary] = {}

        def load(name: str) -> Vocabulary:
            if name not in loaded:
                model = LlamaModel.load(vocabulary_file(name), vocab_only=True)
                stack.callback(model.close)
                loaded[name] = model.vocabulary
            return loaded[name]

        yield load


def test_every_vocabulary_with_vectors_is_tested() -> None:
    found = {
        path.name.removeprefix("ggml-vocab-").removesuffix(".gguf.inp") for path in sdist_root().glob("models/*.inp")
    }
    assert found == set(WITH_VECTORS)


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_token_ids_are_those_of_the_vectors(name: str, vocabulary: Callable[[str], Vocabulary]) -> None:
    path = vocabulary_file(name)
    texts = Path(f"{path}.inp").read_bytes().removesuffix(SEPARATOR).split(SEPARATOR)
    expected = [[int(token) for token in line.split()] for line in Path(f"{path}.out").read_text().splitlines()]
    assert len(texts) == len(expected) > 40
    for text, ids in zip(texts, expected, strict=True):
        assert vocabulary(name).encode(text) == ids, text


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "gpt-2", "starcoder"])
@pytest.mark.parametrize(
    "text", [b" " * 64 + b"X", b" " * 128 + b"X", b"=" * 80, "👩‍👩‍👧‍👦 日本語 🇫🇷".encode(), b"a\0b"]
)
def test_text_survives_the_way_there_and_back(name: str, text: bytes, vocabulary: Callable[[str], Vocabulary]) -> None:
    table = vocabulary(name)
    ids = table.encode(text)
    assert b"".join(table.piece(token) for token in ids) == text
    assert table.decode(ids) == text


def test_pieces_longer_than_any_buffer_are_whole(vocabulary: Callable[[str], Vocabulary]) -> None:
    table = vocabulary("qwen2")
    pieces = table.pieces()
    assert len(pieces) == table.n_tokens
    longest = max(range(table.n_tokens), key=lambda token: len(pieces[token]))
    assert len(pieces[longest]) > 100
    assert table.piece(longest) == pieces[longest]
    assert table.decode([longest]) == pieces[longest]


def test_written_special_tokens_are_text_unless_asked_for(vocabulary: Callable[[str], Vocabulary]) -> None:
    table = vocabulary("qwen2")
    written = b"<|im_end|>"
    assert len(table.encode(written)) > 1
    assert not any(table.is_control(token) for token in table.encode(written))
    (token,) = table.encode(written, special=True)
    assert table.is_control(token)
    assert table.is_eog(token)
    assert table.piece(token) == written
    assert table.piece(token, special=False) == b""


def test_a_vocabulary_without_bos_asks_for_none(vocabulary: Callable[[str], Vocabulary]) -> None:
    assert not vocabulary("qwen2").adds_bos
    assert vocabulary("llama-bpe").adds_bos
    assert vocabulary("llama-spm").bos == 1


@pytest.mark.parametrize("token", [-1, 2**31, 10**6])
def test_a_token_outside_the_vocabulary_never_reaches_the_library(
    token: int, vocabulary: Callable[[str], Vocabulary]
) -> None:
    with pytest.raises(EngineError, match=str(token)):
        vocabulary("gpt-2").piece(token)
    with pytest.raises(EngineError, match=str(token)):
        vocabulary("gpt-2").decode([token])
