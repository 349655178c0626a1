"""What all matchers of one vocabulary share: bit masks of tokens, and the table that turns a mask into limits.

Knows tokens as bytes and bits; knows no grammar. Masks are packed, one bit per token, the lowest bit first (as
llguidance writes them). Invariant: nothing here changes after it was made, so threads may share it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLTokenizer

Mask = npt.NDArray[np.uint8]  # (ceil(n_tokens / 8),)


@dataclass(frozen=True)
class MaskTables:
    """The tables of one vocabulary."""

    tokenizer: LLTokenizer = field(repr=False)
    pieces: Sequence[bytes] = field(repr=False)
    eog: tuple[int, ...]
    text: Mask = field(repr=False)
    """The tokens that are text."""
    byte_tokens: dict[int, int] = field(repr=False)
    """The token of each byte that has one of its own."""
    limits: npt.NDArray[np.float32] = field(repr=False)  # (256, 8): +inf where a bit of the index is set, else -inf

    @property
    def n_tokens(self) -> int:
        return len(self.pieces)

    @functools.cached_property
    def ends_string(self) -> Mask:
        """The tokens that begin with a quote, so they end a JSON string."""
        return pack(self.n_tokens, (i for i, piece in enumerate(self.pieces) if piece[:1] == b'"'))

    @functools.cached_property
    def ends_number(self) -> Mask:
        """The tokens that begin with what is no part of a JSON number."""
        number = frozenset(b"0123456789.eE+-")
        return pack(self.n_tokens, (i for i, piece in enumerate(self.pieces) if piece and piece[0] not in number))


def pack(n_tokens: int, tokens: Iterable[int]) -> Mask:
    """The mask of these tokens."""
    bits = np.zeros(n_tokens, dtype=bool)
    bits[np.fromiter(tokens, dtype=np.int64)] = True
    return np.packbits(bits, bitorder="little")


def make_tables(
    tokenizer: LLTokenizer, pieces: Sequence[bytes], eog: frozenset[int], no_text: Sequence[int]
) -> MaskTables:
    """The tables for a vocabulary of which `no_text` are the tokens that are no text."""
    hidden = set(no_text)
    bits = np.ones(len(pieces), dtype=bool)
    bits[list(no_text)] = False
    by_byte = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    limits = np.where(by_byte == 1, np.float32(np.inf), np.float32(-np.inf)).astype(np.float32)
    byte_tokens = {piece[0]: token for token, piece in enumerate(pieces) if len(piece) == 1 and token not in hidden}
    return MaskTables(tokenizer, pieces, tuple(sorted(eog)), np.packbits(bits, bitorder="little"), byte_tokens, limits)


def has(mask: Mask, token: int) -> bool:
    """Whether a token is in a mask."""
    return bool(mask[token >> 3] >> (token & 7) & 1)


def put(mask: Mask, token: int, *, allowed: bool) -> None:
    """Set or clear the bit of a token."""
    if allowed:
        mask[token >> 3] |= 1 << (token & 7)
    else:
        mask[token >> 3] &= 0xFF ^ (1 << (token & 7))
