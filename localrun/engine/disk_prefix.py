"""When blocks of the disk cache are read, and when they are written, for memories that can be cut into blocks.

Knows sequences, the backend's blocks and the store; knows no files. Invariants: a restored prefix is exactly the one
that would have been computed, at least one token is left to compute, and reading costs nothing where nothing is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from collections.abc import Sequence as Seq

from localrun.engine.events import Diverged
from localrun.engine.kv_store import Key, KVStore, Sibling
from localrun.engine.pieces import reusable
from localrun.engine.ports import Backend, Block
from localrun.engine.sequence import Sequence
from localrun.errors import EngineError

logger = logging.getLogger(__name__)

_WORTH_A_STOP = 128
"""Tokens that take longer to compute again than to save, also with others waiting."""


class DiskPrefix:
    """Reads and writes the prefixes of sequences."""

    def __init__(self, backend: Backend, store: KVStore) -> None:
        self._backend = backend
        self._store = store
        self._usable = True

    def restore(self, sequence: Sequence) -> int:
        """Put what the disk has of a sequence's prompt into its slot; returns how many tokens that added.

        Sets `n_computed` and `n_cached_disk`. Call once, after the slot was leased and before anything is computed.
        """
        if not self._usable:
            return 0
        size, tokens = self._store.block_tokens, sequence.tokens
        most = reusable(len(tokens), len(tokens), self._backend.n_tail)
        keys = self._store.keys(tokens[:most])
        # With a window, the last cells of the prefix must be complete: the whole of it comes from the disk.
        first = 0 if self._backend.memory_kind == "window" else sequence.n_computed // size
        present = first + self._store.n_present(keys[first:])
        if present * size <= sequence.n_computed + size // 2:
            return 0
        # Beyond the whole blocks, the prompt may begin as a stored block does that goes on in another way.
        rest = tokens[present * size : min((present + 1) * size, most)]
        sibling = self._store.closest(self._store.past(keys, present), rest)
        known = present * size + (sibling.n_common if sibling is not None else 0)
        stop = reusable(known, len(tokens), self._backend.n_tail)
        if stop <= sequence.n_computed:
            return 0
        blocks = self._blocks(keys[first:present], tokens[first * size : present * size], sibling)
        before = sequence.n_computed
        self._backend.remove(sequence.slot, first * size, -1)
        try:
            restored = self._backend.restore_blocks(sequence.slot, first * size, blocks, stop)
        except EngineError as error:
            logger.warning("a cached prefix was refused by the engine: %s", error)
            for key in [*keys[first:present], *([sibling.key] if sibling is not None else [])]:
                self._store.drop(key)
            restored = 0
        sequence.n_computed = first * size + restored
        sequence.n_cached_ram = min(before, sequence.n_computed)
        sequence.n_cached_disk = max(0, sequence.n_computed - before)
        return sequence.n_cached_disk

    def save(self, sequence: Sequence, *, others_wait: bool = False) -> None:
        """Write what the disk does not have of a sequence's computed tokens.

        Taking them out of the memory holds everybody up for tens of milliseconds, however few they are: while
        `others_wait`, a little is left to the next time.
        """
        if not self._usable or not sequence.cacheable or sequence.slot < 0:
            return
        size = self._store.block_tokens
        n_blocks = sequence.n_computed // size
        keys = self._store.keys(sequence.tokens[: n_blocks * size])
        first = self._store.n_present(keys)
        if (n_blocks - first) * size < (_WORTH_A_STOP if others_wait else 1):
            return
        try:
            blocks = self._backend.save_blocks(sequence.slot, first * size, n_blocks * size, size)
        except EngineError as error:
            # An engine whose state is laid out in another way: the answer matters more than the cache.
            logger.warning("the prefix cache on disk is off: %s", error)
            self._usable = False
            return
        for i, block in enumerate(blocks, first):
            self._store.save(keys[i], sequence.tokens[i * size : (i + 1) * size], block)

    def computed(self, sequence: Sequence, *, prefilling: bool) -> None:
        """Look at a sequence after each decode: blocks must be saved before a window moves on."""
        if prefilling and self._backend.memory_kind == "window":
            self.save(sequence)

    def divergence(self, sequence: Sequence) -> Diverged | None:
        """Where this prompt left the closest one that is stored; None where it continues or starts something new."""
        size, tokens = self._store.block_tokens, sequence.tokens
        keys = self._store.keys(tokens)
        n = self._store.n_present(keys)
        if not self._usable or n >= len(keys):
            return None
        here = list(tokens[n * size : (n + 1) * size])
        sibling = self._store.closest(keys[n].parent, here)
        if sibling is None:
            return None
        there = sibling.tokens
        common = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), len(here))
        return Diverged(n * size + common, tuple(here[common:]), tuple(there[common:])) if n or common else None

    def close(self) -> None:
        """Wait until everything is written."""
        self._store.close()

    @property
    def problems(self) -> list[str]:
        return self._store.counters.problems

    def new_problems(self) -> list[str]:
        """What went wrong since this was asked last; never a reason to fail."""
        return self._store.new_problems()

    def _blocks(self, keys: Seq[Key], tokens: Seq[int], sibling: Sibling | None) -> Iterator[Block]:
        """The blocks of `keys` and, if none of them is damaged, the one that goes on like the prompt."""
        missing = len(keys)
        for block in self._store.load(keys, tokens):
            missing -= 1
            yield block
        if sibling is not None and sibling.n_common:
            last = self._store.load_sibling(sibling)
            if last is not None and not missing:
                yield last
