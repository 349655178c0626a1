"""Texts of a chat template inside a constraint: special tokens that are written in them are meant.

Knows token tables and llguidance's notation; knows no template. Invariant: a text matches the tokens that it would have
in a prompt, up to one that ends the generation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localrun.engine.ports import TokenTable


def any_of(texts: Sequence[str], table: TokenTable | None) -> tuple[str, tuple[int, ...]]:
    """One of some texts as the body of a rule, and the ids that it names. Without a table all of it is plain text."""
    named: set[int] = set()
    bodies = [json.dumps(text) if table is None else _with_tokens(text, table, named) for text in texts]
    return " | ".join(dict.fromkeys(bodies)), tuple(sorted(named))


def _with_tokens(text: str, table: TokenTable, named: set[int]) -> str:
    parts: list[str] = []
    position = 0
    for token in table.encode(text.encode(), special=True):
        ends = token in table.eog_ids
        written = table.piece(token).decode(errors="replace") if ends or table.is_control(token) else ""
        start = text.find(written, position) if written else -1
        if start < 0:
            continue
        if start > position:
            parts.append(json.dumps(text[position:start]))
        position = start + len(written)
        if ends:
            return " ".join(parts) or '""'
        parts.append(f"<[{token}]>")
        named.add(token)
    if position < len(text):
        parts.append(json.dumps(text[position:]))
    return " ".join(parts)
