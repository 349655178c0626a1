"""Finds model files in the standard Hugging Face cache, without importing its client.

Knows the cache's layout (`models--OWNER--REPO/snapshots/COMMIT/…`, `refs/main`) and the variables that move it; a test
compares both with the real client. Reads only. Invariant: what it returns exists in full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from localrun.catalog.choice import choose, complete_models
from localrun.catalog.references import HubReference
from localrun.errors import ModelNotFoundError
from localrun.paths import can_list

DEFAULT_ENDPOINT = "https://huggingface.co"


def hub_cache_folder() -> Path:
    """Where the hub's client keeps its files: `HF_HUB_CACHE`, `HF_HOME/hub`, or under the user's cache."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(os.path.expandvars(value)).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(os.path.expandvars(home)).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "huggingface" / "hub"


def hub_endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", DEFAULT_ENDPOINT).rstrip("/")


def hub_is_forbidden() -> bool:
    """The hub's own switch to stay offline is set."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def repo_folder(repo: str) -> Path:
    return hub_cache_folder() / f"models--{repo.replace('/', '--')}"


def find_in_hub_cache(reference: HubReference) -> Path | None:
    """The cached file (the first, of a split model) that `reference` means; None if it is not there in full."""
    for snapshot in _snapshots(repo_folder(reference.repo)):
        if (found := find_in_folder(snapshot, reference)) is not None:
            return found
    return None


def find_in_folder(folder: Path, reference: HubReference) -> Path | None:
    """Like `find_in_hub_cache`, in any folder that holds the files of a repository."""
    try:
        return folder / choose(reference, gguf_names(folder))[0]
    except ModelNotFoundError:  # not here, or not all of its files
        return None


def find_checkpoint(repo: str) -> Path | None:
    """The cached folder of a checkpoint; None if there is none. Whether it is whole, its reader finds out."""
    for snapshot in _snapshots(repo_folder(repo)):
        if (snapshot / "config.json").is_file() and any(snapshot.glob("*.safetensors")):
            return snapshot
    return None


def cached_models() -> Iterator[tuple[str, list[Path]]]:
    """(repository, files) of every complete model in the cache."""
    hub = hub_cache_folder()
    for repo in sorted(hub.glob("models--*--*")) if can_list(hub) else ():
        seen: set[tuple[str, ...]] = set()
        for snapshot in _snapshots(repo):
            for model in complete_models(gguf_names(snapshot)):
                if model not in seen:
                    seen.add(model)
                    yield repo.name.removeprefix("models--").replace("--", "/", 1), [snapshot / f for f in model]


def gguf_names(folder: Path) -> list[str]:
    """The GGUF files under `folder`, with `/` between folders; links that lead nowhere are left out."""
    names = []
    for root, _, files in os.walk(folder):
        inside = Path(root).relative_to(folder)
        names += [(inside / f).as_posix() for f in files if f.lower().endswith(".gguf") and Path(root, f).is_file()]
    return sorted(names)


def _snapshots(repo: Path) -> list[Path]:
    """The snapshot folders of a cached repository: the one `main` points to first, then the newest."""
    try:
        main = (repo / "refs" / "main").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):  # no such reference: any snapshot will do
        main = ""
    try:
        folders = [folder for folder in (repo / "snapshots").iterdir() if folder.is_dir()]
    except OSError:
        return []
    return sorted(folders, key=lambda folder: (folder.name != main, -folder.stat().st_mtime, folder.name))
