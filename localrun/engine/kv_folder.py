"""The folder of all KV blocks, of whatever model: what is in it, and what has to go.

Knows files; knows no token. Invariant: other processes may read, write and delete there at the same time.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from localrun.engine.kv_block import SUFFIX, has_its_size


@dataclass(frozen=True, slots=True)
class StoredModel:
    """What one identity has in the folder."""

    identity: str
    folder: Path
    n_blocks: int
    n_bytes: int
    last_used: float
    """Seconds since the epoch."""


def stored_models(root: Path) -> list[StoredModel]:
    """All identities in a cache folder, the one used last first."""
    found = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        blocks = _blocks(folder) if folder.is_dir() else []
        if blocks:
            try:
                identity = (folder / "identity").read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                identity = "unknown"
            used = max(block.st_mtime for _, block in blocks)
            found.append(StoredModel(identity, folder, len(blocks), sum(b.st_size for _, b in blocks), used))
    return sorted(found, key=lambda model: -model.last_used)


def folder_size(root: Path) -> int:
    """Bytes of all blocks under `root`."""
    return sum(model.n_bytes for model in stored_models(root))


def damaged_blocks(root: Path, most: int = 10_000) -> list[Path]:
    """Blocks whose size is not the one that their header tells, among the `most` first; they are never used."""
    blocks = [path for model in stored_models(root) for path, _ in _blocks(model.folder)]
    return [path for path in blocks[:most] if not has_its_size(path)]


def evict(root: Path, target_bytes: int) -> int:
    """Delete the blocks used longest ago until `target_bytes` are left; returns how many bytes are left.

    A block that another process deletes at the same time, or is reading, is no error.
    """
    blocks = [block for model in stored_models(root) for block in _blocks(model.folder)]
    total = sum(info.st_size for _, info in blocks)
    for path, info in sorted(blocks, key=lambda block: block[1].st_mtime):
        if total <= target_bytes:
            break
        try:
            path.unlink(missing_ok=True)
        except OSError:  # somebody else's: it stays, and counts
            continue
        total -= info.st_size
    _sweep(root)
    return total


def clear(root: Path) -> int:
    """Delete every block; returns how many bytes that freed. What may not be deleted stays (`folder_size`)."""
    before = folder_size(root)
    freed = before - evict(root, 0)
    for folder in root.iterdir() if root.is_dir() else []:
        with contextlib.suppress(OSError):
            (folder / "identity").unlink(missing_ok=True)
            folder.rmdir()
    return freed


def _sweep(root: Path) -> None:
    """Delete what writers that were killed have left."""
    for part in root.glob("*/*.part"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > 3600:
                part.unlink()


def _blocks(folder: Path) -> list[tuple[Path, os.stat_result]]:
    blocks = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    blocks.append((Path(entry.path), entry.stat()))
    return blocks
