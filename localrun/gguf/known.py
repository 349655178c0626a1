"""Remembers, in small files of the cache, what was once found out about a model file.

Knows the file's device, inode, size and time; knows nothing of its content. Invariant: what is remembered holds for a
file that is, to the nanosecond, the one that was looked at; that the cache cannot be read or written only costs time.
"""

from __future__ import annotations

import os
from pathlib import Path

from localrun.paths import default_paths, ensure_private

_SOUND = "sound-1"
"""Counts up when the checks of the vocabulary change, so what passed older ones is looked at again."""


def identity_of(info: os.stat_result) -> tuple[int, int, int, int]:
    """Device, inode, size in bytes and time of the last write in ns: different after any ordinary change."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def memory_file(info: os.stat_result, kind: str) -> Path:
    """Where `kind` (a folder of the cache) of the file with this `info` is remembered."""
    return default_paths().cache / kind / "-".join(f"{part:x}" for part in identity_of(info))


def is_known_sound(path: Path | str) -> bool:
    """Whether this very file has passed the checks of its vocabulary's texts, which take 0.1 s for 262k tokens."""
    try:
        return memory_file(Path(path).stat(), _SOUND).exists()
    except OSError:
        return False


def remember_sound(path: Path | str) -> None:
    """Note that the file has passed them."""
    try:
        target = memory_file(Path(path).stat(), _SOUND)
        ensure_private(target.parent)
        target.touch(mode=0o600)
    except OSError:
        return
