"""localrun's own figures beside those of llama.cpp's `llama-bench`, on the same model, in turns, in one run.

    python benchmarks/llama_bench.py MODEL.gguf [--threads N] [--depth N] [--rounds N] [--flash-attention]

`llama-bench` is taken from `LLAMA_BENCH` or the path, and must be built from the sources of the installed engine. Two
things of ours are compared with it: the engine alone (`localrun.bench.speed`, what `bench --tune` uses) and the whole
product's path (a request through the responder, what `bench` reports as TPOT).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from localrun.bench.probe import Probe
from localrun.bench.speed import Setting, Speed, measure_speed
from localrun.catalog import resolve
from localrun.llama.model import LlamaModel
from localrun.local import LocalResponder
from localrun.params import EngineParams

N_DECODE = 32


@dataclass
class Rounds:
    """Tokens a second of every round."""

    peer_prefill: list[float] = field(default_factory=list)
    peer_decode: list[float] = field(default_factory=list)
    engine_prefill: list[float] = field(default_factory=list)
    engine_decode: list[float] = field(default_factory=list)
    product_decode: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depth", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flash-attention", action="store_true")
    arguments = parser.parse_args()
    tool = os.environ.get("LLAMA_BENCH") or shutil.which("llama-bench")
    if tool is None:
        sys.exit("llama-bench is not here: set LLAMA_BENCH to its path")
    path = resolve(arguments.model, offline=True).path
    rounds = measure(tool, path, arguments)
    report(rounds)


def measure(tool: str, path: Path, arguments: argparse.Namespace) -> Rounds:
    """All three in turns, so that whatever else the machine does strikes all of them."""
    rounds = Rounds()
    threads, depth, flash = arguments.threads, arguments.depth, arguments.flash_attention
    # OpenMP counts the threads of all teams of a process, and two teams on two cores no longer spin at barriers (0.6 of
    # the speed): the engine alone has a process of its own.
    alone = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), load_alone, (path,))
    params = EngineParams(threads=threads, flash_attention=flash, cache=False, gpu_layers=0)
    responder = LocalResponder(resolve(str(path), offline=True), params)
    try:
        responder.wait_loaded()
        probe = Probe(responder)
        prompt = probe.prompt(depth)
        probe.ask(prompt, 2)  # from here on the prompt is in the cache, and a request decodes only
        for number in range(arguments.rounds):
            prefill, decode = peer(tool, path, threads, depth, flash)
            ours = alone.submit(engine_alone, flash, threads, depth).result()
            product = probe.ask(prompt, N_DECODE).decode_tps
            rounds.peer_prefill.append(prefill)
            rounds.peer_decode.append(decode)
            rounds.engine_prefill.append(ours.prefill_tps)
            rounds.engine_decode.append(ours.decode_tps)
            rounds.product_decode.append(product)
            print(
                f"round {number + 1}: llama-bench {decode:.1f}, engine {ours.decode_tps:.1f}, product {product:.1f} "
                f"tokens/s; prompt {prefill:.0f} and {ours.prefill_tps:.0f}",
                flush=True,
            )
    finally:
        responder.close()
        alone.shutdown()
    return rounds


_alone: list[LlamaModel] = []


def load_alone(path: Path) -> None:
    """Load the model in the process that measures the engine without the product."""
    _alone.append(LlamaModel.load(path))


def engine_alone(flash: bool, threads: int, depth: int) -> Speed:
    """The engine's own speed, in the process of `load_alone`."""
    setting = Setting(flash, threads, threads)
    return measure_speed(_alone[0], setting, n_prompt=depth, n_decode=N_DECODE, depth=depth, repeats=1)


def peer(tool: str, path: Path, threads: int, depth: int, flash: bool) -> tuple[float, float]:
    """(prefill, decode) of `llama-bench` in tokens a second."""
    common = [tool, "-m", str(path), "-r", "1", "-t", str(threads), "-fa", str(int(flash)), "-ngl", "0", "-o", "json"]
    # The spin time that localrun sets for itself, so that both run under the same rules.
    environment = {"GOMP_SPINCOUNT": "10000", **os.environ}

    def rate(*test: str) -> float:
        done = subprocess.run([*common, *test], capture_output=True, check=True, env=environment)
        (result,) = json.loads(done.stdout)
        return float(result["avg_ts"])

    return rate("-p", str(depth), "-n", "0"), rate("-p", "0", "-n", str(N_DECODE), "-d", str(depth))


def report(rounds: Rounds) -> None:
    for name, ours, theirs in (
        ("decode, engine alone ", rounds.engine_decode, rounds.peer_decode),
        ("decode, whole product", rounds.product_decode, rounds.peer_decode),
        ("prefill, engine alone", rounds.engine_prefill, rounds.peer_prefill),
    ):
        median = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        print(f"{name}: {median:.3f} of llama-bench (median of rounds), {max(ours) / max(theirs):.3f} (best of each)")


if __name__ == "__main__":
    main()
