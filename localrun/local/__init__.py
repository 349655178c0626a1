"""The local engine, wired: a model file, its template, the engine's thread, and the `Responder` that others know.

loading    file → checked header → model and context, within the memory there is
answer     one request on its way: engine events → responder events
responder  the `Responder` on this machine
"""

from localrun.local.responder import LocalResponder, open_responder

__all__ = ["LocalResponder", "open_responder"]
