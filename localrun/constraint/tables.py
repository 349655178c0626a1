"""What all matchers of one vocabulary share: bit masks of tokens, and the table that turns a mask into limits.

Knows tokens as bytes and bits; knows no grammar. Masks are packed, one bit per token, the lowest bit first (as
llguidance writes them). Invariant: nothing here changes after it was made, so threads may share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from localrun.constraint.tokens import VocabularyTokens

if TYPE_CHECKING:
    from llguidance import LLTokenizer

Mask = npt.NDArray[np.uint8]  # (ceil(n_tokens / 8),)

_NUMBER = b"0123456789.eE+-"


@dataclass(frozen=True)
class MaskTables:
    """The tables of one vocabulary."""

    tokenizer: LLTokenizer = field(repr=False)
    pieces: Sequence[bytes] = field(repr=False)
    eog: tuple[int, ...]
    text: Mask = field(repr=False)
    """The tokens that are text."""
    ends_string: Mask = field(repr=False)
    """The tokens that begin with a quote, so they end a JSON string."""
    ends_number: Mask = field(repr=False)
    """The tokens that begin with what is no part of a JSON number."""
    byte_tokens: dict[int, int] = field(repr=False)
    """The token of each byte that has one of its own."""
    limits: npt.NDArray[np.float32] = field(repr=False)  # (256, 8): +inf where a bit of the index is set, else -inf

    @property
    def n_tokens(self) -> int:
        return len(self.pieces)


def make_tables(tokens: VocabularyTokens, tokenizer: LLTokenizer) -> MaskTables:
    """The tables for a vocabulary, and what llguidance made of it."""
    pieces, n_tokens = tokens.pieces, len(tokens.pieces)
    is_text = np.ones(n_tokens, dtype=bool)
    is_text[list(tokens.no_text)] = False
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=n_tokens)
    # A zero at the end gives a last token without bytes something to begin with.
    first = np.frombuffer(b"".join(pieces) + b"\0", dtype=np.uint8)[np.cumsum(lengths) - lengths]
    alone = np.flatnonzero((lengths == 1) & is_text)
    by_byte = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return MaskTables(
        tokenizer=tokenizer,
        pieces=pieces,
        eog=tokens.eog,
        text=_pack(is_text),
        ends_string=_pack((lengths > 0) & (first == ord('"'))),
        ends_number=_pack((lengths > 0) & ~np.isin(first, np.frombuffer(_NUMBER, dtype=np.uint8))),
        byte_tokens=dict(zip(first[alone].tolist(), alone.tolist(), strict=True)),
        limits=np.where(by_byte == 1, np.float32(np.inf), np.float32(-np.inf)).astype(np.float32),
    )


def _pack(bits: npt.NDArray[np.bool_]) -> Mask:
    """The mask of the tokens whose bit is set."""
    return np.packbits(bits, bitorder="little")


def has(mask: Mask, token: int) -> bool:
    """Whether a token is in a mask."""
    return bool(mask[token >> 3] >> (token & 7) & 1)


def put(mask: Mask, token: int, *, allowed: bool) -> None:
    """Set or clear the bit of a token."""
    if allowed:
        mask[token >> 3] |= 1 << (token & 7)
    else:
        mask[token >> 3] &= 0xFF ^ (1 << (token & 7))
