"""The state of one sequence inside a constraint.

Knows llguidance's matcher and arrays of logits; knows no model. Invariants: end-of-generation tokens are allowed
exactly where the output may end; tokens that are no text are allowed only where the grammar names them; a matcher that
llguidance gave up on raises instead of masking wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from localrun.constraint.closing import short_completion
from localrun.constraint.json_state import JsonState
from localrun.constraint.masking import Masking
from localrun.constraint.tables import Mask, MaskTables, has, put
from localrun.errors import ConstraintError, EngineError

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from localrun.engine.ports import Logits

MAX_STRING_BYTES = 20_000
"""A JSON string this long is ended, if the schema lets it end: a weak model would go on until the budget is spent."""
MAX_NUMBER_BYTES = 20
"""The same for a number."""

_NEAR = 48  # tokens of budget above the completion's length below which it is computed after every token
_STRIDE = 16  # tokens between two looks while the end of the budget is far
_MARGIN = 4  # tokens of budget kept free at least when closing begins


@dataclass(slots=True)
class _Closing:
    """When to look next whether the output can still be completed, and how fast that length has grown."""

    next_look: int = 1 << 62
    length: int | None = None
    largest_jump: int = 0


class TokenMatcher:
    """A `Matcher` on top of llguidance. Owned by one sequence; not shared between threads."""

    def __init__(
        self, inner: LLMatcher, tables: MaskTables, named: tuple[int, ...], *, json: bool, closes: bool, name: str
    ) -> None:
        self._inner = inner
        self._tables = tables
        self._named = named
        """Tokens the grammar names; allowed where it says so even if they are no text."""
        self._json = json
        self._closes = closes
        self._name = name
        self._mask = np.zeros(4 * ((tables.n_tokens + 31) // 32), dtype=np.uint8)
        self._masking = Masking(tables)
        self._states = [JsonState()]  # one for each accepted token, for JSON only
        self._closing = _Closing()

    def allowed(self) -> Mask:
        """The mask of the next token. Valid until the next call."""
        tables = self._tables
        self._inner.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        if self._inner.is_error():
            raise EngineError(f"{self._name}: the constraint became too complex: {self._inner.get_error()[:200]}")
        mask = self._mask[: len(tables.text)]
        kept = [token for token in self._named if has(mask, token)]
        np.bitwise_and(mask, tables.text, out=mask)
        for token in kept:
            put(mask, token, allowed=True)
        if self._json:
            self._end_what_is_too_long(mask)
        may_end = self.may_end
        for token in tables.eog:
            put(mask, token, allowed=may_end)
        return mask

    def mask(self, logits: Logits) -> None:
        """Set the logits of all tokens that may not come next to -inf, in place.

        Raises `EngineError` when nothing at all may come next.
        """
        mask = self.allowed()
        if not mask.any():
            raise EngineError(f"{self._name}: no token of this model's vocabulary can continue the output")
        self._masking.apply(logits, mask)

    def accept(self, token: int) -> None:
        if token in self._tables.eog and token not in self._named:
            if not self.may_end:
                raise ConstraintError(f"{self._name}: the output may not end here")
            return
        if not self._inner.consume_token(token):
            raise ConstraintError(f"{self._name}: the token {token} does not fit: {self._inner.get_error()[:200]}")
        if self._json:
            self._states.append(self._states[-1].after(self._tables.pieces[token]))

    def forced(self) -> list[int]:
        if self.must_end:
            return []
        eog = self._tables.eog
        return [token for token in self._inner.compute_ff_tokens() if token not in eog]

    def rollback(self, n: int) -> None:
        if n <= 0:
            return
        if not self._inner.rollback(n):
            raise EngineError(f"{self._name}: could not take back {n} tokens: {self._inner.get_error()[:200]}")
        if self._json:
            del self._states[len(self._states) - n :]
        self._closing = _Closing()

    def fork(self) -> TokenMatcher:
        inner = self._inner.deep_copy()
        copy = TokenMatcher(inner, self._tables, self._named, json=self._json, closes=self._closes, name=self._name)
        copy._states = list(self._states)
        copy._closing = replace(self._closing)
        return copy

    @property
    def may_end(self) -> bool:
        return self._inner.is_accepting()

    @property
    def must_end(self) -> bool:
        return self._inner.is_stopped()

    def closing(self, budget: int) -> list[int] | None:
        """See `Matcher.closing`. Costs a comparison while the end of the budget is far.

        The completion is computed now and then, and after every token when it comes near the budget. Some tokens are
        kept free, as many as the completion has ever grown by at once, so that one token cannot make it too long.
        """
        watch = self._closing
        if not self._closes or budget > watch.next_look or self.must_end:
            return None
        tables = self._tables
        completion = short_completion(self._inner, tables.tokenizer, tables.byte_tokens, self._states[-1], budget)
        if not completion:
            watch.next_look = budget - _STRIDE
            return None
        if watch.length is not None:
            watch.largest_jump = max(watch.largest_jump, len(completion) - watch.length)
        watch.length = len(completion)
        spare = budget - len(completion)
        watch.next_look = budget - (1 if spare <= _NEAR + watch.largest_jump else _STRIDE)
        return completion if 0 <= spare <= _MARGIN + watch.largest_jump else None

    def _end_what_is_too_long(self, mask: Mask) -> None:
        """Keep only tokens that end the string or number being written, if it is too long and may end."""
        state = self._states[-1]
        tables = self._tables
        limit, ends = (
            (MAX_STRING_BYTES, tables.ends_string) if state.in_string else (MAX_NUMBER_BYTES, tables.ends_number)
        )
        if state.run < limit:
            return
        ending = mask & ends
        if ending.any():
            mask[:] = ending
        elif not state.in_string and self.may_end:
            mask[:] = 0  # a number alone: the end itself is what may follow
