"""Finds the models that Ollama has fetched, and never changes them.

Knows its folders (`manifests/HOST/NAMESPACE/MODEL/TAG`, `blobs/sha256-…`) and its manifest format. Invariant: a model
without a problem has a blob of the size that its manifest promises.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localrun.catalog.local import LocalModel

_MODEL_LAYER = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_MANIFEST = 1 << 20


def ollama_folders() -> list[Path]:
    """Where Ollama keeps models: `OLLAMA_MODELS`, the user's folder, the folder of the Linux service."""
    if value := os.environ.get("OLLAMA_MODELS"):
        return [Path(value).expanduser()]
    return [Path("~/.ollama/models").expanduser(), Path("/usr/share/ollama/.ollama/models")]


def ollama_models() -> Iterator[LocalModel]:
    """Every model that a manifest names; those that cannot be used carry the reason in `problem`."""
    for folder in ollama_folders():
        for manifest in _manifests(folder):
            yield _model(folder, manifest)


def find_in_ollama(name: str) -> LocalModel | None:
    """The model that Ollama calls `name` (`:latest` may be left out); None if there is none that can be used."""
    wanted = name.casefold()
    for model in ollama_models():
        full = model.name.casefold()
        if model.problem is None and wanted in (full, full.removesuffix(":latest")):
            return model
    return None


def _manifests(folder: Path) -> list[Path]:
    found = []
    for root, _, files in os.walk(folder / "manifests"):
        found += [Path(root) / file for file in files if not file.startswith(".")]
    return sorted(found)


def _name(folder: Path, manifest: Path) -> str:
    """As Ollama writes it: without the default host and namespace."""
    parts = manifest.relative_to(folder / "manifests").parts
    if len(parts) > 2 and parts[0] == "registry.ollama.ai":
        parts = parts[1:]
        if len(parts) > 2 and parts[0] == "library":
            parts = parts[1:]
    return "/".join(parts[:-1]) + ":" + parts[-1]


def _model(folder: Path, manifest: Path) -> LocalModel:
    name = _name(folder, manifest)
    try:
        layers = _layers(manifest)
    except (OSError, ValueError) as error:
        return LocalModel(name, (manifest,), 0, "ollama", problem=f"the manifest is damaged: {error}")
    models = [layer for layer in layers if layer.get("mediaType") == _MODEL_LAYER]
    if len(models) != 1:
        return LocalModel(name, (manifest,), 0, "ollama", problem=f"it has {len(models)} model files instead of one")
    match = _DIGEST.fullmatch(str(models[0].get("digest")))
    if match is None:
        return LocalModel(name, (manifest,), 0, "ollama", problem="the manifest names no SHA-256")
    blob = folder / "blobs" / f"sha256-{match[1]}"
    try:
        size = blob.stat().st_size
    except OSError as error:
        return LocalModel(name, (blob,), 0, "ollama", problem=f"its file is missing: {error.strerror}")
    expected = models[0].get("size")
    if isinstance(expected, int) and expected != size:
        return LocalModel(name, (blob,), size, "ollama", problem=f"its file has {size} bytes instead of {expected}")
    return LocalModel(name, (blob,), size, "ollama")


def _layers(manifest: Path) -> list[dict[str, Any]]:
    if manifest.stat().st_size > _MAX_MANIFEST:
        raise ValueError("it is too large")
    document = json.loads(manifest.read_text("utf-8"))
    layers = document.get("layers") if isinstance(document, dict) else None
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise ValueError("it lists no layers")
    return layers
