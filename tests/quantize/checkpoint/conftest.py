"""A tiny Llama checkpoint to break in many ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.quantize.checkpoint import tiny


class Folder:
    """A checkpoint folder and the means to change it."""

    def __init__(self, path: Path, recorded: dict[str, Any]) -> None:
        self.path, self.recorded = path, recorded

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def edit(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change a JSON file in place."""
        value = json.loads((self.path / name).read_text(encoding="utf-8"))
        change(value)
        (self.path / name).write_text(json.dumps(value), encoding="utf-8")

    def store(self, weights: list[tuple[str, str, list[int]]], n_shards: int = 1) -> None:
        """Store these weights instead."""
        for old in [*self.path.glob("*.safetensors"), *self.path.glob("*.index.json")]:
            old.unlink()
        tiny.write_weights(self.path, weights, n_shards=n_shards)

    @property
    def weights(self) -> list[tuple[str, str, list[int]]]:
        return [tuple(w) for w in self.recorded["weights"]]  # type: ignore[misc]


def make_folder(path: Path, name: str, n_shards: int = 3) -> Folder:
    recorded = tiny.load(name) | {"shards": n_shards}
    return Folder(tiny.write_checkpoint(path, recorded, tiny.load("tokenizers")), recorded)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Llama in three shards with an index, embeddings not tied, SentencePiece."""
    return make_folder(tmp_path / "model", "llama2")


@pytest.fixture
def byte_level_folder(tmp_path: Path) -> Folder:
    """Qwen 3 with a byte-level vocabulary."""
    return make_folder(tmp_path / "model", "qwen3")
