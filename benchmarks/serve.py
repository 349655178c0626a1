"""`localrun serve` beside `llama-server`: the same model, slots, threads and requests, in one run.

    python benchmarks/serve.py MODEL.gguf [--clients 8] [--rounds 3] [--requests 3] [--tokens 64] [--threads N]

The peer is `LLAMA_SERVER`, else `llama-server` on the PATH. Both servers run one after the other, alternating; each
client sends its requests one after another, streamed, greedy, never ended by the model. Prompts differ in every request
and share a system text. Figures are medians over the rounds; a ratio above 1 is in favour of localrun.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil

SYSTEM = "You are a careful assistant. " + "Answer every question in full sentences and give an example. " * 4
TOPICS = (
    "rivers",
    "bridges",
    "bread",
    "violins",
    "comets",
    "maps",
    "clocks",
    "whales",
    "glass",
    "cotton",
    "ink",
    "salt",
)


@dataclass(slots=True)
class Round:
    """What the clients of one round saw. Seconds."""

    seconds: float = 0.0
    tokens: int = 0
    cpu: float = 0.0
    """Of the server's process."""
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


async def ask(client: httpx2.AsyncClient, url: str, question: str, tokens: int, seen: Round) -> None:
    """One streamed request."""
    body = {
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = last = time.perf_counter()
    first = True
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if chunk.get("usage") and not chunk["choices"]:
                seen.tokens += chunk["usage"]["completion_tokens"]
            if not chunk["choices"] or not chunk["choices"][0]["delta"].get("content"):
                continue
            now = time.perf_counter()
            if first:
                seen.first.append(now - started)
            else:
                seen.gaps.append(now - last)
            first, last = False, now


async def play(url: str, clients: int, requests: int, tokens: int, salt: int) -> Round:
    """All clients at once."""
    seen = Round()

    async def one(number: int, client: httpx2.AsyncClient) -> None:
        for i in range(requests):
            topic = TOPICS[(number * requests + i) % len(TOPICS)]
            question = f"Question {salt}-{number}-{i}: what should one know about {topic}?"
            # Half to one and a half times as long, so that clients do not walk in step.
            length = tokens // 2 + (tokens * ((7 * number + 3 * i) % 8)) // 8
            await ask(client, url, question, max(1, length), seen)

    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=0)
    async with httpx2.AsyncClient(timeout=600, limits=limits) as client:
        started = time.perf_counter()
        await asyncio.gather(*(one(number, client) for number in range(clients)))
        seen.seconds = time.perf_counter() - started
    return seen


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A server, ready to answer."""
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} ended:\n{log.read_text()[-2000:]}")
            if is_ready(url):
                break
            time.sleep(0.1)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def is_ready(url: str) -> bool:
    """Whether the server answers, and has its model."""
    try:
        return httpx2.get(f"{url}/health").status_code == 200
    except httpx2.TransportError:
        return False


def commands(args: argparse.Namespace) -> dict[str, tuple[list[str], int]]:
    """Both servers with the same settings."""
    peer = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if peer is None:
        raise SystemExit("llama-server is not on the PATH; LLAMA_SERVER can name it")
    ours, theirs = free_port(), free_port()
    threads, n = str(args.threads), str(args.clients)
    localrun = [sys.executable, "-m", "localrun", "serve", "-m", args.model, "--port", str(ours), "--parallel", n]
    localrun += ["--ctx", str(args.ctx), "--threads", threads, "--no-flash-attention", "--quiet"]
    llama = [peer, "-m", args.model, "--port", str(theirs), "-np", n, "-c", str(args.ctx * args.clients)]
    llama += ["-t", threads, "-tb", threads, "-fa", "off", "--no-webui"]
    return {"localrun": (localrun, ours), "llama-server": (llama, theirs)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--logs", type=Path, default=Path("."))
    args = parser.parse_args()
    found: dict[str, list[Round]] = {"localrun": [], "llama-server": []}
    for number in range(args.rounds):
        for name, (command, port) in sorted(commands(args).items(), reverse=number % 2 == 1):
            with running(command, port, args.logs / f"{name}.log") as (url, process):
                asyncio.run(play(url, args.clients, 1, 8, 1000 + number))  # warm
                before = process.cpu_times()
                seen = asyncio.run(play(url, args.clients, args.requests, args.tokens, number))
                after = process.cpu_times()
                seen.cpu = after.user + after.system - before.user - before.system
                found[name].append(seen)
    report(found)


def report(found: dict[str, list[Round]]) -> None:
    """One line a figure: ours, theirs, the ratio of the medians."""
    figures = {
        "tokens/s in total": lambda r: r.rate,
        "CPU of the server per token (ms)": lambda r: 1000 * r.cpu / r.tokens,
        "time to first token, median (ms)": lambda r: 1000 * statistics.median(r.first),
        "time to first token, p99 (ms)": lambda r: 1000 * quantile(r.first, 0.99),
        "between tokens, median (ms)": lambda r: 1000 * statistics.median(r.gaps),
        "between tokens, p99 (ms)": lambda r: 1000 * quantile(r.gaps, 0.99),
    }
    print(f"{'':36}{'localrun':>10}{'llama-server':>14}{'ratio':>8}")
    for title, figure in figures.items():
        ours, theirs = (statistics.median(map(figure, found[name])) for name in ("localrun", "llama-server"))
        ratio = ours / theirs if "tokens/s" in title else theirs / ours
        print(f"{title:36}{ours:>10.1f}{theirs:>14.1f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
