"""Finds the models that LM Studio has fetched, and never changes them.

Knows its folders (`OWNER/REPO/FILE.gguf`, as on the hub). Invariant: what it returns exists in full.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from localrun.catalog.choice import complete_models
from localrun.catalog.hub_cache import find_in_folder, gguf_names
from localrun.catalog.references import HubReference
from localrun.paths import can_list


def lm_studio_folders() -> list[Path]:
    """Where LM Studio keeps models: the folder chosen in its settings, else the two that it has used by default."""
    homes = [Path("~/.lmstudio").expanduser(), Path("~/.cache/lm-studio").expanduser()]
    with suppress(OSError, UnicodeDecodeError):  # the usual case: it was not moved
        homes.insert(0, Path(Path("~/.lmstudio-home-pointer").expanduser().read_text("utf-8").strip()))
    chosen = [folder for home in homes if (folder := _chosen_folder(home / "settings.json")) is not None]
    folders = [*chosen, *(home / "models" for home in homes)]
    return [folder for folder in dict.fromkeys(folders) if can_list(folder)]


def lm_studio_models() -> Iterator[tuple[str, list[Path]]]:
    """(repository, files) of every complete model."""
    for folder in lm_studio_folders():
        for repo in sorted(folder.glob("*/*")):
            if repo.is_dir():
                for model in complete_models(gguf_names(repo)):
                    yield f"{repo.parent.name}/{repo.name}", [repo / file for file in model]


def find_in_lm_studio(reference: HubReference) -> Path | None:
    """The file (the first, of a split model) that `reference` means; None if it is not there in full."""
    for folder in lm_studio_folders():
        if (found := find_in_folder(folder / reference.repo, reference)) is not None:
            return found
    return None


def _chosen_folder(settings: Path) -> Path | None:
    try:
        folder = json.loads(settings.read_text("utf-8")).get("downloadsFolder")
    except (OSError, ValueError, AttributeError):  # no settings, or none that we understand: the defaults remain
        return None
    return Path(folder) if isinstance(folder, str) and folder else None
