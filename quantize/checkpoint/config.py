"""JSON files of a checkpoint, read so that a mistake in them is reported by file and key.

Knows JSON and nothing of models. Invariant: a value that is handed out has the type that was asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantize.errors import SourceError

Json = dict[str, Any]


def read_json(path: Path) -> Json:
    """The object in a JSON file.

    Raises SourceError when the file is missing, is no JSON, or holds something other than an object.
    """
    value = _parse(path)
    if not isinstance(value, dict):
        raise SourceError(f"{path} holds {type(value).__name__}, expected an object")
    return value


def read_json_list(path: Path) -> list[Json]:
    """The objects of a JSON file that holds a list of them. Raises SourceError for anything else."""
    value = _parse(path)
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise SourceError(f"{path} holds {type(value).__name__}, expected a list of objects")
    return value


def _parse(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SourceError(
            f"{path.name} is missing from {path.parent}", hint="download the whole checkpoint, not only its weights"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SourceError(f"{path} is not valid JSON: {error}", hint="download this file again") from error


def read_json_if_there(path: Path) -> Json:
    """The object in a JSON file, or an empty one when there is no such file."""
    return read_json(path) if path.is_file() else {}


@dataclass(frozen=True, slots=True)
class Config:
    """A model's `config.json` with its architecture's defaults underneath; `text_config` is lifted to the top."""

    values: Mapping[str, Any]
    path: Path

    @classmethod
    def of(cls, values: Json, path: Path) -> Config:
        """Lift the text part of a multimodal model's configuration, which wins over equal keys at the top."""
        text = values.get("text_config")
        return cls({**values, **text} if isinstance(text, dict) else values, path)

    def with_defaults(self, defaults: Mapping[str, Any]) -> Config:
        """The same configuration; keys that are absent (not those that are null) get these values."""
        return Config({**defaults, **self.values}, self.path)

    def get(self, *keys: str) -> Any:
        """The first of these keys that is there and not null, else None."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                return value
        return None

    def integer(self, *keys: str) -> int:
        """A whole number above zero under the first of these keys that is there. Raises SourceError otherwise."""
        value = self.get(*keys)
        if value is None:
            raise SourceError(f"{self.path.name} has no {keys[0]!r}", hint=f"looked in {self.path}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SourceError(f"{self.path.name} has {keys[0]} = {value!r}, expected a whole number above zero")
        return value

    def integer_or(self, default: int, *keys: str) -> int:
        """Like `integer`, with a value for absent or null keys."""
        return default if self.get(*keys) is None else self.integer(*keys)

    def number(self, *keys: str) -> float:
        """A number under the first of these keys that is there. Raises SourceError otherwise."""
        value = self.get(*keys)
        if value is None:
            raise SourceError(f"{self.path.name} has no {keys[0]!r}", hint=f"looked in {self.path}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SourceError(f"{self.path.name} has {keys[0]} = {value!r}, expected a number")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean; absent or null means the default. Raises SourceError for any other type."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise SourceError(f"{self.path.name} has {key} = {value!r}, expected true or false")
        return value
