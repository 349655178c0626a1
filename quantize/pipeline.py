"""The pass over the weights: read a slab, round it, write it in its place; many at once, in any order.

Knows plans, slabs and threads. Invariant: peak memory is a few slabs, whatever the model's size; the result does not
depend on the number of threads, on the order of slabs, or on how often the run was interrupted.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from importlib.metadata import version

from quantize import ggml
from quantize.blocks import ColumnWeights, copy_rows, round_rows
from quantize.errors import DestinationError, NoSpaceError, VerificationError
from quantize.journal import Journal, journal_path
from quantize.model import Rows
from quantize.plan import Plan, PlannedFile, PlannedTensor
from quantize.progress import Progress, ProgressCallback
from quantize.types import FLOAT_TYPES
from quantize.writer import PartialFile, partial_path

SLAB_VALUES = 1 << 20
"""Weights in a slab: 4 MB as float32, which stays in a core's cache from reading to writing."""

_SYNC_SECONDS = 5.0
"""How much work an interruption may cost."""

_ERROR_STRIDE = 4
"""Every fourth slab of a tensor is decoded again to measure its error: enough for a mean, and cheap."""


@dataclass(frozen=True, slots=True)
class Slab:
    """Rows of one tensor that are handled together."""

    number: int
    """In the whole output."""
    index: int
    """In its tensor."""
    file: int
    planned: PlannedTensor
    start: int
    stop: int

    @property
    def n_values(self) -> int:
        return (self.stop - self.start) * self.planned.choice.tensor.n_cols

    @property
    def offset(self) -> int:
        return self.planned.offset + self.start * self.planned.row_bytes


@dataclass(slots=True)
class TensorError:
    """Squared error of the part of a tensor that was measured."""

    error: float = 0.0
    power: float = 0.0

    def add(self, other: TensorError) -> None:
        """Take over what was measured on another part."""
        self.error += other.error
        self.power += other.power

    @property
    def relative(self) -> float:
        """Mean squared error in units of the mean squared weight."""
        return self.error / self.power if self.power else 0.0


@dataclass(slots=True)
class PassResult:
    """What the pass did."""

    seconds: float
    cpu_seconds: float
    bytes_written: int
    slabs: int
    resumed: int
    """Slabs found finished from an earlier run."""
    errors: dict[str, TensorError] = field(default_factory=dict)
    """By tensor, for quantized ones."""


def run(
    plan: Plan,
    weights: ColumnWeights,
    *,
    fingerprint: str,
    threads: int,
    progress: ProgressCallback | None = None,
    measure_error: bool = False,
    stage: str = "quantize",
) -> PassResult:
    """Write the planned files under their partial names; `finish` renames them.

    On an error or Ctrl-C the partial files and the journal stay, and the same call goes on from there.

    Args:
        fingerprint: of source and importance weights; with the plan it tells whether a partial run is the same.

    Raises:
        WeightError: a weight that is NaN, infinite or too large.
        DestinationError: the output cannot be written.
    """
    started, cpu = time.monotonic(), time.process_time()
    with ExitStack() as stack:
        slabs = list(_slabs(plan.files))
        journal, outputs = _open(plan, _identity(plan, slabs, fingerprint), stack)
        todo = [slab for slab in slabs if slab.number not in journal.done]
        total = sum(slab.n_values for slab in slabs)
        done = total - sum(slab.n_values for slab in todo)
        written = sum(len(file.header) for file in plan.files)
        errors: dict[str, TensorError] = {}
        work = _Workers(todo, outputs, weights, threads, measure_error)
        # Closed when anything breaks here, so that what was done is noted before the files are closed.
        for finished in stack.enter_context(closing(_noted(work, outputs, journal))):
            done += finished.slab.n_values
            written += finished.n_bytes
            name = finished.slab.planned.choice.tensor.name
            if finished.error is not None:
                errors.setdefault(name, TensorError()).add(finished.error)
            if progress is not None:
                progress(Progress(stage, name, done, total, time.monotonic() - started, written))
    return PassResult(
        seconds=time.monotonic() - started,
        cpu_seconds=time.process_time() - cpu,
        bytes_written=written,
        slabs=len(slabs),
        resumed=len(slabs) - len(todo),
        errors=errors,
    )


def _open(plan: Plan, identity: str, stack: ExitStack) -> tuple[Journal, list[PartialFile]]:
    """The journal and the partial files, with their headers written; `stack` closes them."""
    journal = Journal(journal_path(partial_path(plan.files[0].path)), identity)
    stack.callback(journal.close)
    outputs: list[PartialFile] = []
    try:
        for file in plan.files:
            outputs.append(PartialFile(file.path, file.size))
            stack.callback(outputs[-1].close)
    except NoSpaceError:
        # Nothing was written yet, and the disk is full: leave nothing behind.
        discard(plan)
        raise
    if not all(output.was_complete_size for output in outputs):
        journal.forget()
    for file, output in zip(plan.files, outputs, strict=True):
        output.write_at(0, file.header)
    return journal, outputs


