"""Tokenizers that other converters stumble over: refused with a reason, or converted rightly, never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf.constants import TokenType

from quantize.errors import SourceError, UnsupportedError
from quantize.source import open_source
from tests.quantize.checkpoint import tiny
from tests.quantize.checkpoint.conftest import Folder, make_folder

LIST, TYPES, SCORES = (f"tokenizer.ggml.{key}" for key in ("tokens", "token_type", "scores"))


def values(folder: Folder, **options: str) -> dict[str, Any]:
    return {key: value.value for key, value in open_source(folder.path, **options).metadata.items()}


def test_an_unknown_split_is_refused_with_a_way_out(byte_level_folder: Folder) -> None:
    def change(tokenizer: dict[str, Any]) -> None:
        tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": r"\p{L}+|\p{N}{1,7}|."}

    byte_level_folder.edit("tokenizer.json", change)
    with pytest.raises(UnsupportedError, match=r"p\{N\}\{1,7\}") as caught:
        open_source(byte_level_folder.path)
    assert caught.value.hint is not None
    assert "--pre-tokenizer" in caught.value.hint
    assert values(byte_level_folder, pre_tokenizer="qwen2")["tokenizer.ggml.pre"] == "qwen2"


def test_a_pre_tokenizer_that_the_engine_does_not_have_is_refused(byte_level_folder: Folder) -> None:
    with pytest.raises(UnsupportedError, match="'qwen'") as caught:
        open_source(byte_level_folder.path, pre_tokenizer="qwen")
    assert caught.value.hint is not None
    assert "qwen2" in caught.value.hint


def test_a_token_more_does_not_change_the_pre_tokenizer(byte_level_folder: Folder) -> None:
    token = {"id": 430, "content": "<fine_tuned>", "special": False, "normalized": False}
    byte_level_folder.edit("tokenizer.json", lambda t: t["added_tokens"].append(token))
    converted = values(byte_level_folder)
    assert converted["tokenizer.ggml.pre"] == "qwen2"
    assert converted[LIST][430] == "<fine_tuned>"
    assert converted[TYPES][430] == TokenType.USER_DEFINED


def test_the_other_spelling_of_a_split_is_the_same_split(byte_level_folder: Folder) -> None:
    def change(tokenizer: dict[str, Any]) -> None:
        step = tokenizer["pre_tokenizer"]["pretokenizers"][0]
        step["behavior"], step["invert"] = "Removed", True

    byte_level_folder.edit("tokenizer.json", change)
    assert values(byte_level_folder)["tokenizer.ggml.pre"] == "qwen2"


@pytest.mark.parametrize("name", ["llama2", "gemma2"])
def test_tokenizer_json_alone_gives_the_same_tokens_as_with_the_sentencepiece_file(tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path / "model", name)
    with_file = values(folder)
    (folder / "tokenizer.model").unlink()
    alone = values(folder)
    assert alone[LIST] == with_file[LIST]
    assert alone["tokenizer.ggml.model"] == "llama"
    assert (
        alone["tokenizer.ggml.add_space_prefix"] == with_file["tokenizer.ggml.add_space_prefix"] == (name == "llama2")
    )


def test_the_sentencepiece_file_alone_is_enough(folder: Folder) -> None:
    with_json = values(folder)
    (folder / "tokenizer.json").unlink()
    alone = values(folder)
    for key in (LIST, TYPES, SCORES, "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"):
        assert alone[key] == with_json[key]


def test_the_vocabulary_is_padded_to_the_embeddings(folder: Folder) -> None:
    converted = values(folder)
    n_tokens = converted["llama.vocab_size"]
    assert len(converted[LIST]) == len(converted[TYPES]) == len(converted[SCORES]) == n_tokens
    assert converted[LIST][-1] == f"[PAD{n_tokens - 1}]"
    assert converted[TYPES][-1] == TokenType.UNUSED


def test_tokens_declared_again_are_not_added_ones(folder: Folder) -> None:
    (folder / "tokenizer.json").unlink()
    plain = values(folder)
    folder.edit("tokenizer_config.json", lambda config: config.pop("added_tokens_decoder"))
    first = plain[LIST][:3]
    added = {text: i for i, text in enumerate(first)} | {"<added>": 530}
    (folder / "added_tokens.json").write_text(json.dumps(added))
    converted = values(folder)
    assert converted[LIST][:3] == first
    assert converted[TYPES][:3] == [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    assert converted[LIST][530] == "<added>"
    assert converted[TYPES][530] == TokenType.USER_DEFINED


def test_a_missing_tokenizer_config_leaves_the_ids_of_config_json(folder: Folder) -> None:
    (folder / "tokenizer_config.json").unlink()
    converted = values(folder)
    assert converted["tokenizer.ggml.bos_token_id"] == 1
    assert converted["tokenizer.ggml.eos_token_id"] == 2
    assert converted["tokenizer.ggml.add_bos_token"] is True


def test_a_tokenizer_larger_than_the_embeddings_is_refused(byte_level_folder: Folder) -> None:
    byte_level_folder.edit("tokenizer.json", lambda t: t["model"]["vocab"].update(zebra=5000))
    with pytest.raises(SourceError, match=r"'zebra'.*5000.*embeddings"):
        open_source(byte_level_folder.path)


def test_added_tokens_without_an_embedding_are_left_out_with_a_warning(byte_level_folder: Folder) -> None:
    token = {"id": 5000, "content": "<image>", "special": True}
    byte_level_folder.edit("tokenizer.json", lambda t: t["added_tokens"].append(token))
    (warning,) = open_source(byte_level_folder.path).warnings
    assert "'<image>'" in warning


def test_two_tokens_with_one_text_are_refused(byte_level_folder: Folder) -> None:
    byte_level_folder.edit("tokenizer.json", lambda t: t["added_tokens"].append({"id": 440, "content": "th"}))
    byte_level_folder.edit("tokenizer.json", lambda t: t["model"]["vocab"].setdefault("th", 300))
    with pytest.raises(SourceError, match="same text 'th'"):
        open_source(byte_level_folder.path)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t["model"].update(type="Unigram"), "Unigram"),
        (lambda t: t["model"].update(type="WordLevel"), "WordLevel"),
        (lambda t: t["model"].update(vocab=[]), "no vocabulary"),
        (lambda t: t["model"].update(merges=None), "no merges"),
        (lambda t: t["model"].update(merges=[["a"]]), "damaged merge"),
        (lambda t: t["model"]["vocab"].update(x="1"), "id '1'"),
        (lambda t: t["added_tokens"].append(7), "damaged added token"),
        (lambda t: t["added_tokens"].append({"id": -1, "content": "x"}), "damaged added token"),
        (lambda t: t["pre_tokenizer"]["pretokenizers"][-1].update(add_prefix_space=True), "add_prefix_space"),
    ],
)
def test_damaged_tokenizers_are_refused(byte_level_folder: Folder, change: Any, word: str) -> None:
    byte_level_folder.edit("tokenizer.json", change)
    with pytest.raises(SourceError) as caught:
        open_source(byte_level_folder.path)
    assert word in caught.value.message


@pytest.mark.parametrize(
    "content", [b"", b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"tiktoken IQ== 0\n"]
)
def test_a_damaged_sentencepiece_file_is_refused(folder: Folder, content: bytes) -> None:
    (folder / "tokenizer.model").write_bytes(content)
    with pytest.raises(SourceError, match=r"tokenizer\.model is no SentencePiece model"):
        open_source(folder.path)


def test_a_folder_without_a_tokenizer_says_so(folder: Folder) -> None:
    for name in ("tokenizer.json", "tokenizer.model"):
        (folder / name).unlink()
    with pytest.raises(SourceError, match="no tokenizer"):
        open_source(folder.path)


def test_merges_of_the_old_form_give_the_same_file(byte_level_folder: Folder) -> None:
    new = values(byte_level_folder)
    byte_level_folder.edit(
        "tokenizer.json", lambda t: t["model"].update(merges=[" ".join(m) for m in t["model"]["merges"]])
    )
    assert values(byte_level_folder) == new


def test_vocab_json_and_merges_txt_are_enough_for_a_known_class(byte_level_folder: Folder) -> None:
    whole = values(byte_level_folder)
    tokenizer = json.loads((byte_level_folder / "tokenizer.json").read_text())
    (byte_level_folder / "vocab.json").write_text(json.dumps(tokenizer["model"]["vocab"]))
    merges = "\n".join(" ".join(m) for m in tokenizer["model"]["merges"])
    (byte_level_folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    (byte_level_folder / "added_tokens.json").write_text(
        json.dumps({t["content"]: t["id"] for t in tokenizer["added_tokens"]})
    )
    (byte_level_folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedError, match="PreTrainedTokenizerFast"):
        open_source(byte_level_folder.path)
    byte_level_folder.edit("tokenizer_config.json", lambda config: config.update(tokenizer_class="Qwen2TokenizerFast"))
    slow = values(byte_level_folder)
    for key in (LIST, "tokenizer.ggml.merges", "tokenizer.ggml.pre", "tokenizer.ggml.eos_token_id"):
        assert slow[key] == whole[key]


def test_end_tokens_that_only_a_list_names_end_generation_too(folder: Folder) -> None:
    converted = values(folder)  # its generation_config.json lists 2 and 5
    assert converted["tokenizer.ggml.eos_token_id"] == 2
    assert converted["tokenizer.ggml.eot_token_id"] == 5


def test_end_tokens_that_the_engine_knows_by_their_text_need_no_key(byte_level_folder: Folder) -> None:
    ends = {
        t["content"]: t["id"] for t in json.loads((byte_level_folder / "tokenizer.json").read_text())["added_tokens"]
    }
    listed = {"eos_token_id": [ends["<|im_end|>"], ends["<|begin|>"]]}
    (byte_level_folder / "generation_config.json").write_text(json.dumps(listed))
    byte_level_folder.edit("tokenizer_config.json", lambda config: config.update(eos_token="<tool>"))
    converted = values(byte_level_folder)
    assert converted["tokenizer.ggml.eos_token_id"] == ends["<tool>"]
    assert converted["tokenizer.ggml.eot_token_id"] == ends["<|begin|>"]
    assert "tokenizer.ggml.eom_token_id" not in converted


def test_bos_is_added_exactly_where_the_tokenizer_adds_it(folder: Folder, tmp_path: Path) -> None:
    assert values(folder)["tokenizer.ggml.add_bos_token"] is True
    plain = make_folder(tmp_path / "qwen", "qwen3")
    assert values(plain)["tokenizer.ggml.add_bos_token"] is False


def test_bert_separates_with_its_own_tokens(tmp_path: Path) -> None:
    converted = values(make_folder(tmp_path / "bert", "bert"))
    assert converted["tokenizer.ggml.model"] == "bert"
    assert converted["tokenizer.ggml.bos_token_id"] == converted[LIST].index("[CLS]")
    assert converted["tokenizer.ggml.eos_token_id"] == converted[LIST].index("[SEP]")
    assert converted["tokenizer.ggml.add_eos_token"] is True


def test_vocab_txt_alone_gives_the_same_word_pieces(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "bert", "bert")
    whole = values(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    by_id = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    (folder / "vocab.txt").write_text("\n".join(by_id) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    alone = values(folder)
    for key in (LIST, TYPES, "tokenizer.ggml.normalizer.lowercase", "tokenizer.ggml.bos_token_id"):
        assert alone[key] == whole[key]


def test_recorded_vocabularies_have_no_text_twice() -> None:
    for recorded in tiny.load("tokenizers").values():
        tokens = json.loads(recorded["files"]["tokenizer.json"])["model"]["vocab"]
        assert len(set(tokens.values())) == len(tokens)
