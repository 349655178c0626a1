"""Whether a file is the result of an earlier run, which a new one may replace.

Knows the marks that each kind of result carries. Invariant: what cannot be read, or carries no mark, is a stranger's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from quantize.errors import QuantizeError
from quantize.gguf_source import read_metadata
from quantize.plan import RECIPE_KEY
from quantize.split import first_shard

_HEAD = 4096
"""Bytes within which a page says what it is."""


def is_earlier_model(path: Path) -> bool:
    """A model of ours, or a further part of one."""
    try:
        return RECIPE_KEY in read_metadata(path) or RECIPE_KEY in read_metadata(first_shard(path))
    except (QuantizeError, OSError):
        return False


def is_matrix(path: Path) -> bool:
    """An importance matrix in a GGUF file."""
    try:
        kind = read_metadata(path).get("general.type")
    except (QuantizeError, OSError):
        return False
    return kind is not None and kind.value == "imatrix"


def is_earlier_report(path: Path) -> bool:
    """A quality report, as a page or as JSON."""
    try:
        if path.suffix.lower() != ".json":
            with path.open("rb") as file:
                return b": quality</title>" in file.read(_HEAD)
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"recipe", "bits_per_weight", "overall", "slices"} <= found.keys()


KINDS: dict[str, Callable[[Path], bool]] = {
    "-o": is_earlier_model,
    "--save-imatrix": is_matrix,
    "--report": is_earlier_report,
}
"""By the flag that names the file."""


def may_be_replaced(path: Path, flag: str) -> bool:
    """Whether nothing is lost: there is no such file, it is empty, or an earlier run made it."""
    try:
        if not os.stat(path).st_size:
            return True
    except FileNotFoundError:
        return True
    return KINDS[flag](path)
