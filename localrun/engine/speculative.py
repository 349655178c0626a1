"""Guessing the next tokens, so that one decode can verify several.

A guess is a fixed continuation, not a distribution. Each row is sampled as it would be without a guess; while the
sampled token is the guessed one, the next row counts too. That is the rejection rule of speculative sampling (Leviathan
et al., 2023) for a proposal that puts all its weight on one token: the distribution is exactly the target's, and with
the same seed the text is the text of plain decoding (as far as the backend computes a row in a batch as it does alone).

Knows token ids and measured times; knows no backend. Invariant: a guess never changes what is said, only when.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Protocol

from localrun.engine.ports import Backend, Decoded, Span
from localrun.engine.prefix_tree import common_prefix
from localrun.engine.sequence import Sequence
from localrun.params import SamplingParams


class Drafter(Protocol):
    """Guesses continuations."""

    def propose(self, sequence: Sequence, n: int) -> list[int]:
        """Up to `n` tokens that may follow `sequence.tokens`; none if it has no idea."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """The sequence is over."""
        ...

    def set_threads(self, decode: int, prefill: int) -> None:
        """The engine uses so many threads now: who computes should too."""
        ...


class NgramDrafter:
    """Prompt lookup (Saxena, 2023): what followed the last few tokens the last time they stood here."""

    LENGTHS = (4, 3, 2)
    """Of the runs that are looked for, the longest first: a longer match is more likely to go on the same way."""

    def __init__(self) -> None:
        self._indices: dict[int, _NgramIndex] = {}

    def propose(self, sequence: Sequence, n: int) -> list[int]:
        index = self._indices.setdefault(sequence.number, _NgramIndex(self.LENGTHS))
        index.extend(sequence.tokens)
        at = index.find(sequence.tokens)
        return sequence.tokens[at : at + n] if at is not None else []

    def forget(self, sequence: Sequence) -> None:
        self._indices.pop(sequence.number, None)

    def set_threads(self, decode: int, prefill: int) -> None:
        return


class ModelDrafter:
    """A smaller model with the same vocabulary, followed greedily. Uses its own backend, on the engine's thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free = list(range(backend.n_seq_max))
        self._slots: dict[int, int] = {}
        self._held: dict[int, list[int]] = {}
        """The tokens in the draft model's memory, by slot."""
        self._sampler = backend.sampler(SamplingParams(temperature=0), 0, [])

    def propose(self, sequence: Sequence, n: int) -> list[int]:
        if sequence.number not in self._slots and not self._free:
            return []
        slot = self._slots.setdefault(sequence.number, self._free[-1] if self._free else 0)
        if slot in self._free:
            self._free.remove(slot)
        row = self._follow(slot, sequence.tokens)
        draft: list[int] = []
        while row is not None and len(draft) < n:
            token = self._sampler.sample(row)
            if self._backend.table.is_eog(token):
                break
            draft.append(token)
            row = self._follow(slot, [*sequence.tokens, *draft]) if len(draft) < n else None
        return draft

    def forget(self, sequence: Sequence) -> None:
        slot = self._slots.pop(sequence.number, None)
        if slot is not None:
            self._backend.remove(slot, 0, -1)
            self._held.pop(slot, None)
            self._free.append(slot)

    def set_threads(self, decode: int, prefill: int) -> None:
        self._backend.set_threads(decode, prefill)

    def _follow(self, slot: int, tokens: Tokens[int]) -> int | None:
        """Bring the draft's memory up to `tokens`; the row of their last logits, None where there is no room."""
        held = self._held.get(slot, [])
        done = min(common_prefix(held, tokens), len(tokens) - 1)
        if done < len(held):
            self._backend.remove(slot, done, -1)
        while done < len(tokens):
            part = tokens[done : done + self._backend.n_batch]
            last = done + len(part) == len(tokens)
            if self._backend.decode([Span(slot, done, part, "last" if last else "none")]) is not Decoded.OK:
                self._held[slot] = list(tokens[:done])
                return None
            done += len(part)
        self._held[slot] = list(tokens)
        return len(part) - 1


