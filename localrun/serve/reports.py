"""What a server says of itself: which models there are, how it stands with them, and whether it can be sent work.

Knows the pool; knows no endpoint. Invariants: an engine that has failed is noticed by whoever asks; the report of
health, which needs no key, names no model.
"""

from __future__ import annotations

import time
from typing import Any

from localrun.serve.failures import ApiError
from localrun.serve.pool import ModelPool
from localrun.serve.servable import Servable


def health_report(pool: ModelPool) -> tuple[int, dict[str, Any]]:
    """Status and body. As llama-server's: 200 where requests can be sent, 503 with an error where they should not be.

    A model that is loaded because somebody asks for it is no reason to go elsewhere: the request waits for it.
    """
    pool.look()
    if not pool.is_reviving:
        return 200, {"status": "ok"}
    if pool.loaded:
        return 200, {"status": "degraded"}
    if any(pool.state(name) == "loading" for name in pool.names):
        word, message = "loading", "the engine has failed, and the model is being loaded again"
    else:
        word, message = "failed", "the engine has failed, and the model could not be loaded again; it is tried again"
    return 503, {"status": word, **ApiError(503, message, kind="unavailable_error", code="engine_failed").body}


def models_report(pool: ModelPool, started: float) -> dict[str, Any]:
    """OpenAI's list."""
    pool.look()
    return {"object": "list", "data": [_model(pool, servable, started) for servable in pool.servables]}


def model_report(pool: ModelPool, name: str, started: float) -> dict[str, Any]:
    """One entry of the list. Raises `ApiError` 404."""
    pool.look()
    for servable in pool.servables:
        if servable.name == name:
            return _model(pool, servable, started)
    raise ApiError(404, f"the model {name[:100]!r} is not served here", param="model", code="model_not_found")


def _model(pool: ModelPool, servable: Servable, started: float) -> dict[str, Any]:
    state = pool.state(servable.name)
    head = {"id": servable.name, "object": "model", "created": int(started), "owned_by": "localrun"}
    report = {**head, **servable.details, "loaded": state == "loaded", "state": state}
    problem = pool.problem(servable.name)
    return report if problem is None else {**report, "problem": problem}


def status_report(pool: ModelPool) -> list[dict[str, Any]]:
    """The models that are in memory, and those that are on their way or should be there."""
    pool.look()
    loaded = {entry.servable.name: entry for entry in pool.loaded}
    return [
        {
            "name": servable.name,
            "state": state,
            "bytes": servable.n_bytes,
            "context": servable.details.get("max_model_len", 0),
            "in_flight": entry.in_flight if entry else 0,
            "loaded_at": entry.loaded_at if entry else None,
            "last_used": 0.0 if entry is None else time.time() if entry.users else entry.last_used,
            **{key: str(value) for key, value in servable.details.items() if key == "quantization"},
        }
        for servable in pool.servables
        if (state := pool.state(servable.name)) != "unloaded"
        for entry in [loaded.get(servable.name)]
    ]
