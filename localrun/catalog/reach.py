"""Finds out within seconds whether a server can be reached at all.

HTTP clients retry for minutes where a machine has no network; a fetch that has another source should not wait for
that. Knows proxies from the environment; sends nothing. Invariant: never takes longer than its limit.
"""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from localrun.errors import OfflineError

LIMIT_S = 4.0
"""A connection that takes longer than this would be too slow to fetch a model through."""


def unreachable(what: str, reason: object = None, *, variables: str = "HTTPS_PROXY") -> OfflineError:
    """The error for something that cannot be reached, with the ways around it.

    `variables` are those of the environment that may be what this network needs.
    """
    return OfflineError(
        f"{what} cannot be reached" + (f": {reason}" if reason else ""),
        hint="take a model that is here (`localrun list`), or a .gguf file by its path; "
        f"behind a proxy or a mirror, set {variables}",
    )


def why_unreachable(url: str, limit_s: float = LIMIT_S) -> str | None:
    """Why no connection to the server of `url` (or to the proxy in between) can be made; None if it can."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(host):
        proxy_parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        host, port = proxy_parts.hostname or "", proxy_parts.port or 80
    outcome: list[str | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=limit_s).close()
            outcome.append(None)
        except OSError as error:
            outcome.append(error.strerror or str(error))

    # Name resolution knows no time limit of its own, so it happens in a thread that may be left behind.
    thread = threading.Thread(target=connect, daemon=True, name="localrun-reach")
    thread.start()
    thread.join(limit_s)
    return outcome[0] if outcome else f"no answer from {host} within {limit_s:g} s"
