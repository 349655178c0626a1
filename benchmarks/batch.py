"""Many prompts at once: against one at a time, one process a row, and `llama-server` with eight slots.

    LLAMA_CPP_BIN=… python -m benchmarks.batch MODEL.gguf [--rows 64] [--prefix 300] [--tokens 64] [--threads N]

All rows share a system prompt. Tokens are counted as generated; figures are tokens a second over the whole run, model
loading left out for the engines that stay. Ends with the time between tokens while a long prompt is being computed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import run, tool
from localrun.catalog import ModelFile
from localrun.errors import LocalrunError
from localrun.local import LocalResponder
from localrun.params import EngineParams, GenerationParams, SamplingParams
from localrun.responder import Done, Request, TextPiece

GREEDY = SamplingParams(temperature=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--prefix", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALRUN_HOME"] = folder
        rows = prompts(a.rows, a.prefix)
        few = max(4, a.rows // 8)
        single = engine_rate(a.model, rows[:few], 1, a.tokens, a.threads)
        eight = engine_rate(a.model, rows, 8, a.tokens, a.threads)
        report("eight at once", eight, "one at a time", single, asked="≥ 2")
        each = process_rate(a.model, rows[:few], a.tokens, a.threads)
        report("eight at once", eight, "one llama-completion a row", each, asked="≥ 5")
        server = server_rate(a.model, rows, a.tokens, a.threads)
        report("eight at once", eight, "llama-server -np 8", server, asked="≥ 1.5")
        stretch = tail(a.model, a.threads)
        print(f"time between tokens while 4,000 tokens are computed: p99 {stretch:.2f} × median   asked ≤ 3")


def report(name: str, ours: float, other: str, theirs: float, *, asked: str) -> None:
    """One line: tokens a second of both, and their ratio."""
    print(f"{name} {ours:7.1f}   {other:<27}{theirs:7.1f}   ratio {ours / theirs:5.2f}   asked {asked}", flush=True)


def prompts(n: int, n_prefix: int) -> list[str]:
    system = " ".join(f"Rule {i}: answer with care." for i in range(n_prefix // 7))
    return [f"{system}\nQuestion {i}: what is the number {i} good for?\nAnswer:" for i in range(n)]


def responder(model: Path, n_parallel: int, threads: int, n_ctx: int = 2048) -> LocalResponder:
    params = EngineParams(n_ctx=n_ctx, n_parallel=n_parallel, threads=threads)
    made = LocalResponder(ModelFile(model, model.stem, "file"), params)
    made.wait_loaded()
    return made


def request(prompt: str, n: int, *, endless: bool = True) -> Request:
    return Request(GenerationParams(sampling=GREEDY, max_tokens=n, ignore_eos=endless), raw=prompt.encode())


def engine_rate(model: Path, rows: list[str], n_parallel: int, n_tokens: int, threads: int) -> float:
    """Tokens a second of the engine with so many sequences."""
    engine = responder(model, n_parallel, threads)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    started = time.perf_counter()
    waiting = [request(row, n_tokens) for row in rows]
    answers = [engine.start(waiting.pop(0), events) for _ in range(min(n_parallel + 4, len(waiting)))]
    done = tokens = 0
    while done < len(rows):
        _, event = events.get()
        if isinstance(event, LocalrunError):
            sys.exit(str(event))
        if isinstance(event, Done):
            done += 1
            tokens += event.result.usage.completion_tokens
            if waiting:
                answers.append(engine.start(waiting.pop(0), events))
    seconds = time.perf_counter() - started
    engine.close()
    return tokens / seconds


def process_rate(model: Path, rows: list[str], n_tokens: int, threads: int) -> float:
    """Tokens a second of one llama-completion process a row."""
    command = [tool("llama-completion"), "-m", model, "-no-cnv", "-n", str(n_tokens), "--temp", "0", "--ignore-eos"]
    started = time.perf_counter()
    for row in rows:
        run([*command, "-t", str(threads), "-fa", "off", "-p", row])
    return n_tokens * len(rows) / (time.perf_counter() - started)


@contextmanager
def server(model: Path, threads: int) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [tool("llama-server"), "-m", model, "-np", "8", "-c", str(8 * 2048), "-t", str(threads), "-fa", "off"]
    process = subprocess.Popen(
        [*map(str, command), "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1)
                break
            except OSError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def server_rate(model: Path, rows: list[str], n_tokens: int, threads: int) -> float:
    """Tokens a second of llama-server with eight slots and eight clients."""
    with server(model, threads) as url, ThreadPoolExecutor(8) as pool:

        def ask(row: str) -> int:
            body = {"prompt": row, "n_predict": n_tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
            data = json.dumps(body).encode()
            call = urllib.request.Request(f"{url}/completion", data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(call, timeout=600) as answer:
                return int(json.load(answer)["tokens_predicted"])

        started = time.perf_counter()
        tokens = sum(pool.map(ask, rows))
        return tokens / (time.perf_counter() - started)


def tail(model: Path, threads: int) -> float:
    """99th percentile of the time between the tokens of four answers, over its median, beside a long prompt."""
    engine = responder(model, 5, threads, n_ctx=8192)
    gaps: list[float] = []
    ready = threading.Barrier(5)
    computed = threading.Event()

    def talk(number: int) -> None:
        last = 0.0
        for event in engine.respond(request(f"Story {number}:", 4000)):
            if isinstance(event, TextPiece):
                now = time.perf_counter()
                if not last:
                    ready.wait()
                elif not computed.is_set():
                    gaps.append(now - last)
                last = now
                if computed.is_set():
                    return

    talkers = [threading.Thread(target=talk, args=(i,)) for i in range(4)]
    for talker in talkers:
        talker.start()
    ready.wait()
    time.sleep(1)
    for event in engine.respond(request("word " * 3990, 1)):
        if isinstance(event, Done):
            computed.set()
    for talker in talkers:
        talker.join()
    engine.close()
    gaps.sort()
    return gaps[int(len(gaps) * 0.99)] / statistics.median(gaps)


if __name__ == "__main__":
    main()
