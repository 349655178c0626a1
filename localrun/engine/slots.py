"""The backend's sequence ids: free, running, or idle and kept for their prefix.

Knows which slot holds which tokens and which was used last; knows no requests. Invariant: a slot is in exactly one of
the three states, and an idle slot's tokens are exactly those in its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localrun.engine.pieces import reusable
from localrun.engine.ports import Backend
from localrun.engine.prefix_tree import Match, PrefixTree

_SPARE_TOKENS = 128
_SHARE_ON_DISK = 1 / 16
_SHARE = 1.0
"""What idle slots alone may hold while others run, in tokens: so many, or this share of what runs. More where there is
no disk to get it back from."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot for a new sequence, with `n_cached` tokens of its prompt already in its memory."""

    slot: int
    n_cached: int


class Slots:
    """Hands out slots with as much of a prompt in them as is known."""

    def __init__(self, backend: Backend, n_running_max: int, n_reserved: int = 0) -> None:
        """The last `n_reserved` ids are left alone, for whoever saves and restores blocks."""
        self._backend = backend
        self._tree = PrefixTree()
        self._free = list(range(backend.n_seq_max - n_reserved - 1, -1, -1))
        self._idle: dict[int, None] = {}
        """Least recently used first."""
        self._running: set[int] = set()
        self._n_running_max = n_running_max
        # A running state is no cell: it costs nobody anything.
        self._spare_share = 0.0 if backend.memory_kind == "state" else _SHARE_ON_DISK if n_reserved else _SHARE

    @property
    def full(self) -> bool:
        """Whether as many sequences run as may."""
        return len(self._running) >= self._n_running_max

    @property
    def n_idle(self) -> int:
        return len(self._idle)

    @property
    def tree(self) -> PrefixTree:
        return self._tree

    def match(self, tokens: Sequence[int]) -> int:
        """How many of the first `tokens` a lease would find."""
        return self._usable(tokens)[0]

    def lease(self, tokens: Sequence[int]) -> Lease:
        """A slot for `tokens`; at least one token is left to compute. Call only while not `full`."""
        length, source = self._usable(tokens)
        if self._n_running_max == 1:
            return self._lease_alone(tokens, length, source)
        if source is not None and source in self._idle and length == len(self._tree.held(source)):
            del self._idle[source]
            self._running.add(source)
            return Lease(source, length)
        slot = self._take(keep=source)
        if source is not None and slot != source:
            self._backend.copy(source, slot, 0, length)
            self._touch(source)
        elif source is not None:
            self._backend.remove(slot, length, -1)
        self._tree.set(slot, tokens[:length])
        self._running.add(slot)
        self._trim()
        return Lease(slot, length)

    def _lease_alone(self, tokens: Sequence[int], length: int, source: int | None) -> Lease:
        """The only sequence has the memory to itself: the found prefix is cut to size, everything else goes.

        So its cells lie as in a fresh memory, and its logits are those of a cold run bit for bit: kernels add up in
        the order of cells. What is dropped here is on disk, if there is a disk cache.
        """
        for slot in [slot for slot in self._idle if slot != source]:
            del self._idle[slot]
            self._drop(slot)
        if source is None:
            source = self._free.pop()
        else:
            del self._idle[source]
            if length < len(self._tree.held(source)):
                self._backend.remove(source, length, -1)
        self._tree.set(source, tokens[:length])
        self._running.add(source)
        return Lease(source, length)

    def record(self, slot: int, tokens: Sequence[int]) -> None:
        """`slot` has `tokens` in its memory now: others may share them."""
        self._tree.set(slot, tokens)

    def release(self, slot: int, tokens: Sequence[int] | None) -> None:
        """The sequence is over. Its memory is kept for its prefix, or dropped where `tokens` is None."""
        self._running.discard(slot)
        if tokens:
            self._tree.set(slot, tokens)
            self._idle[slot] = None
        else:
            self._drop(slot)
        self._trim()

    def evict(self, *, sharing: int | None = None) -> bool:
        """Drop the least recently used idle slot; with `sharing`, only one that shares tokens with that slot.

        False where there is none.
        """
        for slot in self._idle:
            if sharing is None or self._shares(slot, sharing):
                del self._idle[slot]
                self._drop(slot)
                return True
        return False

    def clear(self) -> None:
        """Drop every idle slot."""
        while self.evict():
            pass

    def _trim(self) -> None:
        """Drop idle slots until what only they hold is little beside what runs.

        Attention reads every cell for every row, also those of others, to mask them: on a CPU, eight sequences of 600
        tokens beside six idle ones with 90 tokens of their own lose a sixth to a quarter of their rate. What is dropped
        comes back from disk within tens of milliseconds.
        """
        if not self._running or not self._spare_share:
            return
        spare = self._tree.n_tokens_outside(self._running)
        limit = max(_SPARE_TOKENS, self._spare_share * (self._tree.n_tokens() - spare))
        while self._idle and spare > limit:
            self.evict()
            spare = self._tree.n_tokens_outside(self._running)

    def _usable(self, tokens: Sequence[int]) -> tuple[int, int | None]:
        """The longest prefix that can really be continued, and the slot that has it."""
        match = self._tree.match(tokens)
        n_tail = self._backend.n_tail
        if self._backend.memory_kind != "state":
            length = reusable(match.length, len(tokens), n_tail)
            for slot in self._by_preference(match, length):
                if length and self._holds_window(slot, length):
                    return length, slot
        if self._backend.memory_kind == "full":
            return 0, None
        # A running state cannot step back, nor can a window that has moved on: they go on from exactly where they are.
        length = min(match.length, len(tokens) - (1 if self._backend.memory_kind == "state" else n_tail))
        for slot in self._by_preference(match, length):
            if length > 0 and slot in self._idle and len(self._tree.held(slot)) == length:
                return length, slot
        return 0, None

    def _holds_window(self, slot: int, length: int) -> bool:
        """Whether the window before position `length` is whole: going on without it would be silently wrong."""
        if self._backend.memory_kind != "window":
            return True
        return self._backend.first_position(slot) <= max(0, length - self._backend.n_window)

    def _by_preference(self, match: Match, length: int) -> list[int]:
        """Idle slots that end exactly here first (they can be taken over), then any, in a stable order."""

        def rank(slot: int) -> tuple[bool, int]:
            exact = slot in self._idle and len(self._tree.held(slot)) == length
            return (not exact, slot)

        return sorted(match.slots, key=rank)

    def _take(self, keep: int | None) -> int:
        if self._free:
            return self._free.pop()
        for slot in self._idle:
            if slot != keep:
                del self._idle[slot]
                self._drop(slot)
                return self._free.pop()
        assert keep in self._idle, "a slot is free whenever fewer run than may"
        del self._idle[keep]
        return keep

    def _touch(self, slot: int) -> None:
        if slot in self._idle:
            del self._idle[slot]
            self._idle[slot] = None

    def _drop(self, slot: int) -> None:
        self._backend.remove(slot, 0, -1)
        self._tree.remove(slot)
        self._free.append(slot)

    def _shares(self, slot: int, other: int) -> bool:
        a, b = self._tree.held(slot), self._tree.held(other)
        return bool(a and b and a[0] == b[0])
