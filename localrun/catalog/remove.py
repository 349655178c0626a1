"""Deletes fetched models: our own files, and files of the hub's cache through the hub's client.

Knows whose a file is. Invariant: nothing that another tool has fetched, or that the user has put somewhere, is ever
deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localrun.catalog.entries import load_catalogue
from localrun.catalog.hub_cache import hub_cache_folder
from localrun.catalog.references import NameReference, PathReference, Remote, parse_reference
from localrun.catalog.resolve import find, local_copy
from localrun.catalog.storage import source_note
from localrun.catalog.unfinished import Unfinished, unfinished_of
from localrun.errors import ModelNotFoundError, StoreError, UsageError
from localrun.paths import default_paths


@dataclass(frozen=True, slots=True)
class Removal:
    """What would be deleted; `execute` does it."""

    name: str
    files: tuple[Path, ...]
    freed: int
    """Bytes that become free."""
    execute: Callable[[], None]


def plan_removal(model: str) -> Removal:
    """How to delete all copies of `model` that localrun or the hub's client has fetched. Deletes nothing yet.

    Raises `ModelNotFoundError` if it is not here, `UsageError` if its file belongs to somebody else.
    """
    reference = parse_reference(model)
    if isinstance(reference, PathReference):
        raise UsageError(f"{model} is a file of yours", hint="rm deletes fetched models by name; use the shell's rm")
    entry = load_catalogue().find(reference.name) if isinstance(reference, NameReference) else None
    sources: list[Remote] = [] if isinstance(reference, NameReference) else [reference]
    if entry is not None:
        sources = [source.reference for source in entry.sources]
    copies = [path for source in sources if (path := local_copy(source)) is not None and _is_ours(path)]
    removals = [
        _own(path) if _is_inside(path, default_paths().models) else _hub(path) for path in dict.fromkeys(copies)
    ]
    if not removals:
        # Nothing whole: what an interrupted download has left counts, or else somebody else's file explains itself.
        removals = [_partial(left) for source in sources for left in unfinished_of(source)]
    if not removals:
        other = find(model)
        if other is None:
            raise ModelNotFoundError(f"{model} is not on this machine", hint="`localrun list` shows what is")
        tool = "Ollama" if other.source == "ollama" else "LM Studio"
        raise UsageError(f"{other.name} belongs to {tool}", hint=f"delete it there: {other.path}")

    def execute() -> None:
        for removal in removals:
            removal.execute()

    files = tuple(file for removal in removals for file in removal.files)
    return Removal(entry.name if entry else model, files, sum(r.freed for r in removals), execute)


def _is_ours(path: Path) -> bool:
    return _is_inside(path, default_paths().models) or _is_inside(path, hub_cache_folder())


def _is_inside(path: Path, folder: Path) -> bool:
    return path.absolute().is_relative_to(folder.absolute())


def _partial(left: Unfinished) -> Removal:
    def execute() -> None:
        for file in left.files:
            _delete(file)

    return Removal(left.name, left.files, left.size, execute)


def _own(path: Path) -> Removal:
    """A file from a package index or a URL, with the note beside it."""

    def execute() -> None:
        _delete(path)
        _delete(source_note(path))
        for left in path.parent.glob("*.lock"):
            _delete(left)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()

    return Removal(path.name, (path,), path.stat().st_size, execute)


def _hub(path: Path) -> Removal:
    """A file of the hub's cache, with its siblings if it is split, in all snapshots; blobs that others use stay."""
    from huggingface_hub import scan_cache_dir

    from localrun.gguf.shards import parse_set

    snapshot = next(parent for parent in path.parents if parent.parent.name == "snapshots")
    names = {file.path.relative_to(snapshot) for file in parse_set(path)}
    cache = scan_cache_dir(hub_cache_folder())
    revisions = [r for repo in cache.repos if repo.repo_path == snapshot.parent.parent for r in repo.revisions]
    files = [f for r in revisions for f in r.files if f.file_path.relative_to(r.snapshot_path) in names]
    if len(files) == sum(len(revision.files) for revision in revisions):
        strategy = cache.delete_revisions(*(revision.commit_hash for revision in revisions))
    else:
        strategy = cache.delete_files(*files)

    def execute() -> None:
        try:
            strategy.execute()
        except OSError as error:
            raise StoreError(f"{path} cannot be deleted: {error.strerror or error}") from error

    return Removal(path.name, tuple(file.file_path for file in files), strategy.expected_freed_size, execute)


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be deleted: {error.strerror or error}") from error
