"""Prefill and decode speed of one model with one setting, on the engine itself: no template, no text, no sampler.

Knows the llama layer; remembers nothing. Measures as llama.cpp's `llama-bench` does: a batch of tokens for prefill,
one token at a time behind `depth` others for decode. Invariant: a figure is the best of what the machine did in the
repeats only where it says so; everything else is a list of samples.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from localrun.engine.ports import Decoded, Span
from localrun.errors import EngineError
from localrun.llama.context import ContextOptions, LlamaContext
from localrun.llama.model import LlamaModel
from localrun.params import KVType

_SEED = 4711
_MARGIN_CELLS = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """What may be chosen about how a model runs."""

    flash_attention: bool = False
    threads: int = 1
    """For decoding."""
    threads_prefill: int = 1
    n_ubatch: int = 512
    n_batch: int = 2048
    kv_type: KVType = "f16"


@dataclass(slots=True)
class Speed:
    """Samples of one setting."""

    setting: Setting
    n_prompt: int
    depth: int
    prefill: list[float] = field(default_factory=list)
    """Tokens a second, one value a repeat."""
    decode: list[float] = field(default_factory=list)

    @property
    def prefill_tps(self) -> float:
        return statistics.median(self.prefill) if self.prefill else 0.0

    @property
    def decode_tps(self) -> float:
        return statistics.median(self.decode) if self.decode else 0.0


def measure_speed(
    model: LlamaModel,
    setting: Setting,
    *,
    n_prompt: int = 512,
    n_decode: int = 32,
    depth: int | None = None,
    repeats: int = 3,
) -> Speed:
    """Tokens a second of a prompt of `n_prompt` tokens, and of `n_decode` tokens behind `depth` (default: the prompt).

    One warm-up comes first. The context is made and closed here. Raises `DoesNotFitError` or `EngineError`.
    """
    behind = n_prompt if depth is None else depth
    speed = Speed(setting, n_prompt, behind)
    with bench_context(model, setting, max(n_prompt, behind) + n_decode) as bench:
        bench.prefill(min(n_prompt, 64))
        bench.decode(2)
        for _ in range(repeats):
            bench.clear()
            if n_prompt:
                speed.prefill.append(n_prompt / bench.prefill(n_prompt))
            if n_decode:
                bench.fill(behind)
                speed.decode.append(n_decode / bench.decode(n_decode))
    return speed


class BenchContext:
    """One sequence in a context, with a stopwatch."""

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self._random = random.Random(_SEED)
        self._position = 0

    def clear(self) -> None:
        """Forget every token."""
        self._context.remove(0, 0, -1)
        self._position = 0

    def fill(self, depth: int) -> None:
        """Have exactly `depth` tokens in the context, computing what is missing."""
        if self._position > depth:
            self.clear()
        if self._position < depth:
            self.prefill(depth - self._position)

    def prefill(self, n_tokens: int) -> float:
        """Seconds to compute `n_tokens` as a prompt, the last of them with logits."""
        tokens = self._tokens(n_tokens)
        started = time.perf_counter()
        while tokens:
            batch, tokens = tokens[: self._context.n_batch], tokens[self._context.n_batch :]
            self._decode(batch, last=not tokens)
        return time.perf_counter() - started

    def decode(self, n_tokens: int) -> float:
        """Seconds to compute `n_tokens` one after the other."""
        tokens = self._tokens(n_tokens)
        started = time.perf_counter()
        for token in tokens:
            self._decode([token], last=True)
        return time.perf_counter() - started

    def set_threads(self, decode: int, prefill: int) -> None:
        """Threads from the next decode on."""
        self._context.set_threads(decode, prefill)

    def _decode(self, tokens: Sequence[int], *, last: bool) -> None:
        span = Span(0, self._position, tokens, "last" if last else "none")
        outcome = self._context.decode([span])
        if outcome is not Decoded.OK:
            raise EngineError(f"a batch of {len(tokens)} tokens at {self._position} could not be computed: {outcome}")
        if last:
            self._context.logits(len(tokens) - 1)  # waits until the computation has really ended
        self._position += len(tokens)

    def _tokens(self, count: int) -> list[int]:
        # Any tokens do, but not the same one: experts and caches must see variety.
        n_vocab = self._context.table.n_tokens
        return [self._random.randrange(n_vocab) for _ in range(count)]


@contextmanager
def bench_context(model: LlamaModel, setting: Setting, n_tokens: int) -> Iterator[BenchContext]:
    """A context with room for `n_tokens`, closed at the end of the block."""
    n_cells = -(-(n_tokens + _MARGIN_CELLS) // 256) * 256
    context = LlamaContext(
        model,
        ContextOptions(
            n_ctx_seq=n_cells,
            n_cells=n_cells,
            n_cells_start=n_cells,
            n_seq_max=1,
            n_batch=min(setting.n_batch, n_cells),
            n_ubatch=setting.n_ubatch,
            threads=setting.threads,
            threads_prefill=setting.threads_prefill,
            n_outputs_max=1,
            kv_type=setting.kv_type,
            flash_attention=setting.flash_attention,
        ),
    )
    try:
        yield BenchContext(context)
    finally:
        context.close()
