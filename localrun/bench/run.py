"""One benchmark from beginning to end: load, warm up, measure, remember.

Knows the order of things; suites know the figures. Invariant: what could have disturbed the figures stands in the
result beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localrun import __version__
from localrun.bench.figures import BenchResult, Figure
from localrun.bench.probe import Probe
from localrun.bench.suites import SIZES, Suite, Target
from localrun.gguf import fingerprint, read_header
from localrun.hardware.bandwidth import memory_bandwidth
from localrun.hardware.load import LoadProbe
from localrun.hardware.machine import this_machine
from localrun.hardware.shape import model_shape
from localrun.hardware.tuning import MeasuredSpeed, save_speed, tuned_for
from localrun.llama.library import system_info
from localrun.local import LocalResponder
from localrun.params import EngineParams

if TYPE_CHECKING:
    from localrun.catalog import ModelFile

_RATES = (0.5, 0.8, 1.1)
"""Of what the machine can do at most: half loaded, well loaded, overloaded."""
_DISTURBED = 0.2
"""Cores used by others from which on figures are not to be trusted."""
_MEAN_TOKENS = 18.7
"""Of an answer in `serve`: the mean of the lengths it draws."""


def run_bench(
    file: ModelFile,
    params: EngineParams,
    suite: str,
    *,
    say: Callable[[str], None],
    target: Target | None = None,
    rates: tuple[float, ...] = (),
    seconds: float = 20.0,
    on_responder: Callable[[LocalResponder], None] | None = None,
) -> BenchResult:
    """Measure `file` with one of the suites of `SIZES`. `on_responder` gets the engine, to stop it.

    Raises what loading and answering raise.
    """
    size = SIZES[suite]
    # The prefix cache on disk would know the prompts of an earlier run, and fill with prompts nobody needs.
    params = replace(params, cache=False)
    header = read_header(file.path)
    shape = model_shape(header)
    say("memory bandwidth")
    bandwidth = memory_bandwidth(again=True)
    result = BenchResult(
        suite=suite,
        machine={**asdict(this_machine()), "description": str(this_machine()), "features": ""},
        model={"name": file.name, "quantization": header.quantization, "fingerprint": fingerprint(file.path)},
        settings=_settings(params, file.path),
        bandwidth=bandwidth,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    others = LoadProbe()
    n_parallel = max(size.parallel)
    say("loading")
    loads = _load_times(file, params, size.repeats)
    responder = LocalResponder(file, _with_parallel(params, n_parallel))
    try:
        if on_responder is not None:
            on_responder(responder)
        responder.wait_loaded()
        result.machine["features"] = system_info()
        result.machine["localrun"] = __version__
        loads.append(responder.load_s)
        result.figures.append(Figure("load", "load", "s", tuple(loads), False, "load", 0))
        probe = Probe(responder)
        one = Suite(probe, shape, size, limit=responder.context_limit, bandwidth=bandwidth, say=say)
        one.warm_up()
        if suite != "serve":
            result.figures += one.first_tokens()
            result.figures += one.output_tokens()
        result.figures += one.throughput()
        if suite == "serve":
            most = result.figures[-1].median / _MEAN_TOKENS
            chosen = rates or tuple(float(f"{share * most:.3g}") for share in _RATES)
            result.figures += one.serve(target or Target(), chosen, seconds)
    finally:
        responder.close()
    busy = others.others()
    if busy is not None and busy > _DISTURBED:
        result.notes.append(f"other programs used {busy:.1f} cores meanwhile: the figures are worse than they could be")
    _remember(result)
    return result


def _load_times(file: ModelFile, params: EngineParams, repeats: int) -> list[float]:
    """Seconds to read the weights, the file being in the system's cache after the first time."""
    times = []
    for _ in range(min(2, repeats) + 1):
        responder = LocalResponder(file, params)
        try:
            responder.wait_loaded()
            times.append(responder.load_s)
        finally:
            responder.close()
    return times[1:]


def _with_parallel(params: EngineParams, n_parallel: int) -> EngineParams:
    return replace(params, n_parallel=max(n_parallel, params.n_parallel))


def _settings(params: EngineParams, path: Path) -> dict[str, Any]:
    """What was asked for, and what was found by tuning (it counts where nothing was asked for)."""
    shown = ("n_ctx", "threads", "gpu_layers", "kv_type", "flash_attention", "n_batch", "n_ubatch")
    tuned = tuned_for(path)
    more = {"spread": params.spread.describe() or None, "tuned": asdict(tuned) if tuned is not None else None}
    return {name: getattr(params, name) for name in shown} | more


def _remember(result: BenchResult) -> None:
    """Keep the speed for `plan`."""
    decode = [figure for figure in result.figures if figure.group == "decode"]
    prefill = [figure for figure in result.figures if figure.group == "prefill"]
    if decode and prefill:
        first, longest = decode[0], prefill[-1]
        speed = MeasuredSpeed(
            decode_tps=first.median,
            depth=int(first.x or 0),
            prefill_tps=longest.median,
            prompt=int(longest.x or 0),
        )
        save_speed(result.model["fingerprint"], speed)
