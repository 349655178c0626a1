"""The vocabulary of a checkpoint as GGUF keys (`tokenizer.*`): tokens, merges, special tokens, chat templates.

Invariant: there are exactly as many tokens as the model has embeddings, and nothing is guessed: a tokenizer whose
rules the engine does not have is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import TokenType

from quantize.checkpoint.config import Config
from quantize.errors import SourceError, UnsupportedError
from quantize.metadata import Metadata
from quantize.vocabulary.byte_level import byte_level_vocabulary
from quantize.vocabulary.chat_template import chat_templates
from quantize.vocabulary.files import TokenizerFiles, read_tokenizer_files
from quantize.vocabulary.pieces import piece_vocabulary
from quantize.vocabulary.special import special_tokens
from quantize.vocabulary.tokens import TokenList
from quantize.vocabulary.word_piece import word_piece_vocabulary

__all__ = ["Vocabulary", "read_vocabulary"]

_ADDS_BOS = ("Llama", "CodeLlama", "Gemma", "Bert")
"""Tokenizer classes that put a BOS (or CLS) first unless their files say otherwise."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    metadata: Metadata
    warnings: tuple[str, ...]


def read_vocabulary(folder: Path, config: Config, n_tokens: int, *, pre: str | None = None) -> Vocabulary:
    """Read a checkpoint's tokenizer. `pre` names llama.cpp's pre-tokenizer where it cannot be derived.

    Raises SourceError for missing or damaged files, UnsupportedError for a tokenizer the engine cannot run.
    """
    files = read_tokenizer_files(folder, config)
    kind = _kind(files)
    if kind == "byte level":
        metadata, tokens = byte_level_vocabulary(files, n_tokens, pre)
    elif kind == "pieces":
        metadata, tokens = piece_vocabulary(files, n_tokens)
    else:
        metadata, tokens = word_piece_vocabulary(files, n_tokens)
    metadata |= special_tokens(files, _special_ids(files, tokens), n_tokens, adds_bos=_adds_bos(files, kind))
    metadata |= chat_templates(files)
    return Vocabulary(metadata, tokens.warnings())


def _kind(files: TokenizerFiles) -> str:
    """Which of the engine's tokenizers this is. Raises when there is none, or when it is of another kind."""
    model = files.model
    if not files.tokenizer:
        if files.sentencepiece is not None:
            return "pieces"
        if (files.folder / "merges.txt").is_file():
            return "byte level"
        if (files.folder / "vocab.txt").is_file():
            return "word pieces"
        raise SourceError(
            f"no tokenizer in {files.folder}: neither tokenizer.json nor tokenizer.model",
            hint="download the whole checkpoint, not only its weights",
        )
    kind = model.get("type")
    if kind is None and isinstance(model.get("merges"), list):
        kind = "BPE"  # files of old versions leave the type out
    if kind == "WordPiece":
        return "word pieces"
    if kind == "BPE":
        steps = (files.tokenizer.get("pre_tokenizer"), files.tokenizer.get("decoder"))
        if any(_contains_byte_level(node) for node in steps):
            return "byte level"
        if model.get("byte_fallback"):
            return "pieces"
    if kind == "Unigram" and files.sentencepiece is not None:
        return "pieces"  # refused there unless the SentencePiece file says BPE
    raise UnsupportedError(
        f"the tokenizer is of type {kind or 'unknown'}, which is not supported",
        hint="supported: byte-level BPE, SentencePiece BPE, WordPiece",
    )


def _contains_byte_level(node: Any) -> bool:
    if not isinstance(node, dict):
        return False
    if node.get("type") == "ByteLevel":
        return True
    lists = [node.get("pretokenizers"), node.get("decoders")]
    return any(_contains_byte_level(n) for inner in lists if isinstance(inner, list) for n in inner)


def _adds_bos(files: TokenizerFiles, kind: str) -> bool:
    name = str(files.config.get("tokenizer_class", ""))
    if not name:
        return kind != "byte level" and not files.tokenizer
    return kind != "byte level" and name.startswith(_ADDS_BOS)


def _special_ids(files: TokenizerFiles, tokens: TokenList) -> dict[str, int]:
    """Text to id for special tokens: added tokens by their own text, then the vocabulary."""
    ids = {t: i for t, i in tokens.ids().items() if tokens.types[i] != TokenType.BYTE}
    return ids | {t.content: t.id for t in files.added.values() if t.id < tokens.n_tokens}
