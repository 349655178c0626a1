"""What a running server of ours says of itself."""

from __future__ import annotations

from typing import Any

from localrun.errors import LocalrunError
from localrun.remote.connection import Connection, PassingError
from localrun.remote.neighbours import Announcement
from localrun.remote.settings import EngineSettings


def server_status(server: Announcement) -> dict[str, Any] | None:
    """Models, load and age of a server; None if it does not answer."""
    settings = EngineSettings("local", f"{server.url}/v1", socket=server.socket, connect_timeout_s=3.0)
    connection = Connection(settings)
    try:
        status = connection.get("/status")
    except (LocalrunError, PassingError):
        return None
    finally:
        connection.close()
    return status if isinstance(status, dict) else None
