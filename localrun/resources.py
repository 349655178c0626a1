"""Finds the data that ships with localrun: `models.toml` and `grammars/`.

In a wheel they lie in `localrun/_data`; in a checkout (and an editable install) at the repository's root.
Invariant: callers never ask which of the two it is.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource(name: str) -> Path:
    """The path of the shipped file or folder `name`, e.g. `models.toml`."""
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        candidate = root / name
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"localrun was installed without its data file {name!r}")
