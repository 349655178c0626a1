"""One step at a time: plan, decode, choose, report.

Knows sequences, slots and the scheduler; knows no thread, no C and no text. Invariants: a failure of one sequence
never touches another, "no room" never fails anybody while something can be evicted or deferred, and what a sequence
says does not depend on who ran beside it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Tokens
from contextlib import suppress
from typing import TYPE_CHECKING

from localrun.engine.disk_prefix import DiskPrefix
from localrun.engine.events import Failed, Finished, FinishReason, Notice, Progress
from localrun.engine.likelihood import Likelihood, certain, log_softmax
from localrun.engine.overflow import shift, truncate_middle
from localrun.engine.ports import Backend, Decoded, Span
from localrun.engine.prefix_tree import common_prefix
from localrun.engine.scheduler import Scheduler, Work
from localrun.engine.sequence import Sequence, Status
from localrun.engine.slots import Slots
from localrun.engine.speculative import Drafter, SpeculationGovernor
from localrun.engine.threads import ThreadGovernor
from localrun.errors import ContextOverflowError, EngineError, LocalrunError
from localrun.params import OverflowPolicy

if TYPE_CHECKING:
    from localrun.engine.likelihood import LogProbs

# Waiting for another prompt's prefix pays when it saves more than a chunk's worth of rows.
_WORTH_WAITING = 32


class Engine:
    """Runs sequences on a backend. One thread calls it."""

    def __init__(
        self,
        backend: Backend,
        *,
        n_parallel: int,
        n_chunk: int = 512,
        governor: ThreadGovernor | None = None,
        disk: DiskPrefix | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        """With `disk`, the backend's last sequence id belongs to it and is never leased."""
        self._backend = backend
        self._disk = disk
        # A window forgets what a wrong guess has pushed out of it, a running state cannot step back.
        self._drafter = drafter if backend.memory_kind == "full" else None
        self._speculation = SpeculationGovernor()
        self._governor = governor
        self._table = backend.table
        self._slots = Slots(backend, n_parallel, n_reserved=1 if disk is not None else 0)
        self._scheduler = Scheduler(backend.n_batch, n_chunk)
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._arrived = 0
        self._crowded = False
        """The memory was too small for all who ran: nobody is admitted until somebody has left."""

    # what callers do ----------------------------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. Its owner hears of everything else, errors included, through `sequence.notify`."""
        self._arrived += 1
        sequence.number = self._arrived
        try:
            self._fit(sequence)
            if sequence.params.max_tokens == 0:
                self._finish(sequence, "length")
                return
            self._waiting.append(sequence)
            self._waiting.sort(key=lambda s: (-s.params.priority, s.number))
        except LocalrunError as error:
            self._fail(sequence, error)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._waiting)

    @property
    def all_stopping(self) -> bool:
        """Whether everybody who runs was told to stop: then a decode may be aborted. Any thread may ask."""
        return all(sequence.stop_request for sequence in list(self._running))

    def step(self) -> None:
        """Advance every running sequence by at most one decode."""
        self._backend.clear_abort()
        self._end_stopped()
        self._admit()
        works = self._scheduler.plan(self._running, self._drafts())
        if not works:
            return
        if self._governor is not None and self._governor.update():
            counts = self._governor.threads, self._governor.threads_prefill
            self._backend.set_threads(*counts)
            if self._drafter is not None:
                self._drafter.set_threads(*counts)
        started = time.perf_counter()
        for work in works:
            work.sequence.times.started = work.sequence.times.started or started
        try:
            outcome = self._backend.decode([work.span for work in works])
        except EngineError as error:
            self._fail_all(works, error)
            return
        if outcome is Decoded.NO_ROOM:
            self._make_room(works)
        elif outcome is Decoded.ABORTED:
            self._resync(works)
        else:
            self._observe(works, time.perf_counter() - started)
            for work in works:
                self._advance(work)

    def everybody(self) -> list[Sequence]:
        """All sequences that have not ended."""
        return [*self._running, *self._waiting]

    def _observe(self, works: list[Work], seconds: float) -> None:
        self._scheduler.observe(works, seconds)
        if len(works) == 1 and not works[0].sequence.prefilling:
            self._speculation.observe(len(works[0].span.tokens), seconds)
        if self._governor is not None:
            self._governor.observe(sum(len(work.span.tokens) for work in works), seconds)

    def _drafts(self) -> dict[int, list[int]]:
        """Guesses for the sequences that wait for one token, where guessing pays."""
        if self._drafter is None:
            return {}
        drafts = {}
        for sequence in self._running:
            room = self._backend.n_ctx_seq - len(sequence.tokens)
            left = sequence.n_left
            limit = room if left is None else min(room, left - 1)
            if sequence.prefilling or sequence.pending != 1 or limit <= 0 or sequence.params.logprobs is not None:
                continue
            size = min(limit, self._speculation.size())
            if size > 0:
                started = time.perf_counter()
                draft = self._drafter.propose(sequence, size)
                self._speculation.observe_draft(len(draft), time.perf_counter() - started)
                if draft:
                    drafts[sequence.number] = draft
        return drafts

    def next_logprobs(self, tokens: Tokens[int]) -> LogProbs:
        """Log-probabilities of all tokens after `tokens`, without any sampler. Call between steps.

        Whatever prefix is in the memory is reused, and `tokens` stay there for the next call.
        """
        lease = self._slots.lease(tokens)
        done = lease.n_cached
        try:
            while done < len(tokens):
                part = tokens[done : done + self._backend.n_batch]
                last = done + len(part) == len(tokens)
                span = Span(lease.slot, done, part, "last" if last else "none")
                if self._backend.decode([span]) is not Decoded.OK:
                    raise EngineError("the memory has no room to compare the choices", hint="take a larger --ctx")
                done += len(part)
            return log_softmax(self._backend.logits(len(part) - 1))
        finally:
            self._slots.release(lease.slot, tokens[:done])

    def forget_prefixes(self) -> None:
        """Drop everything that is kept for reuse only."""
        self._slots.clear()

    def close(self) -> None:
        """End everything that runs or waits as interrupted."""
        for sequence in self.everybody():
            self._finish(sequence, "interrupted")

    # admission ----------------------------------------------------------------------------------------------------

    def _fit(self, sequence: Sequence) -> None:
        """Apply the overflow policy to a prompt that is longer than the context."""
        if not sequence.tokens:
            raise EngineError("the prompt has no tokens")
        limit = self._backend.n_ctx_seq
        if len(sequence.tokens) <= limit:
            return
        if sequence.params.on_overflow is OverflowPolicy.ERROR:
            enough = len(sequence.tokens) + 512
            raise ContextOverflowError(
                f"the prompt has {len(sequence.tokens):,} tokens, the context holds {limit:,}",
                hint=f"--ctx {enough} makes it larger; --on-overflow truncate-middle cuts the prompt",
            )
        sequence.notify(truncate_middle(sequence, limit))

    def _end_stopped(self) -> None:
        for sequence in self.everybody():
            if reason := sequence.stop_request:
                self._finish(sequence, reason)

    def _admit(self) -> None:
        if self._crowded and self._running:
            return
        self._crowded = False
        for sequence in list(self._waiting):
            if self._slots.full:
                return
            if self._better_wait(sequence):
                continue
            try:
                lease = self._slots.lease(sequence.tokens)
                sequence.slot, sequence.n_computed = lease.slot, lease.n_cached
                sequence.n_cached_ram = min(lease.n_cached, sequence.n_prompt)
                self._restore(sequence)
                if sequence.sampler is None:
                    self._open_sampler(sequence)
            except LocalrunError as error:
                self._fail(sequence, error)
                continue
            self._waiting.remove(sequence)
            self._running.append(sequence)
            sequence.status = Status.RUNNING
            sequence.notify(Progress(sequence.n_computed, sequence.n_prompt, sequence.n_cached))

    def _restore(self, sequence: Sequence) -> None:
        """Take what the disk has beyond the memory."""
        if self._disk is None:
            return
        if sequence.explain and (diverged := self._disk.divergence(sequence)):
            sequence.notify(diverged)
        if self._disk.restore(sequence):
            self._slots.record(sequence.slot, sequence.tokens[: sequence.n_computed])

    def _better_wait(self, sequence: Sequence) -> bool:
        """Whether a running prompt is about to compute a long beginning of this one."""
        known = -1
        for other in self._running:
            if not other.prefilling:
                continue
            shared = min(common_prefix(sequence.tokens, other.tokens), len(sequence.tokens) - 1)
            if shared <= other.n_computed or shared < _WORTH_WAITING:
                continue
            known = self._slots.match(sequence.tokens) if known < 0 else known
            if shared >= known + _WORTH_WAITING:
                return True
        return False

    def _open_sampler(self, sequence: Sequence) -> None:
        params = sequence.params
        banned = sorted(self._table.eog_ids) if params.ignore_eos else []
        sequence.sampler = self._backend.sampler(params.sampling, sequence.seed, banned)
        if params.sampling.uses_history:
            for token in sequence.tokens:
                sequence.sampler.accept(token)

    # after a decode -----------------------------------------------------------------------------------------------

    def _advance(self, work: Work) -> None:
        sequence = work.sequence
        if work.n_draft:
            self._verify(work)
            return
        was_prefilling = sequence.prefilling
        sequence.n_computed += len(work.span.tokens)
        if was_prefilling:
            sequence.notify(Progress(min(sequence.n_computed, sequence.n_prompt), sequence.n_prompt, sequence.n_cached))
            if sequence.cacheable:
                self._slots.record(sequence.slot, sequence.tokens[: sequence.n_computed])
                if self._disk is not None and self._disk.saves_while_computing:
                    self._disk.save(sequence)
        if not work.completes:
            return
        try:
            # The budget may be so small that even the first token has to head for the end.
            closing = self._closing(sequence) if sequence.n_generated == 0 else []
            token = None if closing else self._choose(sequence, work.last_row)
            now = time.perf_counter()
            sequence.times.first_token = sequence.times.first_token or now
            sequence.times.last_token = now
            self._take(sequence, token, closing)
        except LocalrunError as error:
            self._fail(sequence, error)

    def _verify(self, work: Work) -> None:
        """Take the guessed tokens that the model would have chosen itself, and the first one that it would not."""
        sequence, n_pending = work.sequence, len(work.span.tokens) - work.n_draft
        draft = work.span.tokens[n_pending:]
        sequence.n_computed += n_pending
        sequence.n_uncertain = work.n_draft
        sequence.n_draft += work.n_draft
        n_accepted = 0
        try:
            for i, row in enumerate(range(work.row + n_pending - 1, work.last_row + 1)):
                token = self._choose(sequence, row)
                sequence.times.last_token = time.perf_counter()
                n_tokens = len(sequence.tokens)
                right = i < work.n_draft and token == draft[i]
                if right:  # it is in the memory already
                    n_accepted += 1
                    sequence.n_draft_accepted += 1
                    sequence.n_computed += 1
                    sequence.n_uncertain -= 1
                self._take(sequence, token, [])
                if not right or sequence.status is Status.FINISHED or len(sequence.tokens) != n_tokens + 1:
                    break
        except LocalrunError as error:
            self._fail(sequence, error)
        self._forget_uncertain(sequence)
        self._speculation.learn(work.n_draft, n_accepted)

    def _forget_uncertain(self, sequence: Sequence) -> None:
        """Drop guessed tokens from the memory that did not come true."""
        if sequence.n_uncertain and sequence.slot >= 0:
            self._backend.remove(sequence.slot, sequence.n_computed, -1)
        sequence.n_uncertain = 0

    def _choose(self, sequence: Sequence, row: int) -> int:
        assert sequence.sampler is not None, "a running sequence has a sampler"
        n_top = sequence.params.logprobs
        likelihood = Likelihood(self._backend.logits(row), n_top) if n_top is not None else None
        if sequence.matcher is not None and sequence.output.constrained:
            sequence.matcher.mask(self._backend.logits(row))
        token = sequence.sampler.sample(row)
        if likelihood is not None and not self._table.is_eog(token):
            sequence.notify(likelihood.of(token, self._table))
        return token

    def _take(self, sequence: Sequence, token: int | None, forced: list[int]) -> None:
        """The sequence goes on with a sampled token (or `forced` ones), and with whatever that forces."""
        reason: FinishReason | None = None
        if token is not None:
            if self._table.is_eog(token) and not sequence.params.ignore_eos:
                self._finish(sequence, "stop")
                return
            reason = self._append(sequence, token)
            forced = self._forced(sequence) if reason is None else []
        while reason is None and forced:
            for token in forced:
                assert sequence.sampler is not None
                sequence.sampler.accept(token)
                if sequence.params.logprobs is not None:
                    sequence.notify(certain(token, self._table))
                reason = self._append(sequence, token)
                if reason is not None:
                    break
            forced = self._forced(sequence) if reason is None else []
        if reason is None and len(sequence.tokens) > self._backend.n_ctx_seq:
            reason = self._overflow(sequence)
        if reason is not None:
            self._finish(sequence, reason)

    def _append(self, sequence: Sequence, token: int) -> FinishReason | None:
        """Add one token; returns why the sequence ends with it, if it does."""
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
        return matcher.forced() or self._closing(sequence)

    def _closing(self, sequence: Sequence) -> list[int]:
        """Tokens that complete the output where the limit only just leaves room for them."""
        matcher, n_left = sequence.matcher, sequence.n_left
        if matcher is None or n_left is None or not sequence.output.constrained:
            return []
        closing = matcher.closing(n_left)
        if not closing:
            return []
        sequence.notify(Notice("closed", "the token limit came near, so the value was closed early"))
        return closing

    def _overflow(self, sequence: Sequence) -> FinishReason | None:
        if sequence.params.on_overflow is not OverflowPolicy.SHIFT:
            return "context"
        shared = self._slots.tree.shared_length(sequence.slot)
        while shared and self._slots.evict(sharing=sequence.slot):
            shared = self._slots.tree.shared_length(sequence.slot)
        self._slots.tree.remove(sequence.slot)
        notice = shift(sequence, self._backend, may_move=shared == 0)
        if notice is not None:
            sequence.notify(notice)
        return None

    # trouble ------------------------------------------------------------------------------------------------------

    def _make_room(self, works: list[Work]) -> None:
        """The memory is full: drop a cached prefix, else send the youngest sequence back to the queue."""
        if self._slots.evict():
            return
        if len(self._running) > 1:
            youngest = max(self._running, key=lambda s: (-s.params.priority, s.number))
            self._running.remove(youngest)
            self._slots.release(youngest.slot, None)
            youngest.slot, youngest.n_computed, youngest.status = -1, 0, Status.WAITING
            self._waiting.insert(0, youngest)
            self._crowded = True
            return
        error = EngineError(
            f"the memory of {self._backend.n_cells:,} tokens has no room for a batch of one sequence",
            hint="take a larger --ctx",
        )
        self._fail_all(works, error)

    def _resync(self, works: list[Work]) -> None:
        """After an aborted decode: what is in the memory is what was computed."""
        for work in works:
            sequence = work.sequence
            sequence.n_computed = max(work.span.start, self._backend.last_position(sequence.slot) + 1)

    def _fail_all(self, works: list[Work], error: LocalrunError) -> None:
        for work in works:
            self._fail(work.sequence, error)

    # the end ------------------------------------------------------------------------------------------------------

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        with suppress(ValueError):
            self._waiting.remove(sequence)
        sequence.output.finish()
        if sequence.output.stopped is not None:
            reason = "stop_string"
        self._forget_uncertain(sequence)
        self._announce_end(sequence, reason)
        # After the last word: saving the memory delays nobody who reads it.
        if self._disk is not None:
            self._disk.save(sequence)
        self._leave(sequence)

    def _announce_end(self, sequence: Sequence, reason: FinishReason) -> None:
        times, end = sequence.times, time.perf_counter()
        started = times.started or end
        first = times.first_token or end
        sequence.notify(
            Finished(
                reason=reason,
                tokens=tuple(sequence.generated),
                n_prompt=sequence.n_prompt,
                n_cached_ram=sequence.n_cached_ram,
                n_cached_disk=sequence.n_cached_disk,
                n_draft=sequence.n_draft,
                n_draft_accepted=sequence.n_draft_accepted,
                wait_s=started - times.submitted,
                prefill_s=first - started,
                decode_s=max(0.0, times.last_token - first) if times.first_token else 0.0,
                n_context=len(sequence.tokens),
            )
        )

    def _fail(self, sequence: Sequence, error: LocalrunError) -> None:
        with suppress(ValueError):
            self._waiting.remove(sequence)
        self._leave(sequence, keep=False)
        sequence.notify(Failed(error))

    def _leave(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Give back the slot and the sampler. The computed tokens stay for their prefix where they may."""
        self._crowded = False
        self._forget_uncertain(sequence)
        if self._drafter is not None:
            self._drafter.forget(sequence)
        sequence.status = Status.FINISHED
        if sequence.sampler is not None:
            sequence.sampler.close()
            sequence.sampler = None
        if sequence.slot >= 0:
            kept: Tokens[int] | None = sequence.tokens[: sequence.n_computed]
            self._slots.release(sequence.slot, kept if keep and sequence.cacheable else None)
            sequence.slot = -1
        with suppress(ValueError):
            self._running.remove(sequence)
