"""Mixed requests for a long time: memory must stay flat.

    python -m benchmarks.soak MODEL.gguf [--minutes 30]

Short and long prompts, answers that are cut off, constraints, shifts, several at once, with the disk cache in a folder
of its own. Prints the resident memory once a minute; the last third is compared with the third before it.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from localrun.catalog import ModelFile
from localrun.errors import LocalrunError
from localrun.local import LocalResponder
from localrun.params import ConstraintSpec, EngineParams, GenerationParams, OverflowPolicy, SamplingParams
from localrun.responder import Done, Request

N_PARALLEL = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALRUN_HOME"] = folder
        params = EngineParams(n_ctx=1024, n_parallel=N_PARALLEL)
        responder = LocalResponder(ModelFile(arguments.model, arguments.model.stem, "file"), params)
        samples = soak(responder, arguments.minutes * 60)
        responder.close()
    third = len(samples) // 3
    before, after = statistics.median(samples[third : 2 * third]), statistics.median(samples[2 * third :])
    print(f"resident memory: {before:.0f} MB, then {after:.0f} MB   ratio {after / before:.3f}   asked: flat")


def soak(responder: LocalResponder, seconds: float) -> list[float]:
    """Keep `N_PARALLEL` answers running; resident megabytes, sampled every two seconds."""
    rng = random.Random(1)
    process = psutil.Process()
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running: dict[Any, float] = {}
    samples: list[float] = []
    done = failed = 0
    end = time.monotonic() + seconds
    next_sample, next_line = 0.0, 0.0
    while time.monotonic() < end or running:
        while len(running) < N_PARALLEL and time.monotonic() < end:
            running[responder.start(request(rng), events)] = time.monotonic() + rng.uniform(0.5, 20)
        try:
            answer, event = events.get(timeout=1)
        except queue.Empty:
            continue
        if isinstance(event, Done | LocalrunError):
            running.pop(answer, None)
            done, failed = done + 1, failed + isinstance(event, LocalrunError)
        elif time.monotonic() > running.get(answer, 0):
            answer.stop()
        now = time.monotonic()
        if now > next_sample:
            next_sample = now + 2
            samples.append(process.memory_info().rss / 1e6)
        if now > next_line:
            next_line = now + 60
            print(f"{done:6} answers, {failed} failed, {samples[-1]:.0f} MB", flush=True)
    return samples


def request(rng: random.Random) -> Request:
    """One of many kinds."""
    kind = rng.randrange(5)
    prompt = f"Story number {rng.randrange(6)}: " + "the road went on and on. " * rng.choice((1, 5, 30))
    sampling = SamplingParams(temperature=rng.choice((0.0, 1.0)), repeat_penalty=rng.choice((1.0, 1.2)))
    params = GenerationParams(sampling=sampling, max_tokens=rng.choice((4, 32, 200)))
    if kind == 0:
        params = GenerationParams(sampling=sampling, max_tokens=20, constraint=ConstraintSpec("regex", "[a-z ]{1,60}"))
    elif kind == 1:
        params = GenerationParams(sampling=sampling, max_tokens=1500, on_overflow=OverflowPolicy.SHIFT)
    return Request(params, raw=prompt.encode())


if __name__ == "__main__":
    main()
