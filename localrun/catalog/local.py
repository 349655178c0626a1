"""What is on this machine: the models that localrun, the hub's client, LM Studio and Ollama have fetched.

Reads only, and touches no network. Invariant: every name in the list can be typed as a MODEL, and files are used
where they lie.
"""

from __future__ import annotations

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
    models += [_of_repo(repo, files, "hub") for repo, files in cached_models()]
    models += [_of_repo(repo, files, "lm-studio") for repo, files in lm_studio_models()]
    models += ollama_models()
    seen: set[Path] = set()
    unique = []
    for model in models:
        real = model.path.resolve()
        if real not in seen or model.problem is not None:
            unique.append(model)
        seen.add(real)
    return unique


def _fetched_here() -> list[LocalModel]:
    from localrun.catalog.storage import NOTE_SUFFIX, read_source_note
    from localrun.paths import default_paths

    models = []
    for note in sorted(default_paths().models.rglob("*" + NOTE_SUFFIX)):
        if (known := read_source_note(note)) is not None:
            path, source = known
            models.append(LocalModel(source, (path,), path.stat().st_size, "localrun"))
    return models


def _of_repo(repo: str, files: list[Path], place: Place) -> LocalModel:
    """Named by repository and quantization where that is enough, else by file."""
    inner = files[0].name
    for parent in files[0].parents:
        if parent.parent.name == "snapshots" or f"{parent.parent.name}/{parent.name}" == repo:
            inner = files[0].relative_to(parent).as_posix()
            break
    return LocalModel(f"hf:{repo}/{inner}", tuple(files), sum(f.stat().st_size for f in files), place)
