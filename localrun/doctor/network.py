"""The hub: whether it can be reached, and whether a token is there. Sends no token and fetches nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.request import getproxies

from localrun.catalog.hub_cache import hub_endpoint, hub_is_forbidden
from localrun.catalog.reach import why_unreachable
from localrun.doctor.finding import Finding

_LIMIT_S = 3.0


def look_at_hub(*, offline: bool, model_is_here: bool) -> Iterator[Finding]:
    """Reachability. That there is no network matters only to those who still need a model."""
    endpoint = hub_endpoint()
    if offline:
        yield Finding("hub", "info", "not asked: offline")
        return
    if hub_is_forbidden():
        yield Finding(
            "hub", "info", "HF_HUB_OFFLINE forbids it: only models that are here can be used", "unset HF_HUB_OFFLINE"
        )
        return
    reason = why_unreachable(endpoint, _LIMIT_S)
    proxy = getproxies().get("https")
    through = f" through the proxy {proxy.rpartition('@')[2]}" if proxy else ""
    if reason is None:
        yield Finding("hub", "ok", f"{endpoint} answers{through}")
        return
    text = f"{endpoint} cannot be reached{through}: {reason}"
    if model_is_here:
        yield Finding("hub", "info", f"{text}; models that are here work without it")
    else:
        fix = "connect to a network, set HTTPS_PROXY or HF_ENDPOINT, or copy a .gguf file here and name its path"
        yield Finding("hub", "warning", text, fix)


def look_at_token() -> Iterator[Finding]:
    """Where a token would come from. Its value is never shown."""
    for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if os.environ.get(variable, "").strip():
            yield Finding("token", "ok", f"from {variable}")
            return
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    file = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
    if file.is_file():
        yield Finding("token", "ok", f"from {file}")
    else:
        yield Finding("token", "info", "none: needed only for models whose licence must be accepted")
