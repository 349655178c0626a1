"""Downloads that were interrupted: what they have left, for the next `pull` to go on with or for `rm` to delete.

Knows the names that partial files have; touches no network. Invariant: only files that our own transfers write are
reported, so a download that another program runs is left alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localrun.catalog.hub_cache import hub_cache_folder, repo_folder
from localrun.catalog.places import url_path
from localrun.catalog.references import HubReference, IndexReference, Remote
from localrun.paths import can_list, default_paths

_HUB_PARTIAL = re.compile(r"[0-9a-f]{40,64}\.incomplete")
"""Named by checksum alone; the client of today adds a random part, and deletes its own."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An interrupted download."""

    name: str
    """What to give to `pull` or `rm`: the repository, or the URL."""
    files: tuple[Path, ...]
    size: int
    """Bytes that are here."""


def unfinished() -> Iterator[Unfinished]:
    """All interrupted downloads on this machine."""
    hub, fetched = hub_cache_folder(), default_paths().models
    for repo in sorted(hub.glob("models--*--*")) if can_list(hub) else ():
        name = repo.name.removeprefix("models--").replace("--", "/", 1)
        yield from _of_hub(HubReference(name))
    for note in sorted(fetched.rglob("*.part.json")) if can_list(fetched) else ():
        try:
            source = json.loads(note.read_text("utf-8"))["source"]
        except (OSError, ValueError, KeyError, TypeError):  # not one of our notes
            continue
        yield from _of_url(source, note.with_name(note.name.removesuffix(".json")))


def unfinished_of(reference: Remote) -> Iterator[Unfinished]:
    """The interrupted downloads of `reference`; of a hub repository all of them, whatever the quantization."""
    if isinstance(reference, HubReference):
        yield from _of_hub(HubReference(reference.repo))
    elif not isinstance(reference, IndexReference):  # a wheel leaves nothing
        target = url_path(reference)
        yield from _of_url(reference.text, target.with_name(target.name + ".part"))


def _of_hub(reference: HubReference) -> Iterator[Unfinished]:
    blobs = repo_folder(reference.repo) / "blobs"
    partials = sorted(blobs.glob("*.incomplete")) if can_list(blobs) else []
    files = tuple(path for path in partials if _HUB_PARTIAL.fullmatch(path.name))
    if files:
        yield Unfinished(reference.text, files, sum(file.stat().st_size for file in files))


def _of_url(source: str, partial: Path) -> Iterator[Unfinished]:
    if os.path.isfile(partial):
        note = partial.with_name(partial.name + ".json")
        yield Unfinished(source, (partial, note), partial.stat().st_size)
