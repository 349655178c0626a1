"""Servers of ours on this machine: they announce themselves in the runtime folder, and are found there.

Knows files and processes; knows no HTTP. Invariant: an announcement is read by its owner's user only, and one whose
process has ended is removed by whoever sees it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from localrun.errors import RemoteError
from localrun.paths import ensure_private, runtime_dir

_SUFFIX = ".server.json"


@dataclass(frozen=True, slots=True)
class Announcement:
    """One running server."""

    pid: int
    url: str
    socket: str | None
    """Its Unix socket, for this user's own programs; no key is asked there."""
    started: float
    """Seconds since the epoch."""


def announce(server: Announcement) -> Path:
    """Write the announcement of a server; the caller removes the file when it ends."""
    file = ensure_private(runtime_dir()) / f"{server.pid}{_SUFFIX}"
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(asdict(server)), encoding="utf-8")
    partial.replace(file)
    return file


def running_servers() -> list[Announcement]:
    """Every server that runs, newest first."""
    found = []
    for file in runtime_dir().glob(f"*{_SUFFIX}"):
        try:
            server = Announcement(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # ended, or half written by a process that was killed, while we looked
        if _alive(server.pid):
            found.append(server)
        else:
            file.unlink(missing_ok=True)
            if server.socket:
                Path(server.socket).unlink(missing_ok=True)
    return sorted(found, key=lambda server: -server.started)


def running_server() -> Announcement:
    """The newest server. Raises `RemoteError` if none runs."""
    servers = running_servers()
    if not servers:
        raise RemoteError("no server of localrun runs on this machine", hint="start one with: localrun serve -m MODEL")
    return servers[0]


def _alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid) if pid != os.getpid() else True
