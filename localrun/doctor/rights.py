"""What this user may not write, and the command that changes it.

Knows the rights of files; changes none. Invariant: a file or folder that is not there yet is judged by the nearest
folder above it that is, where it would be made.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from localrun.paths import nearest_existing


def unwritable(path: Path) -> Path | None:
    """The place that keeps `path` from being written (for a folder: from being used at all); None if nothing does."""
    place = nearest_existing(path)
    wanted = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(place) else 0)
    return None if os.access(place, wanted) else place


def unreadable(path: Path) -> Path | None:
    """The place that keeps `path` from being read, if it is there; None if nothing does."""
    place = nearest_existing(path)
    return None if os.access(place, os.R_OK | (os.X_OK if os.path.isdir(place) else 0)) else place


def opens(path: Path) -> str:
    """The command that gives this user the right to use `path`, or the nearest folder above that can be seen."""
    place = nearest_existing(path)
    name = shlex.quote(str(place))
    try:
        is_ours = place.stat().st_uid == os.getuid()
    except (OSError, AttributeError):  # a system without owners
        is_ours = True
    if not is_ours:
        return f'sudo chown -R "$USER" {name}'
    return f"chmod u+{'rwx' if os.path.isdir(place) else 'rw'} {name}"
