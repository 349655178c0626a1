"""The catalogue: names of models, and where each can be fetched from.

Knows `models.toml`, the one that ships and the user's own, which adds to it and wins; fetches nothing. Invariant: an
entry that exists is complete: it has a source, and every source parses.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localrun.catalog.references import Remote, parse_remote
from localrun.errors import UsageError
from localrun.paths import default_paths
from localrun.resources import resource

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ENTRY_KEYS: dict[str, type | tuple[type, ...]] = {
    "about": str,
    "license": str,
    "parameters": str,
    "context": int,
    "gigabytes": (int, float),
    "draft": str,
    "aliases": list,
    "sources": list,
}
_SOURCE_KEYS: dict[str, type | tuple[type, ...]] = {"at": str, "size": int, "sha256": str}


@dataclass(frozen=True, slots=True)
class Source:
    """One place to fetch a model from; `size` and `sha256` are checked where they are known."""

    reference: Remote
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue."""

    name: str
    sources: tuple[Source, ...]
    """In order of preference."""
    about: str = ""
    license: str | None = None
    parameters: str | None = None
    context: int | None = None
    """Trained context length in tokens."""
    gigabytes: float | None = None
    """Size of the download from the first source, roughly (10^9 bytes)."""
    draft: str | None = None
    """The catalogue's name of a small model with the same vocabulary, to draft for this one."""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All entries by name, and the default model's name."""

    entries: Mapping[str, Entry]
    default: str

    def find(self, name: str) -> Entry | None:
        """The entry with this name or alias; capitals do not matter."""
        wanted = name.casefold()
        for entry in self.entries.values():
            if wanted == entry.name.casefold() or wanted in (alias.casefold() for alias in entry.aliases):
                return entry
        return None

    def near(self, name: str, others: Iterable[str] = ()) -> list[str]:
        """Up to three names (of the catalogue or `others`) that look like `name`."""
        import difflib

        aliases = (alias for entry in self.entries.values() for alias in entry.aliases)
        names = {known.casefold(): known for known in (*self.entries, *aliases, *others)}
        wanted = name.casefold()
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
        family = [n for n in names if n.split(":")[0] == wanted.split(":")[0]]
        return [names[n] for n in dict.fromkeys([*close, *family])][:3]


def load_catalogue() -> Catalogue:
    """The shipped catalogue with the user's `models.toml` (in the config folder) laid over it.

    Raises `UsageError`, with file and line or key, if one of the files is wrong.
    """
    shipped = _read(resource("models.toml"))
    user_file = default_paths().user_models_file
    own = {} if _is_missing(user_file) else _read(user_file)
    entries: dict[str, Entry] = {}
    for path, document in ((Path("models.toml"), shipped), (user_file, own)):
        for name, table in _tables(path, document).items():
            entries[name] = _entry(path, name, table)
    default = own.get("default", shipped.get("default"))
    if not isinstance(default, str):
        raise UsageError(f"{user_file}: `default` is {default!r}, not a model's name")
    return Catalogue(entries, default)


def _is_missing(path: Path) -> bool:
    """False too for a file that may not be looked at: reading it then says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no valid TOML: {error}", hint="see docs/models.md for its form") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _tables(path: Path, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    for key in document:
        if key not in ("default", "models"):
            raise UsageError(f"{path}: unknown key {key!r}", hint='models are sections like [models."name:tag"]')
    tables = document.get("models", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"{path}: `models` holds something else than sections", hint='write [models."name:tag"]')
    return tables


def _entry(path: Path, name: str, table: dict[str, Any]) -> Entry:
    where = f'{path}: [models."{name}"]'
    _check_keys(where, table, _ENTRY_KEYS)
    sources = tuple(_source(where, source) for source in table.get("sources", []))
    if not sources:
        raise UsageError(f"{where} has no sources", hint='write sources = ["hf:OWNER/REPO:QUANT"]')
    aliases = table.get("aliases", [])
    if not all(isinstance(alias, str) for alias in aliases):
        raise UsageError(f"{where}: aliases is {aliases!r}; it is a list of names")
    plain = {key: value for key, value in table.items() if key not in ("sources", "aliases")}
    return Entry(name=name, sources=sources, aliases=tuple(aliases), **plain)


def _source(where: str, source: object) -> Source:
    if isinstance(source, str):
        source = {"at": source}
    if not isinstance(source, dict) or "at" not in source:
        raise UsageError(f"{where}: the source {source!r} is neither a text nor a table with `at`")
    _check_keys(where, source, _SOURCE_KEYS)
    sha256 = source.get("sha256")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise UsageError(f"{where}: sha256 is {sha256!r}; it is 64 digits 0-9a-f")
    try:
        reference = parse_remote(source["at"])
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
    return Source(reference, source.get("size"), sha256)


def _check_keys(where: str, table: dict[str, Any], known: Mapping[str, type | tuple[type, ...]]) -> None:
    for key, value in table.items():
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, known, n=1)
            raise UsageError(f"{where}: unknown key {key!r}", hint=f"did you mean {near[0]!r}?" if near else None)
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise UsageError(f"{where}: {key} is {value!r}, which is of the wrong kind")
