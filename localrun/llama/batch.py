"""The rows of one decode, as llama.cpp wants them.

Knows the C struct; knows no policy. Invariant: it owns the arrays, and never holds more rows than it was made for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from localrun.engine.ports import Span


class Batch:
    """Reusable rows: tokens, positions, one sequence id each, and which rows give logits."""

    def __init__(self, lib: Any, capacity: int, n_seq_max: int) -> None:
        self.capacity = capacity
        self._tokens = (ctypes.c_int32 * capacity)()
        self._positions = (ctypes.c_int32 * capacity)()
        self._n_seq_ids = (ctypes.c_int32 * capacity)(*([1] * capacity))
        self._outputs = (ctypes.c_int8 * capacity)()
        # A row points to its list of sequence ids; every list we use has one member, so one cell per sequence serves.
        self._ids = (ctypes.c_int32 * n_seq_max)(*range(n_seq_max))
        pointer = ctypes.POINTER(ctypes.c_int32)
        base = ctypes.addressof(self._ids)
        width = ctypes.sizeof(ctypes.c_int32)
        self._id_pointers = [ctypes.cast(base + width * seq, pointer) for seq in range(n_seq_max)]
        self._seq_ids = (pointer * capacity)()
        self.struct = lib.llama_batch(
            n_tokens=0,
            token=self._tokens,
            embd=None,
            pos=self._positions,
            n_seq_id=self._n_seq_ids,
            seq_id=self._seq_ids,
            logits=self._outputs,
        )

    def fill(self, spans: Sequence[Span]) -> int:
        """Replace the rows by those of `spans`; returns how many there are."""
        row = 0
        for span in spans:
            count = len(span.tokens)
            end = row + count
            assert 0 < count <= self.capacity - row, "a plan is never empty or larger than the batch"
            self._tokens[row:end] = list(span.tokens)
            self._positions[row:end] = list(range(span.start, span.start + count))
            self._seq_ids[row:end] = [self._id_pointers[span.seq]] * count
            if span.logits == "all":
                self._outputs[row:end] = [1] * count
            else:
                self._outputs[row:end] = [0] * count
                self._outputs[end - 1] = span.logits == "last"
            row = end
        self.struct.n_tokens = row
        return row
