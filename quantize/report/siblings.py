"""Other quantized files of the same model beside this one, and the figures they carry: the types that were tried.

Knows GGUF headers only. Invariant: a file that cannot be read, or has no report, is left out: it is not ours.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from quantize.report.quality import KEY, Sibling, stored_summary

_HEADER = 64 << 20
"""The report stands in the metadata, which lies in the first bytes of a file."""


def siblings(path: Path, n_parameters: int) -> tuple[Sibling, ...]:
    """Reports of the other GGUF files in the folder that were measured against a base of the same name."""
    mine = _family(path)
    found = []
    for other in sorted(path.parent.glob("*.gguf")):
        if other == path or _family(other) != mine:
            continue
        summary = _summary(other)
        if summary is not None:
            recipe = other.stem.removeprefix(mine).strip("-._").lower()
            found.append(Sibling(other.name, recipe or other.stem, other.stat().st_size, float(summary["divergence"])))
    return tuple(found)


def _family(path: Path) -> str:
    """The name without the type: files of one model differ in what follows the last dash."""
    return path.stem.rsplit("-", 1)[0]


def _summary(path: Path) -> dict[str, float] | None:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            position = data.find(KEY.encode(), 0, min(len(data), _HEADER))
            if position < 0:
                return None
            start = position + len(KEY) + 4  # the type of the value, then its length and bytes
            length = int.from_bytes(data[start : start + 8], "little")
            if length > 1 << 16:
                return None
            found = stored_summary(data[start + 8 : start + 8 + length].decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    return found if found is not None and isinstance(found.get("divergence"), float) else None
