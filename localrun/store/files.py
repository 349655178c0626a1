"""Session files on disk.

Knows paths; the formats are in `export`. Invariant: a file that exists is never overwritten, and one that could not be
written in full is not left behind.
"""

from __future__ import annotations

import os
from pathlib import Path

from localrun.errors import InputError, OutputWriteError
from localrun.store.export import from_json, from_markdown
from localrun.store.records import Tree


def read_session_file(path: Path) -> Tree:
    """The session in a `.json` or Markdown file, which is as old as its file. Raises `InputError`."""
    try:
        text = path.read_bytes().decode("utf-8")
        written = path.stat().st_mtime
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start:,})") from error
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return from_json(text.lstrip("\ufeff"), name=str(path))
    return from_markdown(text, name=str(path), clock=lambda: written)


def write_new_file(path: Path, text: str) -> None:
    """Write a file that must not exist yet. Raises `InputError` if it does, `OutputWriteError`."""
    try:
        file = path.open("xb")
    except FileExistsError as error:
        raise InputError(f"{path} exists", hint="name another file, or move that one away") from error
    except OSError as error:
        raise OutputWriteError.of(str(path), error) from error
    try:
        with file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OutputWriteError.of(str(path), error) from error
