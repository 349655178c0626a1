"""States of models that cannot be cut into blocks, on disk: what to keep of a prompt, and when.

A recurrent model's memory is one running state, which belongs to one position and can only be continued from there (a
hybrid one has keys and values beside it). So whole states are kept, at positions that another prompt is likely to
share: near the end of a prompt, once more well before it (where a document ends and a question begins is not known),
and near the end of the answer, where the next turn goes on.

Knows sequences, the backend's states and the store; knows no files. Invariants: a state is used only for exactly its
tokens, at least one token is left to compute, and a prompt is cut at the same positions whether its state is there or
not, so that the answer does not depend on it.
"""

from __future__ import annotations

import logging

from localrun.engine.events import Diverged
from localrun.engine.kv_block import LARGEST_PAYLOAD
from localrun.engine.kv_store import KVStore
from localrun.engine.ports import Backend, Block
from localrun.engine.sequence import Sequence
from localrun.errors import EngineError

logger = logging.getLogger(__name__)

_WORTH_KEEPING = 64
"""Tokens: a shorter prompt is computed faster than its state is read."""
_QUESTION = 128
"""Tokens that the changing end of a prompt may have: a state lies before so many."""
_COARSE = 512
"""That state lies at a multiple of this, so that questions of different length find the same one."""
_LARGEST_COPY = 64 << 20
"""Bytes of a state that is copied now and then while an answer is written."""


class DiskStates:
    """Reads and writes the states of sequences. Has the same methods as `DiskPrefix`."""

    def __init__(self, backend: Backend, store: KVStore) -> None:
        self._backend = backend
        self._store = store
        self._usable = True
        self._copies = True

    def restore(self, sequence: Sequence) -> int:
        """Put the longest state of a sequence's prompt into its slot; returns how many tokens that added.

        Sets `n_computed` and `n_cached_disk`. Call once, after the slot was leased and before anything is computed.
        """
        sequence.chunk_end = self._next_stop(sequence)
        size, tokens, before = self._store.block_tokens, sequence.tokens, sequence.n_computed
        keys = self._store.keys(tokens[:-1])
        for n in range(len(keys), before // size, -1):
            if not self._usable or not self._store.has(keys[n - 1]):
                continue
            state = self._store.load_state(keys[n - 1], tokens[: n * size])
            if state is None:
                continue
            self._backend.remove(sequence.slot, 0, -1)
            restored = self._backend.restore_state(sequence.slot, state)
            if not restored or self._backend.last_position(sequence.slot) != n * size - 1:
                logger.warning("a cached state was refused by the engine")
                self._store.drop(keys[n - 1])
                self._backend.remove(sequence.slot, 0, -1)
                restored = False
            sequence.n_computed = n * size if restored else 0
            sequence.n_cached_ram = min(before, sequence.n_computed)
            sequence.n_cached_disk = sequence.n_computed - sequence.n_cached_ram
            sequence.chunk_end = self._next_stop(sequence)
            return sequence.n_cached_disk
        return 0

    def computed(self, sequence: Sequence, *, prefilling: bool) -> None:
        """Look at a sequence after each decode: here may be a state to keep."""
        sequence.chunk_end = self._next_stop(sequence)
        at = sequence.n_computed
        if not self._usable or not sequence.cacheable or at % self._store.block_tokens or at < _WORTH_KEEPING:
            return
        if prefilling and at in self._stops(sequence):
            self._write(sequence, at, None)
        elif not prefilling and self._copies:
            state = self._state(sequence)
            if state is not None and len(state) <= _LARGEST_COPY:
                sequence.kept_state = (at, state)
            else:
                self._copies = False

    def save(self, sequence: Sequence, *, others_wait: bool = False) -> None:
        """Write the last state of the answer, if it was kept."""
        if sequence.kept_state is not None and sequence.cacheable:
            self._write(sequence, *sequence.kept_state)
        sequence.kept_state = None

    def divergence(self, _sequence: Sequence) -> Diverged | None:
        """Nothing: a state tells nothing of the tokens inside it."""
        return None

    def close(self) -> None:
        """Wait until everything is written."""
        self._store.close()

    @property
    def problems(self) -> list[str]:
        return self._store.counters.problems

    def new_problems(self) -> list[str]:
        """What went wrong since this was asked last; never a reason to fail."""
        return self._store.new_problems()

    def _stops(self, sequence: Sequence) -> list[int]:
        """Positions in the prompt whose state is kept, in order."""
        last, size = sequence.n_prompt - 1, self._store.block_tokens
        stops = {max(0, last - _QUESTION) // _COARSE * _COARSE, last // size * size}
        return sorted(stop for stop in stops if stop >= _WORTH_KEEPING)

    def _next_stop(self, sequence: Sequence) -> int:
        return next((stop for stop in self._stops(sequence) if stop > sequence.n_computed), 0)

    def _write(self, sequence: Sequence, at: int, state: Block | None) -> None:
        key = self._store.keys(sequence.tokens[:at])[-1]
        if self._store.has(key):
            return
        state = state or self._state(sequence)
        if state is not None and len(state) <= LARGEST_PAYLOAD:
            self._store.save(key, sequence.tokens[:at], state)

    def _state(self, sequence: Sequence) -> Block | None:
        try:
            return self._backend.save_state(sequence.slot)
        except EngineError as error:  # the answer matters more than the cache
            logger.warning("the prefix cache on disk is off: %s", error)
            self._usable = False
            return None
