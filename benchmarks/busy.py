"""Decoding beside a busy program: the thread governor against every fixed count, in turns.

    python -m benchmarks.busy MODEL.gguf [--rounds 6] [--tokens 60]

Once on the machine as it is, once with one other process that never rests. Figures are tokens a second.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from localrun.engine.ports import Span
from localrun.engine.threads import ThreadGovernor
from localrun.hardware.cpu import physical_cores
from localrun.hardware.load import LoadProbe
from localrun.llama.context import ContextOptions, LlamaContext
from localrun.llama.model import LlamaModel
from localrun.params import SamplingParams

DEPTH = 256


class Decoder:
    """One sequence that goes on and on at about the same depth."""

    def __init__(self, path: Path, cores: int) -> None:
        model = LlamaModel.load(path)
        options = ContextOptions(
            n_ctx_seq=2048,
            n_cells=2048,
            n_cells_start=2048,
            n_seq_max=1,
            n_batch=512,
            n_ubatch=512,
            threads=cores,
            threads_prefill=cores,
            flash_attention=False,
        )
        self.context = LlamaContext(model, options)
        ids = model.vocabulary.encode(b"Once upon a time there was a river. " * 60)[:DEPTH]
        self.context.decode([Span(0, 0, ids, "last")])
        self._sampler = self.context.sampler(SamplingParams(temperature=0), 0, [])
        self._first = self._token = self._sampler.sample(len(ids) - 1)

    def run(self, n: int, threads: int | ThreadGovernor) -> float:
        """Decode `n` tokens; tokens a second."""
        self.context.remove(0, DEPTH, -1)
        token = self._first
        if isinstance(threads, int):
            self.context.set_threads(threads, threads)
        started = time.perf_counter()
        for i in range(n):
            if isinstance(threads, ThreadGovernor) and (threads.update() or i == 0):
                self.context.set_threads(threads.threads, threads.threads)
            began = time.perf_counter()
            self.context.decode([Span(0, DEPTH + i, [token], "last")])
            token = self._sampler.sample(0)
            if isinstance(threads, ThreadGovernor):
                threads.observe(1, time.perf_counter() - began)
        return n / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=60)
    arguments = parser.parse_args()
    cores = physical_cores()
    decoder = Decoder(arguments.model, cores)
    for busy in (False, True):
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        governor = ThreadGovernor(cores, LoadProbe().others)
        rates: dict[str, list[float]] = defaultdict(list)
        try:
            for _ in range(arguments.rounds + 1):
                for count in range(1, cores + 1):
                    rates[f"{count} threads"].append(decoder.run(arguments.tokens, count))
                rates["governor"].append(decoder.run(arguments.tokens, governor))
        finally:
            if other is not None:
                other.kill()
        medians = {name: statistics.median(values[1:]) for name, values in rates.items()}
        best = max(value for name, value in medians.items() if name != "governor")
        asked = "≥ 0.9" if busy else "≥ 0.97"
        figures = "   ".join(f"{name} {value:6.1f}" for name, value in medians.items())
        name, ratio = "busy" if busy else "idle", medians["governor"] / best
        print(f"{name}: {figures}   ratio {ratio:.2f}   asked {asked}", flush=True)


if __name__ == "__main__":
    main()
