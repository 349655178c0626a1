"""What was written and not sent when a chat was left.

Knows a file and the ids of chats; knows no screen. Invariant: a draft is given back once, to the chat that it was
written in; a file of drafts that cannot be read or written costs no chat.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

_MOST = 100
"""So many chats keep a draft; the oldest one goes first."""


class Drafts:
    """The drafts of all chats, in one small file. The chat without an id is the one that has not begun."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self, session_id: str | None) -> str:
        """The draft of a chat, which is not kept any longer; "" if there is none."""
        drafts = self._read()
        draft = drafts.pop(session_id or "", "")
        if draft:
            self._write(drafts)
        return draft

    def keep(self, session_id: str | None, text: str) -> bool:
        """Keep what was not sent; whether that succeeded (and there was anything)."""
        if not text.strip():
            return False
        drafts = self._read()
        drafts.pop(session_id or "", None)
        return self._write({**drafts, session_id or "": text})

    def _read(self) -> dict[str, str]:
        try:
            drafts = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(drafts, dict):
            return {}
        return {str(name): text for name, text in drafts.items() if isinstance(text, str)}

    def _write(self, drafts: dict[str, str]) -> bool:
        newest = dict(list(drafts.items())[-_MOST:])
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            with open(partial, "w", encoding="utf-8", errors="replace", opener=_for_the_user_alone) as file:
                json.dump(newest, file)
            os.replace(partial, self._path)
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            return False
        return True


def _for_the_user_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
