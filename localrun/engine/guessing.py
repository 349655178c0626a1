"""Guesses on their way through a step: asked for, computed with it, kept or taken back.

Knows drafters, the governor of guessing and the backend's memory; knows no slots. Invariant: after a step, a
sequence's memory holds nothing that its tokens do not say.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from localrun.engine.choosing import Chooser
from localrun.engine.events import FinishReason
from localrun.engine.ports import Backend
from localrun.engine.scheduler import Work
from localrun.engine.sequence import Sequence
from localrun.engine.speculative import Drafter, SpeculationGovernor


class Guessing:
    """Speculation of one engine. Does nothing without a drafter."""

    def __init__(self, backend: Backend, drafter: Drafter | None, chooser: Chooser) -> None:
        self._backend = backend
        # A window forgets what a wrong guess has pushed out of it, a running state cannot step back.
        self._drafter = drafter if backend.memory_kind == "full" else None
        self._chooser = chooser
        self.governor = SpeculationGovernor()

    def drafts(self, running: Iterable[Sequence]) -> dict[int, list[int]]:
        """Guessed continuations by sequence number, for those that wait for one token and where guessing pays."""
        if self._drafter is None:
            return {}
        drafts = {}
        for sequence in running:
            size = min(self._limit(sequence), self.governor.size()) if self._may_guess(sequence) else 0
            if size > 0:
                started = time.perf_counter()
                draft = self._drafter.propose(sequence, size)
                self.governor.observe_draft(len(draft), time.perf_counter() - started)
                if draft:
                    drafts[sequence.number] = draft
        return drafts

    def verify(self, work: Work) -> FinishReason | None:
        """Take the guessed tokens that the model would have chosen itself, and the first one that it would not.

        Returns why the sequence ends, if it does.
        """
        sequence, n_pending = work.sequence, len(work.span.tokens) - work.n_draft
        draft = work.span.tokens[n_pending:]
        sequence.n_computed += n_pending
        sequence.n_uncertain = work.n_draft
        sequence.n_draft += work.n_draft
        n_accepted = 0
        reason: FinishReason | None = None
        for i, row in enumerate(range(work.row + n_pending - 1, work.last_row + 1)):
            token = self._chooser.choose(sequence, row)
            sequence.times.last_token = time.perf_counter()
            n_tokens = len(sequence.tokens)
            right = i < work.n_draft and token == draft[i]
            if right:  # it is in the memory already
                n_accepted += 1
                sequence.n_draft_accepted += 1
                sequence.n_computed += 1
                sequence.n_uncertain -= 1
            reason = self._chooser.take(sequence, token)
            # What a token forced stands where the next guess was: the guesses behind it are for another text.
            if not right or reason is not None or len(sequence.tokens) != n_tokens + 1:
                break
        self.take_back(sequence)
        self.governor.learn(work.n_draft, n_accepted)
        return reason

    def take_back(self, sequence: Sequence) -> None:
        """Drop guessed tokens from the memory that did not come true."""
        if sequence.n_uncertain and sequence.slot >= 0:
            self._backend.remove(sequence.slot, sequence.n_computed, -1)
        sequence.n_uncertain = 0

    def observe(self, works: list[Work], seconds: float) -> None:
        """A step took `seconds`: what rows cost is learned from those of a single sequence."""
        if len(works) == 1 and not works[0].sequence.prefilling:
            self.governor.observe(len(works[0].span.tokens), seconds)

    def forget(self, sequence: Sequence) -> None:
        """The sequence is over."""
        self.take_back(sequence)
        if self._drafter is not None:
            self._drafter.forget(sequence)

    def set_threads(self, decode: int, prefill: int) -> None:
        if self._drafter is not None:
            self._drafter.set_threads(decode, prefill)

    def _may_guess(self, sequence: Sequence) -> bool:
        return not sequence.prefilling and sequence.pending == 1 and sequence.params.logprobs is None

    def _limit(self, sequence: Sequence) -> int:
        """How many guesses fit before the context or the token limit ends."""
        room = self._backend.n_ctx_seq - len(sequence.tokens)
        return room if sequence.n_left is None else min(room, sequence.n_left - 1)
