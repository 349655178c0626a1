"""Collecting an importance matrix from a running model, through the engine's callback after each matrix product.

Knows which products matter and how to sum their inputs; no text. Records what `llama-imatrix` leaves out: the output
head where it is the token embedding. Invariant: no exception crosses into C; it stops the run and is raised after.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from quantize.errors import QuantizeError, WeightError
from quantize.importance.matrix import Entry, ImportanceMatrix
from quantize.progress import Progress, ProgressCallback
from quantize.runtime import LoadedModel, Tokens
from quantize.tensor_view import TensorView, check_layout

CHUNK = 512
"""Tokens that see each other, as in llama.cpp's tools."""

_LOGIT_FLOATS = 32 << 20
"""At most 128 MB of logits at once: the head's inputs exist only for rows whose logits are asked for."""


def collect(
    path: Path,
    chunks: Sequence[Tokens],
    *,
    datasets: tuple[str, ...],
    threads: int,
    gpu_layers: int = 0,
    progress: ProgressCallback | None = None,
) -> ImportanceMatrix:
    """Run every chunk through the model and sum up what its matrices are multiplied by.

    Args:
        path: a GGUF file the engine can run.
        chunks: token ids, at most `CHUNK` each; the first id gives way to the start token where the model wants one.

    Raises:
        QuantizeError: the engine cannot run the model, or lays out its tensors differently.
        WeightError: an activation is NaN or infinite.
    """
    if not chunks:
        raise QuantizeError("there is no calibration text", hint="give a longer text with --calibration")
    collector = _Collector()
    started = time.monotonic()
    with LoadedModel(path, gpu_layers=gpu_layers) as model:
        rows = max(1, min(CHUNK, _LOGIT_FLOATS // model.n_vocab))
        with model.open(n_ctx=CHUNK, threads=threads, on_eval=collector.on_eval) as session:
            for number, chunk in enumerate(chunks):
                session.clear()
                collector.begin()
                session.decode(with_start(chunk, model.bos), position=0, logits_from=max(0, len(chunk) - rows))
                collector.check()
                if progress is not None:
                    detail = f"chunk {number + 1} of {len(chunks)}"
                    progress(Progress("importance", detail, number + 1, len(chunks), time.monotonic() - started))
    return ImportanceMatrix(collector.entries(), datasets, chunk_count=len(chunks), chunk_size=CHUNK)


def with_start(chunk: Tokens, bos: int | None) -> Tokens:
    """The chunk as llama.cpp's tools decode it: its first token replaced by the start token, where there is one."""
    if bos is None or not len(chunk):
        return chunk
    changed = chunk.copy()
    changed[0] = bos
    return changed


class _Sums:
    """Running sums of one weight tensor."""

    def __init__(self, n_matrices: int, n_cols: int) -> None:
        self.sums = np.zeros((n_matrices, n_cols), np.float64)
        self.counts = np.zeros(n_matrices, np.float64)


class _Collector:
    """Receives the engine's callbacks."""

    def __init__(self) -> None:
        self._operations = check_layout()
        self._sums: dict[str, _Sums] = {}
        self._error: BaseException | None = None
        # Query, key and value (and gate and up) share their input: its squares are summed once for all.
        self._shared: dict[int, npt.NDArray[np.float64]] = {}

    def begin(self) -> None:
        """Before each decode."""
        self._shared.clear()

    def check(self) -> None:
        """After each decode: raise what went wrong in a callback."""
        if self._error is not None:
            raise self._error

    def on_eval(self, address: int, ask: bool) -> bool:
        try:
            tensor = TensorView(address)
            name = self._wanted(tensor)
            if not ask and name is not None:
                self._add(name, tensor)
        except BaseException as error:  # raised in `check`: it must not cross into C
            self._error = self._error or error
            return False
        return name is not None if ask else True

    def entries(self) -> dict[str, Entry]:
        """What was collected. A tensor that saw nothing has no entry."""
        return {
            name: Entry(found.sums.astype(np.float32), found.counts.astype(np.float32))
            for name, found in self._sums.items()
            if found.counts.any()
        }

    def _wanted(self, tensor: TensorView) -> str | None:
        """The weight's name, where this is a product with a weight matrix that can be quantized."""
        if tensor.op not in {self._operations.mul_mat, self._operations.mul_mat_id}:
            return None
        name = weight_name(tensor.source(0).name)
        in_layer = name.startswith("blk.") and name.endswith(".weight")
        is_head = name in {"output.weight", "token_embd.weight"}
        return name if (in_layer or is_head) and tensor.source(1).type == 0 else None

    def _add(self, name: str, tensor: TensorView) -> None:
        weight, inputs = tensor.source(0), tensor.source(1)
        n_cols = inputs.ne[0]
        n_matrices = weight.ne[2] * weight.ne[3]
        found = self._sums.setdefault(name, _Sums(n_matrices, n_cols))
        if tensor.op == self._operations.mul_mat_id:
            self._add_experts(found, inputs.floats(), tensor.source(2).integers())
        else:
            self._add_dense(found, inputs, weight.ne[2], weight.ne[3])
        if not np.isfinite(found.sums).all():
            raise WeightError(f"the inputs of {name} are not finite", hint="the model's weights are damaged")

    def _add_dense(self, found: _Sums, inputs: TensorView, n2: int, n3: int) -> None:
        squares = self._shared.get(inputs.address)
        if squares is None:
            values = inputs.floats()  # (ne3, ne2, rows, cols)
            squares = np.square(values).sum(axis=2, dtype=np.float64)  # (ne3, ne2, cols)
            self._shared[inputs.address] = squares
        rows = inputs.ne[1]
        for i3 in range(squares.shape[0]):
            for i2 in range(squares.shape[1]):
                matrix = (i3 % n3) * n2 + i2 % n2
                found.sums[matrix] += squares[i3, i2]
                found.counts[matrix] += rows

    def _add_experts(self, found: _Sums, values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32]) -> None:
        inputs = values[0]  # (tokens, slots, cols); one slot where all experts of a token see the same input
        chosen = ids[0, 0]  # (tokens, experts used)
        slots = np.arange(chosen.shape[1]) % inputs.shape[1]
        rows = inputs[:, slots]  # (tokens, experts used, cols)
        for expert in np.unique(chosen):
            mine = rows[chosen == expert]
            found.sums[expert] += np.square(mine).sum(axis=0, dtype=np.float64)
            found.counts[expert] += len(mine)


def weight_name(name: str) -> str:
    """`CUDA0#blk.0.attn_q.weight#0` → `blk.0.attn_q.weight`: a copy on another device keeps the name in the middle."""
    return name.split("#")[1] if name.count("#") >= 2 else name
