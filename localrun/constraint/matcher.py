"""The state of one sequence inside a constraint.

Knows llguidance's matcher and arrays of logits; knows no model. Invariants: end-of-generation tokens are allowed
exactly where the output may end; tokens that are no text are allowed only where the grammar names them; a matcher that
llguidance gave up on raises instead of masking wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from localrun.constraint.closing import short_completion
from localrun.errors import ConstraintError, EngineError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from localrun.engine.ports import Logits

_NEAR = 48  # tokens of budget above the completion's length below which it is computed after every token
_STRIDE = 16  # tokens between two looks while the end of the budget is far
_MARGIN = 4  # tokens of budget kept free at least when closing begins


@dataclass(frozen=True, slots=True)
class MaskTables:
    """What all matchers of one vocabulary share."""

    tokenizer: LLTokenizer
    n_tokens: int
    eog: tuple[int, ...]
    text: npt.NDArray[np.uint8]  # (ceil(n_tokens / 8),) one bit per token: it is text
    byte_tokens: dict[int, int]
    """The token of each byte that has one of its own."""
    limits: npt.NDArray[np.float32]  # (256, 8) by byte of a mask: +inf where the bit is set, -inf where not


def mask_tables(tokenizer: LLTokenizer, pieces: Sequence[bytes], eog: frozenset[int], no_text: list[int]) -> MaskTables:
    """Precompute the tables. A byte of a mask indexes eight upper limits: one lookup and one minimum mask a row."""
    n_tokens = len(pieces)
    bits = np.ones(n_tokens, dtype=bool)
    bits[no_text] = False
    by_byte = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    limits = np.where(by_byte == 1, np.float32(np.inf), np.float32(-np.inf)).astype(np.float32)
    hidden = set(no_text)
    byte_tokens = {piece[0]: token for token, piece in enumerate(pieces) if len(piece) == 1 and token not in hidden}
    text = np.packbits(bits, bitorder="little")
    return MaskTables(tokenizer, n_tokens, tuple(sorted(eog)), text, byte_tokens, limits)


@dataclass(slots=True)
class _Closing:
    """When to look next whether the output can still be completed, and how fast that length has grown."""

    next_look: int = 1 << 62
    length: int | None = None
    largest_jump: int = 0


class TokenMatcher:
    """A `Matcher` on top of llguidance. Owned by one sequence; not shared between threads."""

    def __init__(
        self, inner: LLMatcher, tables: MaskTables, named: tuple[int, ...], *, closes: bool, name: str
    ) -> None:
        self._inner = inner
        self._tables = tables
        self._named = named
        """Tokens the grammar names; allowed where it says so even if they are no text."""
        self._closes = closes
        self._name = name
        words = (tables.n_tokens + 31) // 32
        self._mask = np.zeros(4 * words, dtype=np.uint8)
        self._limits = np.empty((len(tables.text), 8), dtype=np.float32)
        self._taken: list[int] = []
        self._closing = _Closing()

    def allowed(self) -> npt.NDArray[np.uint8]:
        """The mask of the next token, one bit per token (little-endian bits). Valid until the next call."""
        tables = self._tables
        self._inner.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._raise_on_error()
        mask = self._mask[: len(tables.text)]
        kept = [token for token in self._named if mask[token >> 3] >> (token & 7) & 1]
        np.bitwise_and(mask, tables.text, out=mask)
        for token in kept:
            mask[token >> 3] |= 1 << (token & 7)
        may_end = self.may_end
        for token in tables.eog:
            if may_end:
                mask[token >> 3] |= 1 << (token & 7)
            else:
                mask[token >> 3] &= 0xFF ^ (1 << (token & 7))
        return mask

    def mask(self, logits: Logits) -> None:
        """Set the logits of all tokens that may not come next to -inf, in place.

        Raises `EngineError` when nothing at all may come next.
        """
        mask = self.allowed()
        if not mask.any():
            raise EngineError(f"{self._name}: no token of this model's vocabulary can continue the output")
        np.take(self._tables.limits, mask, axis=0, out=self._limits)
        np.minimum(logits, self._limits.reshape(-1)[: len(logits)], out=logits)

    def accept(self, token: int) -> None:
        if token in self._tables.eog:
            if not self.may_end:
                raise ConstraintError(f"{self._name}: the output may not end here")
            return
        if not self._inner.consume_token(token):
            raise ConstraintError(f"{self._name}: the token {token} does not fit: {self._inner.get_error()}")
        self._taken.append(token)

    def forced(self) -> list[int]:
        if self.must_end:
            return []
        eog = self._tables.eog
        return [token for token in self._inner.compute_ff_tokens() if token not in eog]

    def rollback(self, n: int) -> None:
        if n and not self._inner.rollback(n):
            raise EngineError(f"{self._name}: could not take back {n} tokens: {self._inner.get_error()}")
        del self._taken[len(self._taken) - n :]
        self._closing = _Closing()

    def fork(self) -> TokenMatcher:
        copy = TokenMatcher(self._inner.deep_copy(), self._tables, self._named, closes=self._closes, name=self._name)
        copy._taken = list(self._taken)
        copy._closing = replace(self._closing)
        return copy

    @property
    def may_end(self) -> bool:
        return self._inner.is_accepting()

    @property
    def must_end(self) -> bool:
        return self._inner.is_stopped()

    def closing(self, budget: int) -> list[int] | None:
        """See `Matcher.closing`. Costs nothing but a comparison while the end of the budget is far."""
        watch = self._closing
        if not self._closes or budget > watch.next_look or self.must_end:
            return None
        text = self._tables.tokenizer.decode_bytes(self._taken)
        completion = short_completion(self._inner, self._tables.tokenizer, self._tables.byte_tokens, text, budget)
        if completion is None or not completion:
            watch.next_look = budget - 1
            return None
        spare = budget - len(completion)
        if watch.length is not None:
            watch.largest_jump = max(watch.largest_jump, len(completion) - watch.length)
        watch.length = len(completion)
        watch.next_look = budget - (1 if spare <= _NEAR + watch.largest_jump else _STRIDE)
        return completion if 0 <= spare <= _MARGIN + watch.largest_jump else None

    def _raise_on_error(self) -> None:
        if self._inner.is_error():
            raise EngineError(f"{self._name}: the constraint became too complex: {self._inner.get_error()[:200]}")
