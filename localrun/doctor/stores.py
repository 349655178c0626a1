"""Models of every tool on this machine, and the integrity of what localrun has written. Opens everything read-only."""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from localrun.catalog.hub_cache import hub_cache_folder
from localrun.catalog.local import PLACES, LocalModel, closed_folders, local_models
from localrun.catalog.storage import human_size
from localrun.doctor.finding import Finding
from localrun.doctor.rights import opens, unwritable
from localrun.engine.kv_folder import damaged_blocks
from localrun.errors import ModelFileError
from localrun.gguf import fingerprint
from localrun.paths import Paths, can_list, default_paths, runtime_dir

_SHOWN = 3
"""Damaged blocks named one by one."""


def look_at_stores() -> Iterator[Finding]:
    """How many models each tool has here, how large they are, and which are here twice."""
    for folder in closed_folders():
        yield Finding("models", "warning", f"{folder} cannot be read: models in it are not found", opens(folder))
    models = local_models()
    usable = [model for model in models if model.problem is None]
    for place, name in PLACES.items():
        here = [model for model in usable if model.place == place]
        if here:
            size = sum(model.size for model in here)
            text = f"{name}: {len(here)} model{'s' if len(here) > 1 else ''}, {human_size(size)}"
            yield Finding("models", "ok", text, facts={"place": place, "count": len(here), "bytes": size})
    if not usable:
        yield Finding("models", "warning", "no models are here", "localrun pull")
    for model in models:
        if model.problem is not None:
            yield Finding("models", "info", f"{model.name} cannot be used: {model.problem}")
    for twins in duplicates(usable):
        names = ", ".join(f"{model.name} ({PLACES[model.place]})" for model in twins)
        wasted = human_size(sum(model.size for model in twins[1:]))
        text = f"the same model is here {len(twins)} times: {names}; {wasted} could be freed"
        ours = [model for model in twins if model.place in ("localrun", "hub")]  # what `rm` may delete
        yield Finding("models", "info", text, f"localrun rm {ours[-1].name}" if ours else None)


def duplicates(models: Iterable[LocalModel]) -> list[list[LocalModel]]:
    """Groups of models with the same content, told by size and then by fingerprint."""
    by_size: dict[int, list[LocalModel]] = defaultdict(list)
    for model in models:
        by_size[model.size].append(model)
    groups = []
    for same_size in by_size.values():
        if len(same_size) < 2:
            continue
        by_content: dict[str, list[LocalModel]] = defaultdict(list)
        for model in same_size:
            try:
                by_content[fingerprint(model.path)].append(model)
            except ModelFileError:  # what cannot be read is no copy of anything
                continue
        groups += [group for group in by_content.values() if len(group) > 1]
    return groups


def look_at_sessions() -> Iterator[Finding]:
    """Whether the sessions' database is sound, as SQLite itself judges."""
    path = default_paths().sessions_db
    place = next(filter(None, map(unwritable, (path.parent, path, *_beside(path)))), None)
    if not os.path.exists(path):
        if place is None:
            yield Finding("sessions", "ok", "none yet")
        else:
            yield Finding("sessions", "error", f"chats cannot be saved: {place} cannot be written", opens(place))
        return
    try:
        problems, count = _judge_database(path)
    except sqlite3.Error as error:
        if not os.access(path, os.R_OK):
            yield Finding("sessions", "error", f"{path} cannot be read: {error}", opens(path))
            return
        fix = f"keep a copy of {path}, then: sqlite3 {path} .recover | sqlite3 recovered.db"
        yield Finding("sessions", "error", f"{path} cannot be read: {error}", fix)
        return
    if problems:
        fix = f"keep a copy, then: sqlite3 {path} .recover | sqlite3 recovered.db"
        yield Finding("sessions", "error", f"{path} is damaged: {problems[0]}", fix)
    elif place is not None:
        text = f"{count} chats, sound, but nothing can be saved: {place} cannot be written"
        yield Finding("sessions", "error", text, opens(place), facts={"chats": count})
    else:
        size = human_size(path.stat().st_size)
        yield Finding("sessions", "ok", f"{count} chats, {size}, sound", facts={"chats": count})


def _beside(path: Path) -> list[Path]:
    """What SQLite keeps beside the file while it is open, where it is there."""
    files = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    return [file for file in files if os.path.exists(file)]


def _judge_database(path: Path) -> tuple[list[str], int]:
    # Without its log beside it, a database can be read as if on a read-only disk: nothing is created.
    log = path.with_name(path.name + "-wal")
    mode = "mode=ro" if log.exists() else "immutable=1"
    connection = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, timeout=2)
    try:
        answers = [row[0] for row in connection.execute("PRAGMA quick_check(5)")]
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        name = next((table for table in ("sessions", "session") if table in tables), None)
        count = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] if name else 0
    finally:
        connection.close()
    return [answer for answer in answers if answer != "ok"], count


def look_at_caches() -> Iterator[Finding]:
    """Size of the caches, notes that cannot be read, and beginnings of downloads."""
    paths = default_paths()
    yield from _closed(paths)
    if not can_list(paths.cache):
        if not os.path.exists(paths.cache):
            yield Finding("cache", "ok", "empty")
        return
    sizes = {folder.name: _size(folder) for folder in sorted(paths.cache.iterdir()) if folder.is_dir()}
    notes = paths.tuning.glob("*.json") if can_list(paths.tuning) else ()
    broken = [file for file in notes if not _is_json(file)]
    for file in broken:
        yield Finding("cache", "warning", f"{file} is damaged", f"rm {file}")
    for block in damaged_blocks(paths.kv_blocks)[:_SHOWN] if _all_listed(paths.kv_blocks) else ():
        yield Finding("cache", "warning", f"{block} is no whole block of the prefix cache", f"rm {block}")
    downloads = paths.models.rglob("*.part") if can_list(paths.models) else ()
    parts = [file for file in downloads if os.path.isfile(file)]
    if parts:
        size = human_size(sum(file.stat().st_size for file in parts))
        text = f"{len(parts)} interrupted downloads, {size}: the next `localrun pull` takes them up again"
        yield Finding("cache", "info", text)
    listed = ", ".join(f"{name} {human_size(size)}" for name, size in sizes.items() if size)
    yield Finding("cache", "ok", f"{paths.cache}: {listed or 'empty'}", facts=sizes)


def _closed(paths: Paths) -> Iterator[Finding]:
    """What may not be written or looked into, each place once, with all that it costs."""
    costs: dict[Path, list[str]] = defaultdict(list)
    for folder, cost in (
        (paths.models, "models cannot be fetched"),
        (hub_cache_folder(), "models cannot be fetched from the hub"),
        (paths.kv_blocks, "prompts are not kept"),
        (paths.vocabularies, "constraints start slower"),
        (paths.tuning, "measurements are not remembered"),
        (runtime_dir(), "servers are not announced to `localrun ps`"),
    ):
        if (place := unwritable(folder)) is not None:
            costs[place].append(cost)
    for folder in paths.kv_blocks.iterdir() if can_list(paths.kv_blocks) else ():
        if os.path.isdir(folder) and (place := unwritable(folder)) is not None:
            costs[place].append("prompts of one model are not kept")
    for place, what in costs.items():
        yield Finding("cache", "warning", f"{place} cannot be written: {', '.join(what)}", opens(place))


def _all_listed(root: Path) -> bool:
    return can_list(root) and all(can_list(folder) for folder in root.iterdir() if os.path.isdir(folder))


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*") if can_list(folder) else ():
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # it went away between the listing and the look
            continue
    return total


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return True
