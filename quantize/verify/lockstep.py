"""Base and quantized model in lock-step over the same text: each chunk through both, logits compared and forgotten.

Knows chunks and the engine; no files of logits. Invariant: both models see exactly the same tokens, and the positions
that count are those of llama-perplexity (the second half of each chunk of 512).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType

from quantize.errors import QuantizeError, VerificationError
from quantize.importance.collect import CHUNK, with_start
from quantize.progress import Progress, ProgressCallback
from quantize.runtime import LoadedModel, Session, Tokens
from quantize.verify.causes import Cause, SamplerSettings, sampler_effect
from quantize.verify.scores import Scores, Statistics

logger = logging.getLogger(__name__)

FIRST_SCORED = CHUNK // 2
_LOGIT_FLOATS = 16 << 20
"""Logits of one step take at most 64 MB per model, whatever the vocabulary."""

_CAUSE_CHUNKS = 1
"""Chunks on which the effect of the KV cache and of the sampler is measured: enough to tell large from small."""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """Figures on one kind of text."""

    name: str
    chunks: int
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures on all slices, on everything together, and the causes beside each other."""

    slices: tuple[SliceResult, ...]
    overall: Statistics
    causes: tuple[Cause, ...]
    seconds: float


def evaluate(
    base: Path,
    quantized: Path,
    slices: Mapping[str, Sequence[Tokens]],
    *,
    threads: int,
    gpu_layers: int = 0,
    progress: ProgressCallback | None = None,
) -> Evaluation:
    """Compare two files of the same model.

    Args:
        slices: name of the kind of text → chunks of token ids, `CHUNK` each.

    Raises:
        VerificationError: the vocabularies differ, or there is too little text.
        QuantizeError: the engine cannot load or run one of them.
    """
    started = time.monotonic()
    total = sum(map(len, slices.values()))
    with ExitStack() as stack:
        first = stack.enter_context(LoadedModel(base, gpu_layers=gpu_layers))
        second = stack.enter_context(LoadedModel(quantized, gpu_layers=gpu_layers))
        if first.n_vocab != second.n_vocab:
            raise VerificationError(f"{base.name} has {first.n_vocab} tokens, {quantized.name} has {second.n_vocab}")
        pair = _Pair(first, second, threads)
        stack.callback(pair.close)
        everything = Scores()
        results = []
        done = 0
        for name, chunks in slices.items():
            scores = Scores()
            for chunk in chunks:
                pair.compare(chunk, scores)
                done += 1
                if progress is not None:
                    progress(Progress("report", name, done, total, time.monotonic() - started))
            everything.merge(scores)
            figures = scores.statistics()
            if figures is not None:
                results.append(SliceResult(name, len(chunks), figures))
        overall = everything.statistics()
        if overall is None:
            raise VerificationError(
                f"{everything.positions} positions are too few for figures", hint="use a longer text"
            )
        pair.close()
        chunks = next(list(chunks) for chunks in slices.values() if chunks)[:_CAUSE_CHUNKS]
        causes = _causes(first, chunks, overall, threads)
    return Evaluation(tuple(results), overall, causes, time.monotonic() - started)


class _Pair:
    """Two sessions that are fed the same tokens."""

    def __init__(
        self,
        first: LoadedModel,
        second: LoadedModel,
        threads: int,
        *,
        second_kv: GGMLQuantizationType = GGMLQuantizationType.F16,
    ) -> None:
        self._stack = ExitStack()
        self._bos = first.bos
        self._first: Session = self._stack.enter_context(first.open(n_ctx=CHUNK, threads=threads))
        try:
            other = second.open(n_ctx=CHUNK, threads=threads, kv_type=second_kv)
        except QuantizeError:
            self._stack.close()
            raise
        self._second: Session = self._stack.enter_context(other)
        self._rows = max(16, min(FIRST_SCORED, _LOGIT_FLOATS // first.n_vocab))

    def close(self) -> None:
        self._stack.close()

    def compare(self, chunk: Tokens, scores: Scores) -> None:
        """Both models over one chunk; positions 256 to 510 are scored, each by the token that follows it."""
        tokens = with_start(chunk, self._bos)
        for session in (self._first, self._second):
            session.clear()
            session.decode(tokens[:FIRST_SCORED], position=0, logits_from=FIRST_SCORED)
        last = len(tokens) - 1
        for start in range(FIRST_SCORED, last, self._rows):
            stop = min(start + self._rows, last)
            base = self._first.decode(tokens[start:stop], position=start, logits_from=0)
            other = self._second.decode(tokens[start:stop], position=start, logits_from=0)
            scores.add(base, other, chunk[start + 1 : stop + 1])


def _causes(base: LoadedModel, chunks: Sequence[Tokens], overall: Statistics, threads: int) -> tuple[Cause, ...]:
    found = [Cause("weights", overall.drawn_differently, overall.divergence)]
    for kv in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0):
        figures = _kv_figures(base, chunks, kv, threads)
        if figures is not None:
            found.append(Cause(f"KV cache in {kv.name.lower()}", figures.drawn_differently, figures.divergence))
    settings = SamplerSettings()
    effects = []
    with base.open(n_ctx=CHUNK, threads=threads) as session:
        for chunk in chunks:
            tokens = with_start(chunk, base.bos)
            logits = session.decode(tokens, position=0, logits_from=len(tokens) - 64)
            effects.append(sampler_effect(logits, settings))
            session.clear()
    found.append(Cause(f"sampler ({settings})", float(np.mean(effects))))
    return tuple(found)


def _kv_figures(
    base: LoadedModel, chunks: Sequence[Tokens], kv: GGMLQuantizationType, threads: int
) -> Statistics | None:
    """The base with another KV type against itself; None where the engine cannot run the model with that type."""
    scores = Scores()
    try:
        pair = _Pair(base, base, threads, second_kv=kv)
    except QuantizeError as error:
        # Heads of an odd size cannot be quantized; the other causes stand all the same.
        logger.info("no figures for a KV cache in %s: %s", kv.name.lower(), error.message)
        return None
    try:
        for chunk in chunks:
            pair.compare(chunk, scores)
    finally:
        pair.close()
    return scores.statistics()