class _NgramIndex:
    """Where each short run of tokens was seen last: the position behind it."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self._lengths = lengths
        self._behind: dict[tuple[int, ...], int] = {}
        self._n_seen = 0

    def extend(self, tokens: Tokens[int]) -> None:
        """Take in what came since the last call. The run at the very end is left for the next time."""
        if len(tokens) < self._n_seen:  # a shift dropped some
            self._behind.clear()
            self._n_seen = 0
        for end in range(max(1, self._n_seen), len(tokens)):
            for length in self._lengths:
                if end >= length:
                    self._behind[tuple(tokens[end - length : end])] = end
        self._n_seen = len(tokens)

    def find(self, tokens: Tokens[int]) -> int | None:
        """The position behind an earlier occurrence of the last tokens."""
        for length in self._lengths:
            if len(tokens) > length:
                at = self._behind.get(tuple(tokens[-length:]))
                if at is not None and at < len(tokens):
                    return at
        return None


@dataclass(slots=True)
class _Costs:
    """Measured seconds of a step by its number of rows."""

    seconds: dict[int, float] = field(default_factory=dict)

    # Measured on a CPU with Q4_0 (one decode of n tokens relative to one): used until this machine has spoken.
    _PRIOR = ((1, 1.0), (2, 1.6), (4, 2.3), (8, 3.6), (16, 5.6))

    def observe(self, n_rows: int, seconds: float) -> None:
        old = self.seconds.get(n_rows, seconds)
        self.seconds[n_rows] = old + (seconds - old) / 4

    def relative(self, n_rows: int) -> float:
        """The cost of `n_rows` in units of one row."""
        one = self.seconds.get(1)
        if one and n_rows in self.seconds:
            return self.seconds[n_rows] / one
        for (low, cost_low), (high, cost_high) in zip(self._PRIOR, self._PRIOR[1:], strict=False):
            if n_rows <= high:
                return cost_low + (cost_high - cost_low) * (n_rows - low) / (high - low)
        return self._PRIOR[-1][1] * n_rows / 16


class SpeculationGovernor:
    """How many tokens to guess: as many as pay on this machine, with this text; none when none do.

    The net gain of guessing k is (1 + expected accepted) / cost of k + 1 rows. When no k gains, it stays off and tries
    again now and then, at intervals that double while it keeps losing.
    """

    SIZES = (3, 7, 15)
    """Multiples of four rows, one of them not a guess, are what the kernels compute well."""
    _WORTH = 1.05
    _FIRST_PAUSE = 64
    _LONGEST_PAUSE = 1024

    def __init__(self) -> None:
        self._costs = _Costs()
        self._draft_s = 0.0
        """Seconds of guessing one token."""
        self._rate = 0.8  # of guessed tokens that were right: begin hopeful, learn fast
        self._pause = 0
        self._next_pause = self._FIRST_PAUSE

    def size(self) -> int:
        """How many tokens to guess now; 0 for none."""
        if 1 not in self._costs.seconds:
            return 0  # what plain decoding costs is measured first
        if self._pause > 0:
            self._pause -= 1
            return self.SIZES[0] if self._pause == 0 else 0
        best = max(self.SIZES, key=self.gain)
        if self.gain(best) >= self._WORTH:
            self._next_pause = self._FIRST_PAUSE
            return best
        self._pause = self._next_pause
        self._next_pause = min(2 * self._next_pause, self._LONGEST_PAUSE)
        return 0

    def gain(self, k: int) -> float:
        """Expected speed with guesses of `k` tokens, relative to plain decoding."""
        rate = min(self._rate, 0.999)
        accepted = rate * (1 - rate**k) / (1 - rate)
        one = self._costs.seconds.get(1)
        draft_cost = self._draft_s / one if one else 0.0
        return (1 + accepted) / (self._costs.relative(k + 1) + k * draft_cost)

    def learn(self, n_draft: int, n_accepted: int) -> None:
        """A guess of `n_draft` tokens was right for the first `n_accepted`."""
        # Accepted tokens are successes; the first wrong one, if any, is the one failure that was seen.
        trials = n_accepted + (1 if n_accepted < n_draft else 0)
        for i in range(trials):
            right = 1.0 if i < n_accepted else 0.0
            self._rate += (right - self._rate) / 16

    def observe_draft(self, n_draft: int, seconds: float) -> None:
        """Guessing `n_draft` tokens took `seconds`."""
        if n_draft:
            each = seconds / n_draft
            self._draft_s = self._draft_s + (each - self._draft_s) / 4 if self._draft_s else each

    def observe(self, n_rows: int, seconds: float) -> None:
        """A step of one sequence with `n_rows` rows took `seconds`."""
        self._costs.observe(n_rows, seconds)
