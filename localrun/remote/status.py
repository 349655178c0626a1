"""What a running server of ours says of itself."""

from __future__ import annotations

from typing import Any

from localrun.errors import LocalrunError
from localrun.remote.connection import Connection, PassingError
from localrun.remote.fields import count_of, list_of, word_of
from localrun.remote.neighbours import Announcement
from localrun.remote.settings import EngineSettings


def server_status(server: Announcement) -> dict[str, Any] | None:
    """Models, load and age of a server; None if it does not answer, or not as a server of ours does."""
    settings = EngineSettings("local", f"{server.url}/v1", socket=server.socket, connect_timeout_s=3.0)
    connection = Connection(settings)
    try:
        status = connection.get("/status")
    except (LocalrunError, PassingError):
        return None
    finally:
        connection.close()
    return status if isinstance(status, dict) and _is_ours(status) else None


def _is_ours(status: dict[str, Any]) -> bool:
    try:
        models = list_of(status, "models", "a list of models")
    except LocalrunError:
        return False
    return count_of(status, "pid") is not None and all(isinstance(m, dict) and _is_model(m) for m in models)


def _is_model(model: dict[str, Any]) -> bool:
    counted = all(count_of(model, key) is not None for key in ("bytes", "context", "in_flight"))
    return counted and word_of(model, "name") is not None and isinstance(model.get("last_used"), int | float)
