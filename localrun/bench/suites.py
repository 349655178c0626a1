"""Which figures are measured: `quick` in half a minute or so, `full` in minutes, `serve` under arriving requests.

Knows what to ask and how to name the answers; the probe asks. Sizes follow the speed of the model, so that a large
one on a slow machine is measured too, on less. Invariant: every figure has a warm-up behind it and several samples.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localrun.bench.figures import Figure, percentile
from localrun.bench.probe import Probe, Sample
from localrun.hardware.footprint import ContextSize, read_bytes_per_token
from localrun.hardware.shape import ModelShape

Say = Callable[[str], None]

_N_DECODE = 32
_N_PARALLEL_DECODE = 24
_SHARED = 64
"""Tokens of the warm-up prompt."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a suite measures."""

    prompts: tuple[int, ...]
    depths: tuple[int, ...]
    parallel: tuple[int, ...]
    repeats: int
    longest_prefill_s: float
    """Prompts that would take longer are left out."""


SIZES = {
    "quick": Size((128, 512, 2048), (128, 1024), (1, 4), 3, 8.0),
    "full": Size((128, 512, 1024, 2048, 4096, 8192), (128, 512, 2048, 4096, 8192), (1, 2, 4, 8), 5, 60.0),
    "serve": Size((128,), (128,), (1, 4), 3, 8.0),
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a request must keep to count for goodput."""

    ttft_s: float = 2.0
    tpot_s: float = 0.2


class Suite:
    """Measures one model through one probe."""

    def __init__(
        self, probe: Probe, shape: ModelShape, size: Size, *, limit: int, bandwidth: float | None, say: Say
    ) -> None:
        """`limit` is the context in tokens; `say` hears what is being measured."""
        self._probe = probe
        self._shape = shape
        self._size = size
        self._limit = limit
        self._bandwidth = bandwidth
        self._say = say
        self._prefill_tps = 0.0

    def warm_up(self) -> None:
        """Touch every weight, and learn how fast the model is."""
        self._say("warming up")
        self._probe.ask(self._probe.prompt(_SHARED), 4)
        sample = self._probe.ask(self._probe.prompt(2 * _SHARED), 4)
        self._prefill_tps = max(1.0, sample.prefill_tps)

    def fits(self, n_tokens: int, n_decode: int = _N_DECODE) -> bool:
        """Whether a prompt of that length has room, and does not take too long."""
        seconds = n_tokens / self._prefill_tps if self._prefill_tps else 0.0
        return n_tokens + n_decode + 8 <= self._limit and seconds <= self._size.longest_prefill_s

    def first_tokens(self) -> list[Figure]:
        """Time to first token at several prompt lengths: computed, and found in the prefix cache."""
        figures = []
        for length in filter(self.fits, self._size.prompts):
            self._say(f"time to first token, {length:,} tokens")
            cold, cached, prefill = [], [], []
            for _ in range(self._size.repeats):
                prompt = self._probe.prompt(length)
                first = self._probe.ask(prompt, 2)
                again = self._probe.ask(prompt, 2)
                cold.append(first.ttft_s)
                prefill.append(first.prefill_tps)
                if again.cached_tokens:
                    cached.append(again.ttft_s)
            figures.append(_figure(f"ttft/cold/prompt={length}", f"TTFT, {length:,} tokens", "s", cold, "ttft", length))
            if cached:
                name, label = f"ttft/cached/prompt={length}", f"TTFT, {length:,} tokens, cached"
                figures.append(_figure(name, label, "s", cached, "ttft cached", length))
            label = f"prefill, {length:,} tokens"
            figures.append(
                _figure(f"prefill/prompt={length}", label, "tokens/s", prefill, "prefill", length, higher=True)
            )
            self._prefill_tps = statistics.median(prefill)
        return figures

    def output_tokens(self) -> list[Figure]:
        """Time per output token, one request alone, at several depths; with the roofline beside it."""
        figures = []
        for depth in filter(self.fits, self._size.depths):
            self._say(f"time per output token, depth {depth:,}")
            prompt = self._probe.prompt(depth)
            self._probe.ask(prompt, 2)  # the prompt is in the cache from here on
            samples = [self._probe.ask(prompt, _N_DECODE) for _ in range(self._size.repeats)]
            behind = depth + _N_DECODE // 2
            n_bytes = read_bytes_per_token(self._shape, ContextSize(behind), behind)
            times = [sample.tpot_s for sample in samples]
            share = None
            if self._bandwidth:
                share = n_bytes / self._bandwidth / statistics.median(times)
            figures.append(
                _figure(
                    f"tpot/depth={depth}", f"TPOT, depth {depth:,}", "s", times, "tpot", depth,
                    n_bytes=n_bytes, share=share,
                )
            )  # fmt: skip
            rates = [sample.decode_tps for sample in samples]
            label = f"decode, depth {depth:,}"
            figures.append(_figure(f"decode/depth={depth}", label, "tokens/s", rates, "decode", depth, higher=True))
        return figures

    def throughput(self) -> list[Figure]:
        """Tokens a second of all sequences together, by how many run at a time."""
        figures = []
        for count in self._size.parallel:
            self._say(f"throughput, {count} at a time")
            rates = []
            for _ in range(self._size.repeats):
                prompts = [self._probe.prompt(_SHARED) for _ in range(count)]
                samples, seconds = self._probe.ask_all(prompts, _N_PARALLEL_DECODE)
                rates.append(sum(sample.completion_tokens for sample in samples) / seconds)
            label = f"throughput, {count} at a time"
            figures.append(
                _figure(f"throughput/parallel={count}", label, "tokens/s", rates, "throughput", count, higher=True)
            )
        return figures

    def serve(self, target: Target, rates: Sequence[float], seconds: float, *, seed: int = 11) -> list[Figure]:
        """Requests that arrive at random (a Poisson process) at each rate: goodput and tail latencies."""
        figures = []
        for rate in rates:
            self._say(f"{rate:.3g} requests a second for {seconds:.0f} s")
            samples = self._probe.ask_over_time(arrivals(self._probe, rate, seconds, seed))
            figures += latencies(samples, rate, seconds, target)
        return figures


def arrivals(probe: Probe, rate: float, seconds: float, seed: int) -> list[tuple[float, bytes, int]]:
    """(second, prompt, tokens) of the requests of an open loop: gaps follow the exponential distribution."""
    chance = random.Random(seed)
    found: list[tuple[float, bytes, int]] = []
    at = chance.expovariate(rate)
    while at < seconds:
        found.append((at, probe.prompt(chance.choice((32, 64, 128, 256))), chance.choice((8, 16, 32))))
        at += chance.expovariate(rate)
    if not found:
        found.append((0.0, probe.prompt(_SHARED), _N_PARALLEL_DECODE))
    return found


def latencies(samples: Sequence[Sample], rate: float, seconds: float, target: Target) -> list[Figure]:
    """Goodput, attainment and percentiles of one rate."""
    met = [s for s in samples if s.ttft_s <= target.ttft_s and s.tpot_s <= target.tpot_s]
    at = f"rate={rate:.3g}"
    figures = [
        _figure(
            f"requests/{at}", f"requests at {rate:.3g}/s", "requests", [len(samples)], "requests", rate,
            higher=True,
        ),
        _figure(
            f"goodput/{at}", f"goodput at {rate:.3g}/s", "requests/s", [len(met) / seconds], "goodput", rate,
            higher=True,
        ),
        _figure(
            f"attainment/{at}", f"requests within the target at {rate:.3g}/s", "%",
            [100 * len(met) / max(1, len(samples))], "attainment", rate, higher=True,
        ),
    ]  # fmt: skip
    for what, times in (("ttft", [s.ttft_s for s in samples]), ("tpot", [s.tpot_s for s in samples])):
        for share in (50, 90, 99):
            label = f"p{share} {what.upper()} at {rate:.3g}/s"
            value = percentile(times, share / 100)
            figures.append(_figure(f"{what}/p{share}/{at}", label, "s", [value], f"{what} p{share}", rate))
    return figures


def _figure(
    name: str,
    label: str,
    unit: str,
    samples: Sequence[float],
    group: str,
    x: float,
    *,
    higher: bool = False,
    n_bytes: int | None = None,
    share: float | None = None,
) -> Figure:
    return Figure(name, label, unit, tuple(samples), higher, group, x, n_bytes, share)
