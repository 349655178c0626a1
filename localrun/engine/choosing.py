"""From a row of logits to the tokens that a sequence goes on with.

Knows one sequence's helpers (sampler, matcher, output) and the vocabulary; knows no slots and no plan. Invariants: a
token is sampled from what the constraint allows, what a token forces follows it at once, and the first reason to end
ends it.
"""

from __future__ import annotations

from localrun.engine.events import FinishReason, Notice
from localrun.engine.likelihood import Likelihood, certain
from localrun.engine.ports import Backend
from localrun.engine.sequence import Sequence


class Chooser:
    """Chooses and appends tokens. Holds no state of its own."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._table = backend.table

    def open_sampler(self, sequence: Sequence) -> None:
        """Give the sequence its sampler, which knows the prompt where that matters."""
        params = sequence.params
        banned = sorted(self._table.eog_ids) if params.ignore_eos else []
        sequence.sampler = self._backend.sampler(params.sampling, sequence.seed, banned)
        if params.sampling.uses_history:
            for token in sequence.tokens:
                sequence.sampler.accept(token)

    def choose(self, sequence: Sequence, row: int) -> int:
        """Sample a token from row `row` of the last decode."""
        assert sequence.sampler is not None, "a running sequence has a sampler"
        n_top = sequence.params.logprobs
        likelihood = Likelihood(self._backend.logits(row), n_top) if n_top is not None else None
        if sequence.matcher is not None and sequence.output.constrained:
            sequence.matcher.mask(self._backend.logits(row))
        token = sequence.sampler.sample(row)
        if likelihood is not None and not self._table.is_eog(token):
            sequence.notify(likelihood.of(token, self._table))
        return token

    def take(self, sequence: Sequence, token: int) -> FinishReason | None:
        """Go on with a sampled token and with whatever it forces; returns why the sequence ends, if it does."""
        if self._table.is_eog(token) and not sequence.params.ignore_eos:
            return "stop"
        return self._append(sequence, token) or self.take_forced(sequence, self._forced(sequence))

    def take_forced(self, sequence: Sequence, forced: list[int]) -> FinishReason | None:
        """Go on with tokens that nobody chose, and with whatever they force."""
        assert sequence.sampler is not None, "a running sequence has a sampler"
        while forced:
            for token in forced:
                sequence.sampler.accept(token)
                if sequence.params.logprobs is not None:
                    sequence.notify(certain(token, self._table))
                if (reason := self._append(sequence, token)) is not None:
                    return reason
            forced = self._forced(sequence)
        return None

    def closing(self, sequence: Sequence) -> list[int]:
        """Tokens that complete the output where the limit only just leaves room for them; else none."""
        matcher, n_left = sequence.matcher, sequence.n_left
        if matcher is None or n_left is None or not sequence.output.constrained:
            return []
        closing = matcher.closing(n_left)
        if not closing:
            return []
        sequence.notify(Notice("closed", "the token limit came near, so the value was closed early"))
        return closing

    def _append(self, sequence: Sequence, token: int) -> FinishReason | None:
        constrained = sequence.matcher is not None and sequence.output.constrained
        sequence.tokens.append(token)
        sequence.generated.append(token)
        sequence.output.push(token, self._table.piece(token), self._table.is_control(token))
        if sequence.output.stopped is not None:
            return "stop_string"
        if constrained and sequence.matcher is not None:
            sequence.matcher.accept(token)
            sequence.n_constrained += 1
            if sequence.matcher.must_end:
                return "stop"
        return "length" if sequence.n_left == 0 else None

    def _forced(self, sequence: Sequence) -> list[int]:
        """Tokens that must come next whatever the model says."""
        if text := sequence.output.forced_text():
            return self._table.encode(text, special=True)
        matcher = sequence.matcher
        if matcher is None or not sequence.output.constrained:
            return []
        return matcher.forced() or self.closing(sequence)
