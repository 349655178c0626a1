"""Byte-level BPE vocabularies (GPT-2's kind): tokens and merges of tokenizer.json, or of vocab.json and merges.txt.

Invariant: tokens and merges go out exactly as they came in; only the pre-tokenizer's name is derived.
"""

from __future__ import annotations

from typing import Any

from gguf.constants import TokenType

from quantize.checkpoint.config import read_json
from quantize.errors import SourceError, UnsupportedError
from quantize.metadata import Metadata, string, strings
from quantize.vocabulary.files import TokenizerFiles, checked_vocabulary
from quantize.vocabulary.pre_tokenizer import checked_name, pre_tokenizer_name
from quantize.vocabulary.tokens import TokenList

_BY_CLASS = {"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}
"""The pre-tokenizer of tokenizers that are described by their class alone (no tokenizer.json)."""


def byte_level_vocabulary(files: TokenizerFiles, n_tokens: int, pre: str | None) -> tuple[Metadata, TokenList]:
    """Tokens, merges and the pre-tokenizer's name (`pre` overrides it).

    Raises SourceError for damaged files, UnsupportedError for a pre-tokenizer that is not known.
    """
    vocabulary, merges = _read(files)
    tokens = TokenList(n_tokens)
    for text, token_id in vocabulary.items():
        if token_id not in files.added:
            tokens.put(token_id, text, TokenType.NORMAL)
    for token in files.added.values():
        tokens.put_added(token)
    metadata = {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string(_pre_name(files) if pre is None else checked_name(pre)),
        **tokens.metadata(with_scores=False),
        "tokenizer.ggml.merges": strings(merges),
    }
    return metadata, tokens


def _read(files: TokenizerFiles) -> tuple[dict[str, int], list[str]]:
    if files.tokenizer:
        merges = files.model.get("merges")
        if not isinstance(merges, list):
            raise SourceError("tokenizer.json has no merges")
        return files.vocabulary(), [_merge(m) for m in merges]
    path = files.folder / "merges.txt"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    vocabulary = checked_vocabulary(read_json(files.folder / "vocab.json"), "vocab.json")
    return vocabulary, [line for line in lines if line and not line.startswith("#version")]


def _merge(merge: Any) -> str:
    """Both forms of a merge, "left right" and [left, right], as the first; a space within becomes its byte letter."""
    if isinstance(merge, str):
        return merge
    if isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge):
        return " ".join(part.replace(" ", "\u0120") for part in merge)
    raise SourceError(f"tokenizer.json has a damaged merge: {merge!r}")


def _pre_name(files: TokenizerFiles) -> str:
    if files.tokenizer:
        return pre_tokenizer_name(
            files.tokenizer, keeps_spaces=files.config.get("clean_up_tokenization_spaces") is not True
        )
    kind = files.config.get("tokenizer_class")
    name = _BY_CLASS.get(str(kind).removesuffix("Fast"))
    if name is None:
        raise UnsupportedError(
            f"there is no tokenizer.json, and tokenizer class {kind!r} does not say how text is split",
            hint="save the tokenizer with transformers as a fast tokenizer, or name it: --pre-tokenizer NAME",
        )
    return name