def _noted(work: _Workers, outputs: Sequence[PartialFile], journal: Journal) -> Generator[_Finished, None, None]:
    """Finished slabs, as they come; now and then they are synced and noted, and so they are when something breaks."""
    pending: list[int] = []
    synced = time.monotonic()
    try:
        for finished in work.results():
            pending.append(finished.slab.number)
            yield finished
            if time.monotonic() - synced > _SYNC_SECONDS:
                _checkpoint(outputs, journal, pending)
                synced = time.monotonic()
    except BaseException:
        work.stop()
        # What broke the run is what the user must hear, not that the disk could not be synced after it.
        with suppress(DestinationError):
            _checkpoint(outputs, journal, pending)
        raise
    work.stop()
    _checkpoint(outputs, journal, pending)


def finish(plan: Plan) -> None:
    """Give the complete files their names and drop the notes. The first file comes last: it makes a split set whole."""
    for file in reversed(plan.files):
        PartialFile(file.path, file.size).finish()
    journal_path(partial_path(plan.files[0].path)).unlink(missing_ok=True)


def discard(plan: Plan) -> None:
    """Remove unfinished files and their notes."""
    for file in plan.files:
        partial_path(file.path).unlink(missing_ok=True)
    journal_path(partial_path(plan.files[0].path)).unlink(missing_ok=True)


def _identity(plan: Plan, slabs: Sequence[Slab], fingerprint: str) -> str:
    """A digest of everything that the bytes of the output and the numbers of its slabs depend on."""
    digest = hashlib.sha256(fingerprint.encode())
    digest.update(version("llama-cpp-python").encode())  # another release may round differently
    for slab in slabs:
        digest.update(f"{slab.file} {slab.offset} {slab.stop}\n".encode())
    for file in plan.files:
        digest.update(file.header)
    return digest.hexdigest()


def _checkpoint(outputs: Sequence[PartialFile], journal: Journal, pending: list[int]) -> None:
    if pending:
        for output in outputs:
            output.sync()
        journal.note(pending)
        pending.clear()


def _slabs(files: Sequence[PlannedFile]) -> Iterator[Slab]:
    number = 0
    for index, file in enumerate(files):
        for planned in file.tensors:
            tensor = planned.choice.tensor
            unit = tensor.row_multiple
            rows = max(SLAB_VALUES // tensor.n_cols // unit * unit, unit)
            for within, start in enumerate(range(0, tensor.n_rows, rows)):
                yield Slab(number, within, index, planned, start, min(start + rows, tensor.n_rows))
                number += 1


@dataclass(frozen=True, slots=True)
class _Finished:
    slab: Slab
    n_bytes: int
    error: TensorError | None


class _Workers:
    """Threads that take slabs one after another. libggml and numpy release the GIL, so they run side by side."""

    def __init__(
        self,
        slabs: Sequence[Slab],
        outputs: Sequence[PartialFile],
        weights: ColumnWeights,
        threads: int,
        measure_error: bool,
    ) -> None:
        self._outputs = outputs
        self._weights = weights
        self._measure_error = measure_error
        self._todo = iter(slabs)
        self._left = len(slabs)
        self._lock = threading.Lock()
        self._stopping = False
        self._answers: queue.SimpleQueue[_Finished | BaseException] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"quantize-{i}", daemon=True)
            for i in range(max(1, min(threads, len(slabs))))
        ]

    def results(self) -> Iterator[_Finished]:
        """What is finished, as it finishes. Raises the first error of any thread."""
        for thread in self._threads:
            thread.start()
        for _ in range(self._left):
            answer = self._answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    def stop(self) -> None:
        """Let the threads finish the slabs they have in hand, and wait for them."""
        self._stopping = True
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self) -> None:
        while not self._stopping:
            with self._lock:
                slab = next(self._todo, None)
            if slab is None:
                return
            try:
                self._answers.put(self._handle(slab))
            except BaseException as error:  # handed to the thread that waits, which raises it
                self._stopping = True
                self._answers.put(error)

    def _handle(self, slab: Slab) -> _Finished:
        choice = slab.planned.choice
        tensor, kind = choice.tensor, choice.type
        stored_type = tensor.source_type if tensor.keep_type is None else tensor.keep_type
        error = None
        if kind == stored_type and tensor.read_raw is not None:
            blocks = copy_rows(tensor, kind, slab.start, slab.stop)
        else:
            rows = tensor.read(slab.start, slab.stop)
            blocks = round_rows(tensor, kind, rows, slab.start, self._weights.of(tensor, kind))
            if self._measure_error and kind not in FLOAT_TYPES and slab.index % _ERROR_STRIDE == 0:
                error = _error(rows, ggml.dequantize_rows(kind, blocks, tensor.n_cols))
        expected = (slab.stop - slab.start) * slab.planned.row_bytes
        if blocks.nbytes != expected:
            raise VerificationError(f"tensor {tensor.name} gave {blocks.nbytes} bytes where {expected} were planned")
        self._outputs[slab.file].write_at(slab.offset, blocks.data)
        return _Finished(slab, blocks.nbytes, error)


def _error(rows: Rows, back: Rows) -> TensorError:
    difference = (back - rows).ravel()
    flat = rows.ravel()
    return TensorError(float(difference @ difference), float(flat @ flat))
