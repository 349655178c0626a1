"""What a server is and has: asked once, remembered until its list of models changes.

Knows how servers tell who they are; knows no parameters. Invariant: a server that cannot be recognized is treated as
plain OpenAI, and what it refuses is learned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from localrun.errors import LocalrunError, RemoteError
from localrun.paths import default_paths, ensure_private
from localrun.remote.connection import Connection, PassingError
from localrun.remote.dialects import DIALECTS, OWNERS, Dialect
from localrun.remote.fields import count_of, details_of, word_of
from localrun.remote.settings import EngineSettings


@dataclass(slots=True)
class Capabilities:
    """One server."""

    fingerprint: str
    dialect: str
    models: list[str]
    context: dict[str, int] = field(default_factory=dict)
    """Tokens of context by model, where the server says."""
    refused: list[str] = field(default_factory=list)
    """Keys of requests that it has refused."""

    @property
    def speaks(self) -> Dialect:
        return DIALECTS[self.dialect]


def discover(connection: Connection, settings: EngineSettings, memory: Memory) -> Capabilities:
    """Ask for the list of models, and for the rest where this server is not remembered. Raises `RemoteError`."""
    try:
        listing = connection.get("/models")
    except PassingError as error:
        raise error.error from error
    entries = listing.get("data") if isinstance(listing, dict) else None
    if listing is not None and not isinstance(entries, list):
        raise RemoteError(
            f"{settings.name} is not an OpenAI-compatible server: its list of models is none",
            hint="a base URL often ends in /v1",
        )
    objects = [entry for entry in entries or [] if isinstance(entry, dict)]
    models = {name: entry for entry in objects if (name := word_of(entry, "id"))}
    owners = sorted({word_of(entry, "owned_by") or "" for entry in models.values()})
    told = json.dumps([sorted(models), owners, settings.dialect])
    fingerprint = hashlib.sha256(told.encode()).hexdigest()[:16]
    known = memory.recall(settings.base_url)
    if known is not None and known.fingerprint == fingerprint:
        return known
    dialect = settings.dialect or _recognized(connection, owners)
    found = Capabilities(fingerprint, dialect, list(models), _contexts(connection, dialect, models))
    memory.remember(settings.base_url, found)
    return found


def _recognized(connection: Connection, owners: list[str]) -> str:
    for owner in owners:
        if owner in OWNERS:
            return OWNERS[owner]
    for path, key, dialect in (
        ("/props", "default_generation_settings", "llama-server"),
        ("/api/version", "version", "ollama"),
        ("/get_model_info", "model_path", "sglang"),
        ("/version", "version", "vllm"),
    ):
        if isinstance(told := _asked(connection, path), dict) and key in told:
            return dialect
    return next(iter(DIALECTS))


def _contexts(connection: Connection, dialect: str, models: Mapping[str, dict[str, Any]]) -> dict[str, int]:
    found = {}
    for name, entry in models.items():
        for key in ("max_model_len", "context_length", "max_context_length"):
            if value := count_of(entry, key):
                found[name] = value
                break
    if dialect == "llama-server" and not found:
        settings = details_of(_asked(connection, "/props"), "default_generation_settings")
        if value := count_of(settings, "n_ctx"):
            found = dict.fromkeys(models, value)
    if dialect == "lm-studio":
        listing = _asked(connection, "/api/v0/models")
        entries = listing.get("data") if isinstance(listing, dict) else None
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, dict):
                continue
            value = count_of(entry, "loaded_context_length") or count_of(entry, "max_context_length")
            if value and (name := word_of(entry, "id") or ""):
                found[name] = value
    return found


def _asked(connection: Connection, path: str) -> Any:
    """What the server's root says; None for a server that has no such page, or wants another key for it."""
    try:
        return connection.get(path, at_root=True)
    except (LocalrunError, PassingError):
        return None


class Memory:
    """What is known of servers, in one small file in the cache folder. Losing it costs a few requests."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or default_paths().cache / "engines.json"

    def recall(self, url: str) -> Capabilities | None:
        entry = self._read().get(url)
        try:
            known = Capabilities(**entry) if entry is not None else None
        except TypeError:
            return None  # written by another version
        return known if known is not None and known.dialect in DIALECTS else None

    def remember(self, url: str, capabilities: Capabilities) -> None:
        entries = {**self._read(), url: asdict(capabilities)}
        try:
            ensure_private(self._file.parent)
            partial = self._file.with_suffix(".part")
            partial.write_text(json.dumps(entries, indent=1), encoding="utf-8")
            partial.replace(self._file)
        except OSError:
            return  # a cache that cannot be written is only slower

    def _read(self) -> dict[str, Any]:
        try:
            entries = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}
