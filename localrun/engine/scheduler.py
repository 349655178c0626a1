"""Which tokens the next decode computes: continuous batching with chunked prefill.

Knows running sequences and measured times; knows no memory and no text. Invariants: a plan never exceeds the batch,
every running sequence that waits for its next token is in it, and while somebody waits, prompts only take so many rows
that the step stays short.

Sources: Orca's iteration-level scheduling (Yu et al., 2022) and Sarathi's chunked prefill (Agrawal et al., 2024).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from localrun.engine.pieces import GROUP, next_piece
from localrun.engine.ports import Span
from localrun.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence's part of a plan. `row` is the number of its first row in the batch."""

    sequence: Sequence
    span: Span
    row: int
    n_draft: int = 0
    """How many of the span's last tokens are guesses."""

    @property
    def last_row(self) -> int:
        return self.row + len(self.span.tokens) - 1

    @property
    def completes(self) -> bool:
        """Whether nothing is pending after it: a token can be chosen."""
        return self.span.logits != "none"


class ChunkBudget:
    """How many prompt tokens may ride along while others wait for their next token.

    A step of decodes alone takes some time; with a chunk it may take `STRETCH` times that, so the time between the
    tokens of running sequences stays within that factor.
    """

    STRETCH = 2.5
    SMALLEST = 16

    def __init__(self) -> None:
        self._decode_s = 0.0
        self._token_s = 0.0

    def observe(self, n_prefill: int, n_decode: int, seconds: float) -> None:
        """Learn from a step that took `seconds`."""
        if n_prefill == 0:
            self._decode_s = _smooth(self._decode_s, seconds)
        elif n_decode == 0:
            self._token_s = _smooth(self._token_s, seconds / n_prefill)
        elif seconds > self._decode_s:
            self._token_s = _smooth(self._token_s, (seconds - self._decode_s) / n_prefill)

    def tokens(self) -> int:
        """The chunk for a step that also decodes."""
        if not self._decode_s or not self._token_s:
            return self.SMALLEST
        return max(self.SMALLEST, int((self.STRETCH - 1) * self._decode_s / self._token_s))


class Scheduler:
    """Plans steps of at most `n_batch` rows; a prompt is computed in chunks of at most `n_chunk` tokens."""

    def __init__(self, n_batch: int, n_chunk: int, n_tail: int = GROUP) -> None:
        """`n_tail` is the least length of a prompt's last chunk, if the prompt has so many tokens."""
        self._n_batch = n_batch
        self._n_chunk = min(n_chunk, n_batch)
        self._n_tail = n_tail
        self._budget = ChunkBudget()

    def plan(self, running: Iterable[Sequence], drafts: dict[int, list[int]] | None = None) -> list[Work]:
        """The work of the next step: sequences that wait for a token first, then chunks of prompts.

        `drafts` holds guessed continuations by sequence number, for sequences with one pending token.
        """
        works: list[Work] = []
        row = 0
        ordered = sorted(running, key=lambda s: (-s.params.priority, s.number))
        decoding = [s for s in ordered if not s.prefilling]
        for sequence in decoding:
            draft = (drafts or {}).get(sequence.number, [])
            room = self._n_batch - row
            if room <= 0:
                break
            work = _work(sequence, row, min(sequence.pending, room), draft[: max(0, room - sequence.pending)])
            works.append(work)
            row += len(work.span.tokens)
        chunk = min(self._n_chunk, self._budget.tokens()) if decoding else self._n_chunk
        room = min(self._n_batch - row, chunk)
        n_decoding = len(works)
        for sequence in ordered:
            if room <= 0 or (room < GROUP and len(works) > n_decoding):
                break
            if sequence.prefilling:
                work = _work(sequence, row, next_piece(_chunk(sequence), room, self._n_tail), [])
                works.append(work)
                row += len(work.span.tokens)
                room -= len(work.span.tokens)
        return works

    def observe(self, works: list[Work], seconds: float) -> None:
        """Learn how long a plan took."""
        n_prefill = sum(len(w.span.tokens) for w in works if w.sequence.prefilling)
        n_decode = sum(not w.sequence.prefilling for w in works)
        self._budget.observe(n_prefill, n_decode, seconds)


def _chunk(sequence: Sequence) -> int:
    """How many tokens of a prompt may be computed in one go."""
    to_end = sequence.chunk_end - sequence.n_computed
    return min(sequence.pending, to_end) if to_end > 0 else sequence.pending


def _work(sequence: Sequence, row: int, count: int, draft: list[int]) -> Work:
    start = sequence.n_computed
    whole = count == sequence.pending
    tokens = sequence.tokens[start : start + count]
    if not whole:
        return Work(sequence, Span(sequence.slot, start, tokens, "none"), row)
    if draft:
        return Work(sequence, Span(sequence.slot, start, tokens + draft, "all"), row, len(draft))
    return Work(sequence, Span(sequence.slot, start, tokens, "last"), row)


def _smooth(old: float, new: float) -> float:
    # A quarter of the news at a time: follows a change of load within a few steps, rides out a single hiccup.
    return new if not old else old + (new - old) / 4
