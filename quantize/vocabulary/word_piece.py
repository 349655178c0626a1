"""BERT's WordPiece vocabularies, from tokenizer.json or vocab.txt.

The engine marks the start of a word where WordPiece marks its continuation, so `##ing` becomes `ing` and `run` becomes
`\u2581run`. Invariant: control tokens keep their text.
"""

from __future__ import annotations

from gguf.constants import TokenType

from quantize.checkpoint.config import Json
from quantize.errors import SourceError, UnsupportedError
from quantize.metadata import Metadata, boolean, string
from quantize.vocabulary.files import TokenizerFiles
from quantize.vocabulary.pieces import SPACE
from quantize.vocabulary.tokens import TokenList

_ROLES = ("unk", "sep", "pad", "cls", "mask", "bos", "eos")


def word_piece_vocabulary(files: TokenizerFiles, n_tokens: int) -> tuple[Metadata, TokenList]:
    """Tokens and the normalizer's settings.

    Raises SourceError for damaged files, UnsupportedError for another prefix.
    """
    tokens = TokenList(n_tokens)
    for text, token_id in _read(files).items():
        tokens.put(token_id, text, TokenType.NORMAL)
    for token in files.added.values():
        tokens.put_added(token)
    if not files.added:
        for role_text in {files.special_token(role) for role in _ROLES} | {
            "[UNK]",
            "[SEP]",
            "[PAD]",
            "[CLS]",
            "[MASK]",
        }:
            if role_text in tokens.texts:
                tokens.types[tokens.texts.index(role_text)] = TokenType.CONTROL
    for token_id, kind in enumerate(tokens.types):
        if kind not in (TokenType.CONTROL, TokenType.UNUSED):
            text = tokens.texts[token_id]
            tokens.texts[token_id] = text[2:] if text.startswith("##") else SPACE + text
        elif kind == TokenType.UNUSED:
            tokens.texts[token_id] = SPACE + tokens.texts[token_id]
    metadata = {
        "tokenizer.ggml.model": string("bert"),
        "tokenizer.ggml.pre": string("bert-bge"),
        **tokens.metadata(with_scores=False),
        **_normalizer(files),
    }
    return metadata, tokens


def _read(files: TokenizerFiles) -> dict[str, int]:
    if files.tokenizer:
        prefix = files.model.get("continuing_subword_prefix", "##")
        if prefix != "##":
            raise UnsupportedError(f"the tokenizer marks continued words with {prefix!r}, the engine knows '##' only")
        return files.vocabulary()
    path = files.folder / "vocab.txt"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    return {line.rstrip("\r"): token_id for token_id, line in enumerate(lines) if line.strip("\r")}


def _normalizer(files: TokenizerFiles) -> Metadata:
    settings: Json = {}
    node = files.tokenizer.get("normalizer")
    if isinstance(node, dict) and node.get("type") == "BertNormalizer":
        settings = node
    elif not files.tokenizer:
        settings = {"lowercase": files.config.get("do_lower_case", True), "strip_accents": None}
    keys: Metadata = {}
    for setting in ("lowercase", "strip_accents"):
        if isinstance(settings.get(setting), bool):
            keys[f"tokenizer.ggml.normalizer.{setting}"] = boolean(settings[setting])
    return keys
