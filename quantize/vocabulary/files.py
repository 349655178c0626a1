"""The tokenizer files of a checkpoint, read once.

Knows their names and outer shape, not what a token means. Invariant: a file that is there is valid JSON of the right
kind; a file that is absent reads as empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quantize.checkpoint.config import Config, Json, read_json_if_there
from quantize.errors import SourceError


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is found in the text before the tokenizer proper runs."""

    id: int
    content: str
    special: bool | None
    """None where the file does not say (added_tokens.json)."""


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a checkpoint says about its tokenizer."""

    folder: Path
    model_config: Config
    tokenizer: Json
    """`tokenizer.json`"""
    config: Json
    """`tokenizer_config.json`"""
    generation: Json
    """`generation_config.json`"""
    special_map: Json
    """`special_tokens_map.json`"""
    added: dict[int, AddedToken] = field(default_factory=dict)
    """By id, from all places that list added tokens."""

    @property
    def model(self) -> Json:
        """The `model` part of tokenizer.json: vocabulary and merges."""
        model = self.tokenizer.get("model")
        return model if isinstance(model, dict) else {}

    def vocabulary(self) -> dict[str, int]:
        """Token to id, from tokenizer.json. Raises SourceError when it is missing or an id is no number."""
        return checked_vocabulary(self.model.get("vocab"), "tokenizer.json")

    @property
    def sentencepiece(self) -> Path | None:
        path = self.folder / "tokenizer.model"
        return path if path.is_file() else None

    def special_token(self, role: str) -> str | None:
        """The text of e.g. the `bos` token, as the tokenizer's configuration names it."""
        for source in (self.config, self.special_map):
            entry = source.get(f"{role}_token")
            text = entry.get("content") if isinstance(entry, dict) else entry
            if isinstance(text, str) and text:
                return text
        return None


def checked_vocabulary(value: Any, source: str) -> dict[str, int]:
    """Token to id. Raises SourceError with the file's name when it is something else."""
    if not isinstance(value, dict):
        raise SourceError(f"{source} has no vocabulary")
    for text, token_id in value.items():
        if not isinstance(token_id, int):
            raise SourceError(f"{source} gives token {text!r} the id {token_id!r}")
    return value


def read_tokenizer_files(folder: Path, config: Config) -> TokenizerFiles:
    """Read them all. Raises SourceError for a file that is there and damaged."""
    tokenizer = read_json_if_there(folder / "tokenizer.json")
    tokenizer_config = read_json_if_there(folder / "tokenizer_config.json")
    files = TokenizerFiles(
        folder,
        config,
        tokenizer,
        tokenizer_config,
        read_json_if_there(folder / "generation_config.json"),
        read_json_if_there(folder / "special_tokens_map.json"),
    )
    files.added.update(_added_tokens(folder, tokenizer, tokenizer_config))
    return files


def _added_tokens(folder: Path, tokenizer: Json, config: Json) -> dict[int, AddedToken]:
    """Later places win: the plain list of old checkpoints, tokenizer_config.json, tokenizer.json."""
    found: dict[int, AddedToken] = {}
    for content, token_id in read_json_if_there(folder / "added_tokens.json").items():
        _add(found, token_id, content, None, "added_tokens.json")
    decoder = config.get("added_tokens_decoder")
    for token_id, entry in decoder.items() if isinstance(decoder, dict) else ():
        number = int(token_id) if str(token_id).isdecimal() else token_id
        _add_entry(found, number, entry, "tokenizer_config.json")
    listed = tokenizer.get("added_tokens")
    for entry in listed if isinstance(listed, list) else ():
        _add_entry(found, entry.get("id") if isinstance(entry, dict) else None, entry, "tokenizer.json")
    return found


def _add_entry(found: dict[int, AddedToken], token_id: Any, entry: Any, source: str) -> None:
    if not isinstance(entry, dict):
        raise SourceError(f"{source} has a damaged added token: {entry!r}")
    _add(found, token_id, entry.get("content"), bool(entry.get("special")), source)


def _add(found: dict[int, AddedToken], token_id: Any, content: Any, special: bool | None, source: str) -> None:
    if not isinstance(token_id, int) or isinstance(token_id, bool) or token_id < 0 or not isinstance(content, str):
        raise SourceError(f"{source} has a damaged added token: {content!r} with id {token_id!r}")
    found[token_id] = AddedToken(token_id, content, special)
