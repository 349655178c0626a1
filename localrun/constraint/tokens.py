"""The tokens of a vocabulary as masks need them: their bytes, and which of them are no text.

Knows `TokenTable`; knows no llguidance. Invariant: a token without bytes and one that ends a generation are no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localrun.engine.ports import TokenTable


@dataclass(frozen=True, slots=True)
class VocabularyTokens:
    """All tokens of one vocabulary, in order of their ids."""

    pieces: Sequence[bytes] = field(repr=False)
    eog: tuple[int, ...]
    """The tokens that end a generation, in order."""
    no_text: tuple[int, ...] = field(repr=False)
    """Control, unknown, unused, empty and end tokens, in order: a grammar reaches them by their ids alone."""

    @classmethod
    def of(cls, table: TokenTable) -> VocabularyTokens:
        """Ask a table for all its tokens: 0.1 s for 49k of them, 0.5 s for 262k."""
        pieces = table.pieces()
        return cls(pieces, tuple(sorted(table.eog_ids)), tuple(_no_text(table, pieces)))


def _no_text(table: TokenTable, pieces: Sequence[bytes]) -> list[int]:
    eog = table.eog_ids
    known: frozenset[int] | None = getattr(table, "control_ids", None)
    if known is not None:  # asked in bulk where the table can tell
        return sorted({*known, *eog, *(token for token, piece in enumerate(pieces) if not piece)})
    is_control = table.is_control
    return [token for token, piece in enumerate(pieces) if not piece or token in eog or is_control(token)]
