"""The local engine, wired: a model file, its template, the engine's thread, and the `Responder` that others know.

loading    file → checked header → model, read on a thread, within the memory there is
context    model → context
opening    name → responder
answer     one request on its way: engine events → responder events
responder  the `Responder` on this machine
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localrun.local.opening import open_responder
    from localrun.local.responder import LocalResponder

__all__ = ["LocalResponder", "open_responder"]

_HOMES = {"LocalResponder": "localrun.local.responder", "open_responder": "localrun.local.opening"}


def __getattr__(name: str) -> Any:
    """Each when it is asked for: opening a model begins to load it before the engine is imported."""
    if name not in _HOMES:
        raise AttributeError(f"module 'localrun.local' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
