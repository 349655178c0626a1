"""Setting the logits of forbidden tokens to -inf.

Knows masks and arrays of logits; knows no grammar. Looking up a limit for each token of the vocabulary passes over two
arrays as long as the logits. Inside a string the same mask comes back token after token, and it forbids few: then only
those are touched. Invariant: whichever way is taken, exactly the tokens outside the mask are -inf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from localrun.constraint.tables import Mask, MaskTables

if TYPE_CHECKING:
    from localrun.engine.ports import Logits

_KEPT = 16
"""Masks that are remembered; each takes 8 bytes for up to a quarter of the vocabulary."""


class Masking:
    """Applies masks for one sequence."""

    def __init__(self, tables: MaskTables) -> None:
        self._tables = tables
        self._limits = np.empty((len(tables.text), 8), dtype=np.float32)
        self._ways: dict[bytes, Callable[[Logits], None] | None] = {}
        """What to do for a mask that came twice; None for one that came once. The oldest goes first."""

    def apply(self, logits: Logits, mask: Mask) -> None:
        """Set the logits of all tokens outside `mask` to -inf, in place."""
        key = mask.tobytes()
        way = self._ways.get(key)
        if way is not None:
            way(logits)
            return
        self._look_up(logits, mask)
        self._ways[key] = self._way(mask.copy(), len(logits)) if key in self._ways else None
        if len(self._ways) > _KEPT:
            del self._ways[next(iter(self._ways))]

    def _look_up(self, logits: Logits, mask: Mask) -> None:
        # With "clip" there is no copy on the way to `out`; every byte is a row, so nothing is clipped.
        np.take(self._tables.limits, mask, axis=0, out=self._limits, mode="clip")
        np.minimum(logits, self._limits.reshape(-1)[: len(logits)], out=logits)

    def _way(self, mask: Mask, n_tokens: int) -> Callable[[Logits], None]:
        """The cheapest way to apply a mask again."""
        allowed = np.unpackbits(mask, count=n_tokens, bitorder="little").view(np.bool_)
        n_allowed = int(np.count_nonzero(allowed))
        if n_tokens - n_allowed <= n_tokens // 4:
            return partial(_forbid, np.flatnonzero(~allowed))
        if n_allowed <= n_tokens // 4:
            return partial(_allow, np.flatnonzero(allowed))
        return lambda logits: self._look_up(logits, mask)


def _forbid(tokens: npt.NDArray[np.intp], logits: Logits) -> None:
    logits[tokens] = -np.inf


def _allow(tokens: npt.NDArray[np.intp], logits: Logits) -> None:
    kept = logits[tokens]
    logits.fill(-np.inf)
    logits[tokens] = kept
