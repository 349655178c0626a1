"""One step at a time: plan, decode, choose, report.

Knows sequences, slots and the scheduler; knows no thread, no C and no text. Invariants: a failure of one sequence
never touches another, "no room" never fails anybody while something can be evicted or deferred, and what a sequence
says does not depend on who ran beside it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence as Tokens
from contextlib import suppress
from typing import TYPE_CHECKING

from localrun.engine.choosing import Chooser
from localrun.engine.disk_prefix import DiskPrefix
from localrun.engine.disk_states import DiskStates
from localrun.engine.events import Failed, Finished, FinishReason, Notice, Progress
from localrun.engine.guessing import Guessing
from localrun.engine.likelihood import log_softmax
from localrun.engine.overflow import shift, too_long, truncate_middle
from localrun.engine.ports import Backend, Decoded, Span
from localrun.engine.prefix_tree import common_prefix
from localrun.engine.scheduler import Scheduler, Work
from localrun.engine.sequence import Sequence, Status
from localrun.engine.slots import Slots
from localrun.engine.speculative import Drafter
from localrun.engine.threads import ThreadGovernor
from localrun.errors import EngineError, LocalrunError
from localrun.params import OverflowPolicy

if TYPE_CHECKING:
    from localrun.engine.likelihood import LogProbs

logger = logging.getLogger(__name__)

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
        disk: DiskPrefix | DiskStates | None = None,
        drafter: Drafter | None = None,
        trained: int = 0,
    ) -> None:
        """With `disk`, the backend's last sequence id belongs to it and is never leased.

        `trained` is the longest context that the model was trained for; 0 where that is not known.
        """
        self._trained = trained
        self._backend = backend
        self._disk = disk
        self._governor = governor
        self._table = backend.table
        self._chooser = Chooser(backend)
        self._guessing = Guessing(backend, drafter, self._chooser)
        self._slots = Slots(backend, n_parallel, n_reserved=1 if disk is not None else 0)
        self._scheduler = Scheduler(backend.n_batch, n_chunk, backend.n_tail)
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
        except Exception as error:  # of one sequence: the others go on
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
        works = self._scheduler.plan(self._running, self._guessing.drafts(self._running))
        if not works:
            return
        if self._governor is not None and self._governor.update():
            counts = self._governor.threads, self._governor.threads_prefill
            self._backend.set_threads(*counts)
            self._guessing.set_threads(*counts)
        started = time.perf_counter()
        for work in works:
            work.sequence.times.started = work.sequence.times.started or started
        try:
            outcome = self._backend.decode([work.span for work in works])
        except LocalrunError as error:
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
        self._guessing.observe(works, seconds)
        if self._governor is not None:
            self._governor.observe(sum(len(work.span.tokens) for work in works), seconds)

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
                outcome = self._backend.decode([span])
                if outcome is Decoded.NO_ROOM:
                    raise EngineError("the memory has no room to compare the choices", hint="take a larger --ctx")
                if outcome is Decoded.ABORTED:
                    raise EngineError("comparing the choices was interrupted")
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
            raise too_long(len(sequence.tokens), limit, self._trained)
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
                    self._chooser.open_sampler(sequence)
            except Exception as error:  # of one sequence: the others go on
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
        leased = sequence.n_computed
        self._disk.restore(sequence)
        for line in self._disk.new_problems():
            sequence.notify(Notice("cache", line))
        if sequence.n_computed != leased:
            self._slots.record(sequence.slot, sequence.tokens[: sequence.n_computed])

    def _better_wait(self, sequence: Sequence) -> bool:
        """Whether a running prompt is about to compute a long beginning of this one."""
        known = -1
        for other in self._running:
            if not other.prefilling or sequence.tokens[:_WORTH_WAITING] != other.tokens[:_WORTH_WAITING]:
                continue
            shared = min(common_prefix(sequence.tokens, other.tokens), len(sequence.tokens) - 1)
            if shared <= other.n_computed:
                continue
            known = self._slots.match(sequence.tokens) if known < 0 else known
            if shared >= known + _WORTH_WAITING:
                return True
        return False

    # after a decode -----------------------------------------------------------------------------------------------

    def _advance(self, work: Work) -> None:
        sequence = work.sequence
        if work.n_draft:
            try:
                self._go_on(sequence, self._guessing.verify(work))
            except Exception as error:  # of one sequence: the others go on
                self._fail(sequence, error)
            return
        was_prefilling = sequence.prefilling
        sequence.n_computed += len(work.span.tokens)
        if was_prefilling:
            sequence.notify(Progress(min(sequence.n_computed, sequence.n_prompt), sequence.n_prompt, sequence.n_cached))
            if sequence.cacheable:
                self._slots.record(sequence.slot, sequence.tokens[: sequence.n_computed])
        if self._disk is not None:
            self._disk.computed(sequence, prefilling=was_prefilling)
        if not work.completes:
            return
        try:
            self._go_on(sequence, self._reason(work))
        except Exception as error:  # of one sequence: the others go on
            self._fail(sequence, error)

    def _reason(self, work: Work) -> FinishReason | None:
        """Choose the sequence's next tokens; why it ends with them, if it does."""
        sequence = work.sequence
        # The budget may be so small that even the first token has to head for the end.
        closing = [] if sequence.generated else self._chooser.closing(sequence)
        token = None if closing else self._chooser.choose(sequence, work.last_row)
        now = time.perf_counter()
        sequence.times.first_token = sequence.times.first_token or now
        sequence.times.last_token = now
        if token is None:
            return self._chooser.take_forced(sequence, closing)
        return self._chooser.take(sequence, token)

    def _go_on(self, sequence: Sequence, reason: FinishReason | None) -> None:
        """End the sequence if it has a reason to, else make sure that it can go on."""
        if reason is None and len(sequence.tokens) > self._backend.n_ctx_seq:
            reason = self._overflow(sequence)
        if reason is not None:
            self._finish(sequence, reason)

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
        self._guessing.take_back(sequence)
        self._announce_end(sequence, reason)
        # After the last word: saving the memory delays nobody who reads it.
        if self._disk is not None:
            self._disk.save(sequence, others_wait=len(self._running) > 1)
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

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        if not isinstance(error, LocalrunError):
            logger.error("a sequence failed because of a bug", exc_info=error)
            error = EngineError(f"the answer ended because of a bug: {type(error).__name__}: {error}")
        with suppress(ValueError):
            self._waiting.remove(sequence)
        self._leave(sequence, keep=False)
        sequence.notify(Failed(error))

    def _leave(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Give back the slot and the sampler. The computed tokens stay for their prefix where they may."""
        self._crowded = False
        self._guessing.forget(sequence)
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
