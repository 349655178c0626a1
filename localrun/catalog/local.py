"""What is on this machine: the models that localrun, the hub's client, LM Studio and Ollama have fetched.

Reads only, and touches no network. Invariant: every name in the list can be typed as a MODEL, and files are used
where they lie.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localrun.catalog.choice import quantization_in

Place = Literal["localrun", "hub", "lm-studio", "ollama"]
PLACES: dict[Place, str] = {
    "localrun": "localrun",
    "hub": "Hugging Face cache",
    "lm-studio": "LM Studio",
    "ollama": "Ollama",
}
"""What a person calls each place."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One model on disk."""

    name: str
    files: tuple[Path, ...]
    """The first is the one to load."""
    size: int
    """Bytes of all files."""
    place: Place
    problem: str | None = None
    """Why it cannot be used; None if it can."""

    @property
    def path(self) -> Path:
        return self.files[0]

    @property
    def quantization(self) -> str | None:
        """From the name, or from the header where the name does not tell (Ollama names files by checksum)."""
        if (named := quantization_in(self.path.name)) is not None or self.problem is not None:
            return named
        from localrun.errors import ModelFileError
        from localrun.gguf import read_header

        try:
            return read_header(self.path, runnable=False).quantization
        except ModelFileError:  # `problem` is for what can be told without opening files; loading will explain it
            return None


def local_models() -> list[LocalModel]:
    """All models on this machine, by place and name. The same file is listed once, where it was found first."""
    from localrun.catalog.hub_cache import cached_models
    from localrun.catalog.lm_studio import lm_studio_models
    from localrun.catalog.ollama import ollama_models

    models = _fetched_here()
    models += _named(cached_models(), "hub")
    models += _named(lm_studio_models(), "lm-studio")
    models += ollama_models()
    seen: set[Path] = set()
    unique = []
    for model in models:
        real = model.path.resolve()
        if real not in seen or model.problem is not None:
            unique.append(model)
        seen.add(real)
    return unique


def closed_folders() -> list[Path]:
    """Folders with models that may not be looked into: what is in them is in no list."""
    from localrun.catalog.hub_cache import hub_cache_folder
    from localrun.paths import default_paths

    closed = []
    for folder in (default_paths().models, hub_cache_folder()):
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            closed.append(folder)
    return closed


def _fetched_here() -> list[LocalModel]:
    from localrun.catalog.storage import NOTE_SUFFIX, read_source_note
    from localrun.paths import can_list, default_paths

    models: list[LocalModel] = []
    folder = default_paths().models
    for note in sorted(folder.rglob("*" + NOTE_SUFFIX)) if can_list(folder) else ():
        if (known := read_source_note(note)) is not None:
            path, source = known
            models.append(LocalModel(source, (path,), path.stat().st_size, "localrun"))
    return models


def _named(found: Iterable[tuple[str, list[Path]]], place: Place) -> list[LocalModel]:
    """(repository, files) as models, named by quantization where the repository has it once, else by file."""
    models = list(found)
    quants = [(repo, quantization_in(files[0].name)) for repo, files in models]
    named = []
    for (repo, files), (_, quant) in zip(models, quants, strict=True):
        alone = quant is not None and quants.count((repo, quant)) == 1
        name = f"hf:{repo}:{quant}" if alone else f"hf:{repo}/{_inside(repo, files[0])}"
        named.append(LocalModel(name, tuple(files), sum(file.stat().st_size for file in files), place))
    return named


def _inside(repo: str, file: Path) -> str:
    """The path of `file` within its repository: below the snapshot, or below OWNER/REPO."""
    for parent in file.parents:
        if parent.parent.name == "snapshots" or f"{parent.parent.name}/{parent.name}" == repo:
            return file.relative_to(parent).as_posix()
    return file.name
