"""SentencePiece BPE vocabularies (Llama 2's and Gemma's kind), from `tokenizer.model` or from tokenizer.json alone.

The engine merges the pair whose result has the best score. tokenizer.json has no scores but an order of merges, so a
token's score is minus the rank of the first merge that makes it: the same order. Invariant: both sources give the same
tokens for the same text.
"""

from __future__ import annotations

import re
from typing import Any

from gguf.constants import TokenType

from quantize.errors import SourceError, UnsupportedError
from quantize.metadata import Metadata, boolean, string
from quantize.vocabulary.files import TokenizerFiles
from quantize.vocabulary.sentencepiece import ModelType, read_sentencepiece
from quantize.vocabulary.tokens import TokenList

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
SPACE = "\u2581"


def piece_vocabulary(files: TokenizerFiles, n_tokens: int) -> tuple[Metadata, TokenList]:
    """Tokens, scores, types, and whether a space is put before the text.

    Raises SourceError for damaged files, UnsupportedError for a Unigram model, which the engine would read wrongly.
    """
    tokens = TokenList(n_tokens)
    path = files.sentencepiece
    if path is not None:
        model = read_sentencepiece(path)
        if model.model_type != ModelType.BPE:
            raise UnsupportedError(f"{path.name} is a SentencePiece model of type {model.model_type.name}, not BPE")
        for token_id, piece in enumerate(model.pieces[:n_tokens]):
            tokens.put(token_id, piece.text, piece.type, piece.score)
        prefix = model.add_dummy_prefix
    else:
        _put_merged(files, tokens)
        prefix = True
    for token in sorted(files.added.values(), key=lambda t: t.id):
        tokens.put_added(token)
    if files.tokenizer:
        prefix = _adds_prefix(files.tokenizer)
    elif isinstance(configured := files.config.get("add_prefix_space"), bool):
        prefix = configured
    metadata = {
        "tokenizer.ggml.model": string("llama"),
        "tokenizer.ggml.pre": string("default"),
        **tokens.metadata(with_scores=True),
        "tokenizer.ggml.add_space_prefix": boolean(prefix),
    }
    return metadata, tokens


def _put_merged(files: TokenizerFiles, tokens: TokenList) -> None:
    vocabulary, merges = files.vocabulary(), files.model.get("merges")
    if not isinstance(merges, list):
        raise SourceError("tokenizer.json has no merges")
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(_merged(merge), rank)
    unknown = files.model.get("unk_token")
    for text, token_id in vocabulary.items():
        if token_id in files.added and files.added[token_id].id >= tokens.n_tokens:
            continue
        if _BYTE.fullmatch(text):
            tokens.put(token_id, text, TokenType.BYTE)
        elif text == unknown:
            tokens.put(token_id, text, TokenType.UNKNOWN)
        else:
            # Single characters are never the result of a merge: any score below all ranks will do.
            tokens.put(token_id, text, TokenType.NORMAL, float(-ranks.get(text, len(merges))))


def _merged(merge: Any) -> str:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not (isinstance(parts, list) and len(parts) == 2 and all(isinstance(p, str) for p in parts)):
        raise SourceError(f"tokenizer.json has a damaged merge: {merge!r}")
    return "".join(parts)


def _adds_prefix(tokenizer: Any) -> bool:
    """Whether encoding puts a space before the text: a Prepend normalizer or a Metaspace pre-tokenizer."""
    for node in _flatten(tokenizer.get("normalizer"), "normalizers"):
        if node.get("type") == "Prepend" and node.get("prepend") == SPACE:
            return True
    for node in _flatten(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        if node.get("type") == "Metaspace":
            scheme = node.get("prepend_scheme")
            return bool(node.get("add_prefix_space", True)) if scheme is None else scheme != "never"
    return False


def _flatten(node: Any, key: str) -> list[dict[str, Any]]:
    if not isinstance(node, dict):
        return []
    inner = node.get(key)
    return [n for n in inner if isinstance(n, dict)] if isinstance(inner, list) else [node]
