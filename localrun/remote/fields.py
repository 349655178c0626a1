"""Fields of what a server sends: each may hold any JSON value, and is read here and nowhere else.

Knows types; knows no API. Invariants: what comes out has the type it is asked for, a text can be encoded, and a count
can be computed with; what must be there and is something else raises `RemoteError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from localrun.errors import RemoteError

_LARGEST_COUNT = 2**53
"""The largest whole number that every JSON reader can tell from its neighbours."""


def parsed(content: bytes | str) -> Any:
    """The value of a JSON document. Raises `ValueError` for what is none, and for one that is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        text = "something that is nested too deeply"
    return encodable(text if len(text) <= 120 else text[:120] + "…")


def encodable(text: str) -> str:
    """The text with a question mark for each lone half of a character."""
    return text.encode("utf-8", "replace").decode("utf-8")


def wrong(value: Any, expected: str) -> RemoteError:
    """The error for a value that is not what it has to be."""
    return RemoteError(f"the server sent {shown(value)} where {expected} was expected")


def text_of(values: Mapping[str, Any], key: str, expected: str) -> str:
    """The text under a key, as it was sent; empty if there is none. Raises `RemoteError` for anything else."""
    value = values.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong(value, expected)
    return value


def word_of(values: Mapping[str, Any], key: str) -> str | None:
    """A name or a code under a key, if there is a text that can be encoded."""
    value = values.get(key)
    return value if isinstance(value, str) and value and encodable(value) == value else None


def object_of(values: Mapping[str, Any], key: str, expected: str) -> Mapping[str, Any]:
    """The object under a key; empty if there is none. Raises `RemoteError` for anything else."""
    value = values.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong(value, expected)
    return value


def list_of(values: Mapping[str, Any], key: str, expected: str) -> list[Any]:
    """The list under a key; empty if there is none. Raises `RemoteError` for anything else."""
    value = values.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong(value, expected)
    return value


def details_of(values: Any, key: str) -> Mapping[str, Any]:
    """The object under a key of what only informs (usage, times): empty if it is not there, or is something else."""
    value = values.get(key) if isinstance(values, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def count_of(values: Mapping[str, Any], key: str) -> int | None:
    """The count under a key, if there is a whole number from 0 on that can be one."""
    value = values.get(key)
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT
    return value if counts else None
