"""Where a remote engine is and how to talk to it: a URL, or a name with a table `[engines.NAME]` in the configuration.

Knows addresses, keys and limits; opens no connection. Invariants: a key is never part of a message, and a base URL ends
without a slash where the API's paths begin (`…/v1`).
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from localrun.errors import UsageError
from localrun.remote.dialects import DIALECTS

if TYPE_CHECKING:
    from localrun.config import Config

_KEYS: dict[str, type | tuple[type, ...]] = {
    "base_url": str,
    "api_key_env": str,
    "api_key_keyring": str,
    "model": str,
    "models": dict,
    "headers": dict,
    "dialect": str,
    "context": int,
    "parallel": int,
    "retries": int,
    "connect_timeout": (int, float),
    "read_timeout": (int, float),
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One remote engine."""

    name: str
    """As the user named it, for messages."""
    base_url: str
    """Where the API's paths begin, for example `http://127.0.0.1:8000/v1`."""
    key: str | None = field(default=None, repr=False)
    socket: str | None = None
    """A Unix socket to connect to instead of the URL's host."""
    model: str | None = None
    """The model to ask when none is named."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Our names of models → the server's."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    dialect: str | None = None
    """None: found out by asking the server."""
    context: int | None = None
    """Tokens of context, where the server does not say."""
    parallel: int = 8
    """Most requests in flight."""
    retries: int = 5
    """How often a request is tried again after 429, 5xx or a broken connection."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 600.0
    """Longest silence of the server: a long prompt on a slow machine takes minutes to its first token."""

    @property
    def root(self) -> str:
        """The server's address without the API's version."""
        return self.base_url.removesuffix("/v1")


def engine_settings(engine: str, config: Config | None = None) -> EngineSettings:
    """The settings of `--engine ENGINE`: a URL, `local` (a server of ours on this machine), or a name in the config.

    Raises `UsageError` for an unknown name, a malformed URL, or a key that cannot be found.
    """
    table = config.engine_table(engine) if config is not None else None
    if table is not None:
        return _from_table(engine, table)
    if "://" in engine:
        return EngineSettings(engine, _base_url(engine, "--engine"))
    if engine == "local":
        from localrun.remote.neighbours import running_server

        server = running_server()
        return EngineSettings("local", _base_url(server.url, "local"), socket=server.socket, key=_own_key())
    raise UsageError(
        f"no engine {engine!r} is known",
        hint=_how_to_name(engine),
    )


def _how_to_name(engine: str) -> str:
    """How an engine is named that was not found by `engine`."""
    if re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d+(/\S*)?", engine):
        return f"a URL begins with its scheme: http://{engine}"
    key = engine if re.fullmatch(r"[\w-]+", engine, re.ASCII) else json.dumps(engine)
    return f"give a URL (http://127.0.0.1:8080), or describe it in the configuration under [engines.{key}]"


def _own_key() -> str | None:
    return os.environ.get("LOCALRUN_API_KEY") or None


def _from_table(name: str, table: Mapping[str, Any]) -> EngineSettings:
    where = f"[engines.{name}]"
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(f"{where} has no setting {key!r}", hint=f"there are {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise UsageError(f"{where}: {key} is {value!r}, which is not of the right type")
    if "base_url" not in table:
        raise UsageError(f"{where} has no base_url", hint='for example base_url = "http://127.0.0.1:8000/v1"')
    dialect = table.get("dialect")
    if dialect is not None and dialect not in DIALECTS:
        raise UsageError(f"{where}: dialect is {dialect!r}", hint=f"one of {', '.join(DIALECTS)}")
    for key in ("context", "parallel", "connect_timeout", "read_timeout"):
        if key in table and table[key] <= 0:
            raise UsageError(f"{where}: {key} is {table[key]}; it is above 0")
    if table.get("retries", 0) < 0:
        raise UsageError(f"{where}: retries is {table['retries']}; it is 0 or more")
    for key in ("models", "headers"):
        if not all(isinstance(value, str) for value in table.get(key, {}).values()):
            raise UsageError(f"{where}: {key} is a table of texts")
    given: dict[str, Any] = {
        key: table[key] for key in ("model", "models", "headers", "context", "parallel", "retries") if key in table
    }
    seconds: dict[str, Any] = {
        f"{key}_s": float(table[key]) for key in ("connect_timeout", "read_timeout") if key in table
    }
    base_url = _base_url(table["base_url"], f"{where}: base_url")
    return EngineSettings(name, base_url, key=_key(where, table), dialect=dialect, **given, **seconds)


def _key(where: str, table: Mapping[str, Any]) -> str | None:
    if variable := table.get("api_key_env"):
        key = os.environ.get(variable)
        if not key:
            raise UsageError(f"{where} takes its key from {variable}, which is not set")
        return key
    if entry := table.get("api_key_keyring"):
        service, _, user = entry.partition("/")
        return _from_keyring(where, service, user)
    return None


def _from_keyring(where: str, service: str, user: str) -> str:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError as error:
        raise UsageError(
            f"{where} takes its key from the keyring, and the package keyring is not installed",
            hint="pip install keyring, or use api_key_env",
        ) from error
    key = keyring.get_password(service, user)
    if not key:
        raise UsageError(
            f"{where}: the keyring has no password for {service}/{user}", hint=f"keyring set {service} {user}"
        )
    return str(key)


def _base_url(text: str, where: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{where} is {text!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"{where} is {text!r}, which is not an http or https URL", hint="http://127.0.0.1:8080")
    if parts.username or parts.password:
        raise UsageError(
            f"{where} holds a user name or password",
            hint="describe the engine in the configuration, with api_key_env naming the variable that holds the key",
        )
    if parts.query or parts.fragment:
        raise UsageError(f"{where} is {text!r}: a base URL has no query and no fragment")
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/completions", "/models"):
        path = path.removesuffix(ending)
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"
