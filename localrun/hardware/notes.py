"""Small JSON files of what was learned about this machine, under the cache.

Knows files; knows not what they mean. Invariants: a file is replaced whole or not at all, and one that is damaged or
of an older form reads as empty: everything here can be measured again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from localrun.paths import default_paths, ensure_private


def note_path(name: str) -> Path:
    """Where the note `name` lies."""
    return default_paths().tuning / f"{name}.json"


def read_note(name: str) -> dict[str, Any]:
    """The content of a note; empty if there is none that can be read."""
    try:
        value = json.loads(note_path(name).read_text("utf-8"))
    except (OSError, ValueError):  # none yet, or damaged: it is measured again
        return {}
    return value if isinstance(value, dict) else {}


def write_note(name: str, content: dict[str, Any]) -> bool:
    """Replace a note; False where the cache cannot be written, which only costs measuring again."""
    target = note_path(name)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        ensure_private(target.parent)
        temporary.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        temporary.replace(target)
    except OSError:
        with suppress(OSError):  # where nothing could be written, there may be nothing to remove either
            temporary.unlink()
        return False
    return True
