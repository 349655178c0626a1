"""Finds the fastest settings of a model on this machine, and remembers them.

Knows what may be varied and how to decide under noise; `speed` measures. One thing is varied at a time, each
candidate beside the best so far in turns, so that whatever else the machine does strikes both. Invariants: a setting
is changed only for a gain beyond the noise, and the search ends within its time limit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localrun.bench.speed import Setting, bench_context
from localrun.gguf import fingerprint, read_header
from localrun.hardware.cpu import physical_cores, usable_cpus
from localrun.hardware.tuning import TunedSettings, load_tuning, save_tuning
from localrun.llama.model import LlamaModel
from localrun.local.loading import plan_context
from localrun.params import EngineParams

__all__ = ["Tuning", "load_tuning", "tune"]

_WORTH = 1.03
"""A candidate must be three percent faster: less is noise from one minute to the next."""
_ROUNDS = 3
_SECONDS_A_SAMPLE = 0.6
_LONGEST_PROMPT = 512
_MOST_DECODED = 24

Measure = Callable[[Setting, str], float]
"""Tokens a second of one sample: of `prefill` or `decode`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate beside the best so far."""

    what: str
    value: object
    kind: str
    """`prefill` or `decode`."""
    tps: float
    best_tps: float

    @property
    def is_better(self) -> bool:
        return self.tps > _WORTH * self.best_tps


@dataclass(slots=True)
class Tuning:
    """The outcome."""

    start: Setting
    best: Setting
    trials: list[Trial] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = True
    """False if the time ran out before every candidate was measured."""
    remembered: bool = False

    @property
    def settings(self) -> TunedSettings:
        best = self.best
        return TunedSettings(best.flash_attention, best.threads, best.threads_prefill, best.n_ubatch)

    def as_json(self) -> dict[str, Any]:
        return {
            "start": asdict(self.start),
            "best": asdict(self.best),
            "trials": [asdict(trial) | {"better": trial.is_better} for trial in self.trials],
            "seconds": round(self.seconds, 1),
            "complete": self.complete,
            "remembered": self.remembered,
        }


def tune(
    path: Path,
    params: EngineParams,
    *,
    limit_s: float = 50.0,
    say: Callable[[str], None] = lambda _: None,
) -> Tuning:
    """Measure the model at `path` and remember its best flash attention, threads and batch for this machine.

    Raises what loading raises.
    """
    started = time.perf_counter()
    say("loading")
    load = plan_context(read_header(path), params).load
    gpu_layers, experts = load.gpu_layers, load.placement.experts_in_ram
    model = LlamaModel.load(
        path, gpu_layers=gpu_layers, use_mmap=params.use_mmap, spread=params.spread, experts_in_ram=experts
    )
    try:
        start = _start(params, gpu_layers)
        tuning = search(start, _Stopwatch(model), candidates(start, params), started + limit_s, say=say)
    finally:
        model.close()
    tuning.seconds = time.perf_counter() - started
    tuning.remembered = save_tuning(fingerprint(path), tuning.settings)
    return tuning


def _start(params: EngineParams, gpu_layers: int) -> Setting:
    cores = physical_cores()
    return Setting(
        flash_attention=bool(gpu_layers) or params.kv_type != "f16",
        threads=params.threads or cores,
        threads_prefill=params.threads or min(usable_cpus(), 2 * cores),
        n_ubatch=params.n_ubatch,
        n_batch=params.n_batch,
        kv_type=params.kv_type,
    )


def candidates(start: Setting, params: EngineParams) -> list[tuple[str, str, list[Any]]]:
    """(setting, what it is judged by, values to try), in the order of what matters most.

    What the user has set is not varied.
    """
    cores, logical = physical_cores(), usable_cpus()
    counts = sorted({cores - 1, cores, logical, logical - 1, cores // 2} - {0, -1})
    found: list[tuple[str, str, list[Any]]] = []
    if params.flash_attention is None and start.kv_type == "f16":  # a quantized cache needs flash attention
        found.append(("flash_attention", "decode", [not start.flash_attention]))
    if params.threads is None:
        found.append(("threads", "decode", [n for n in counts if n != start.threads]))
        found.append(("threads_prefill", "prefill", [n for n in counts if n != start.threads_prefill]))
    found.append(("n_ubatch", "prefill", [n for n in (128, 256, 512, 1024) if n != start.n_ubatch]))
    return found


def search(
    start: Setting,
    measure: Measure,
    varied: list[tuple[str, str, list[Any]]],
    deadline: float,
    *,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Tuning:
    """Vary one thing at a time, and keep what is better, until `deadline` (of `clock`)."""
    tuning = Tuning(start, start)
    for name, kind, values in varied:
        for value in values:
            if clock() >= deadline:
                tuning.complete = False
                return tuning
            say(f"{name.replace('_', ' ')} {value}")
            candidate = replace(tuning.best, **{name: value})
            best_tps, tps = _beside(tuning.best, candidate, kind, measure, deadline, clock)
            trial = Trial(name, value, kind, tps, best_tps)
            tuning.trials.append(trial)
            if trial.is_better:
                tuning.best = candidate
    return tuning


def _beside(
    best: Setting, candidate: Setting, kind: str, measure: Measure, deadline: float, clock: Callable[[], float]
) -> tuple[float, float]:
    """Medians of both, measured in turns; one round at least."""
    pairs = []
    for _ in range(_ROUNDS):
        pairs.append((measure(best, kind), measure(candidate, kind)))
        if clock() >= deadline:
            break
    # The median of the ratios: a disturbance strikes one pair, not the verdict.
    first = statistics.median(pair[0] for pair in pairs)
    ratio = statistics.median(pair[1] / pair[0] if pair[0] else 0.0 for pair in pairs)
    return first, first * ratio


class _Stopwatch:
    """Measures a model; a sample takes about half a second whatever the model's size."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._n_prompt = 0
        self._n_decode = 0

    def __call__(self, setting: Setting, kind: str) -> float:
        if not self._n_prompt:
            self._calibrate(setting)
        n_prompt, n_decode = self._n_prompt, self._n_decode
        with bench_context(self._model, setting, n_prompt + n_decode) as bench:
            bench.prefill(min(8, n_prompt))  # the first batch of a context allocates
            bench.clear()
            seconds = bench.prefill(n_prompt)
            if kind == "prefill":
                return n_prompt / seconds
            bench.decode(1)
            return n_decode / bench.decode(n_decode)

    def _calibrate(self, setting: Setting) -> None:
        """How much fits in the time of one sample."""
        with bench_context(self._model, setting, 64) as bench:
            bench.prefill(16)  # reads the weights from disk, where they are not in memory yet
            bench.clear()
            prefill = 32 / bench.prefill(32)
            decode = 4 / bench.decode(4)
        self._n_prompt = max(32, min(_LONGEST_PROMPT, int(prefill * _SECONDS_A_SAMPLE) // 32 * 32))
        self._n_decode = max(4, min(_MOST_DECODED, int(decode * _SECONDS_A_SAMPLE)))
