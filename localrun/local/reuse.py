"""What a cached prefix depends on, how much of it may be kept, and why one was not found.

Knows models and the machine's disk; knows no sequences. Invariant: two runs whose keys and values could differ have
different identities.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from localrun.engine.events import Diverged
from localrun.gguf import GGUFHeader
from localrun.llama.context import LlamaContext
from localrun.paths import nearest_existing
from localrun.release import engine_release

_BUDGET = 8 << 30
_DISK_SHARE = 0.1
"""The cache never takes more than this share of what is free (what it has already counts as free)."""
_LEAST = 16 << 20
"""Bytes that are worth it: a few blocks of a small model."""
_SHOWN_TOKENS = 8
_SEARCHED_TOKENS = 24
_EXPECTED = 0.75
"""A prompt that leaves the cached one in its last quarter does what it should."""

# Text that is likely to change from run to run. Early in a prompt it makes everything behind it new.
_VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}"), "a date"),
    (re.compile(r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"), "a day of the week"),
    (
        re.compile(r"\b(January|February|March|April|May|June|July|August|September|October|November|December)\b"),
        "a date",
    ),
    (re.compile(r"\b\d{1,2}:\d\d(:\d\d)?\b"), "a time of day"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}\b|\b[0-9a-f]{16,}\b"), "an identifier"),
)


class _Decoder(Protocol):
    def decode(self, tokens: list[int]) -> bytes: ...


def cache_identity(name: str, header: GGUFHeader, content: str, context: LlamaContext, placed: str) -> str:
    """Everything that keys and values depend on but the tokens, as a readable line.

    `content` is the fingerprint; `placed` says which devices compute what, as each rounds in its own way.
    The context's length is part of it only for models that change their position factors with it.
    """
    options = context.options
    long_rope = any(tensor.name.startswith("rope_factors_long") for tensor in header.tensors)
    parts = [
        name,
        content,
        engine_release(),
        f"kv {options.kv_type}",
        f"flash attention {options.flash_attention}",
        placed,
        *([f"context {options.n_ctx_seq}"] if long_rope else []),
    ]
    return " · ".join(parts)


def cache_budget(root: Path) -> int:
    """Bytes that the cache may have: 8 GB, or less on a disk with little room."""
    try:
        free = shutil.disk_usage(nearest_existing(root)).free
    except OSError:
        return 0
    return min(_BUDGET, int(free * _DISK_SHARE))


def cache_obstacle(root: Path) -> str | None:
    """Why nothing can be kept under `root`, if so: for a warning."""
    place = nearest_existing(root)
    if not os.path.isdir(place) or not os.access(place, os.W_OK | os.X_OK):
        return f"{place} cannot be written"
    if cache_budget(root) < _LEAST:
        return f"the disk of {place} is nearly full"
    return None


def explain(event: Diverged, tokens: Sequence[int], vocabulary: _Decoder) -> str:
    """One line on where a prompt left the cached one early, and on volatile text there; "" where it did not."""
    at = event.position
    if at > _EXPECTED * len(tokens):
        return ""  # a new question at the end is what the cache is made for
    before = _text(vocabulary, tokens[max(0, at - _SHOWN_TOKENS) : at])
    here = _text(vocabulary, event.here[:_SHOWN_TOKENS])
    there = _text(vocabulary, event.there[:_SHOWN_TOKENS])
    line = f"diverged at token {at:,}: …{before!r} goes on {here!r}, cached was {there!r}"
    kind = volatile(
        before + _text(vocabulary, event.here[:_SEARCHED_TOKENS]),
        before + _text(vocabulary, event.there[:_SEARCHED_TOKENS]),
    )
    if kind and at < len(tokens) // 2:
        line += f"; {kind} early in a prompt makes all that follows new: put it at the end"
    return line


def volatile(here: str, there: str) -> str | None:
    """What kind of volatile text makes the difference, if it is one that is known."""
    for pattern, kind in _VOLATILE:
        a, b = pattern.search(here), pattern.search(there)
        if a and (b is None or a.group() != b.group()):
            return kind
    return None


def _text(vocabulary: _Decoder, tokens: Sequence[int]) -> str:
    return vocabulary.decode(list(tokens)).decode("utf-8", "replace")
