"""A follow-up question after everything was shut down: one process of ours beside a caching proxy with a fresh server.

    LLAMA_CPP_BIN=… HEARTH=…/hearth python -m benchmarks.follow_up MODEL.gguf [--rounds 5] [--threads N]

A chat about a document of some 2,000 tokens is saved; then each round asks one more question and takes sixteen tokens:
`localrun generate --session` as a whole process, and the same conversation sent to `hearth` (PyPI: hearth-llm), which
has just started llama-server and restores its snapshot. Their time is taken twice: of the request alone, and with the
start of the server that a process of ours does not need.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.one_shot import WORDS
from benchmarks.processes import LOCALRUN, run, tool

N = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default=str(os.cpu_count() or 1))
    arguments = parser.parse_args()
    hearth = os.environ.get("HEARTH")
    if hearth is None:
        sys.exit("hearth is not here: HEARTH names its command")
    rng = random.Random(1)
    question = " ".join(rng.choice(WORDS) for _ in range(1950)) + ". What is this about?"
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Ours(arguments, Path(folder)), Theirs(arguments, hearth, Path(folder))
        ours.first(question)
        theirs.ask(question)
        pairs = [(ours.ask(f"And what else? {i}"), *theirs.ask(f"And what else? {i}")) for i in range(arguments.rounds)]
    us, request, whole = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(f"localrun generate --session, whole process          {us:6.2f} s")
    for name, seconds, place in (("the request alone", request, 1), ("with the server's start", whole, 2)):
        ratio = statistics.median(pair[0] / pair[place] for pair in pairs)
        print(f"hearth and a fresh llama-server, {name:23} {seconds:6.2f} s   ratio {ratio:5.2f}   asked ≤ 0.5")


class Ours:
    """A saved chat."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        os.environ["LOCALRUN_HOME"] = str(folder / "home")
        model = ["-m", arguments.model]
        self._options = ["-n", str(N), "--temperature", "0", "--threads", arguments.threads]
        self._chat = [*LOCALRUN, "chat", "--plain", str(arguments.model), *self._options]
        self._generate = [*LOCALRUN, "generate", *model, *self._options, "--ignore-eos", "--session", "last"]

    def first(self, question: str) -> None:
        run(self._chat, stdin=f"{question}\n".encode())

    def ask(self, question: str) -> float:
        return run([*self._generate, question]).wall_s


class Theirs:
    """The same conversation, with a server that is started for each question."""

    def __init__(self, arguments: argparse.Namespace, hearth: str, folder: Path) -> None:
        self._messages: list[dict[str, str]] = []
        self._port, upstream = free_port(), free_port()
        self._command = [
            hearth, "serve", "--model", str(arguments.model), "--port", str(self._port), "--upstream-port",
            str(upstream), "--ctx", "8192", "--cache-dir", str(folder / "hearth"), "--", "-t", arguments.threads,
            "-fa", "off", "--no-webui",
        ]  # fmt: skip
        self._environment = {**os.environ, "PATH": f"{tool('llama-server').parent}:{os.environ['PATH']}"}

    def ask(self, question: str) -> tuple[float, float]:
        """Seconds of the request, and with the server's start."""
        self._messages.append({"role": "user", "content": question})
        body = {"messages": self._messages, "max_tokens": N, "temperature": 0, "ignore_eos": True}
        started = time.perf_counter()
        with self._serving() as url:
            ready = time.perf_counter()
            answer = post(f"{url}/v1/chat/completions", body)
            done = time.perf_counter()
            self._messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            time.sleep(1)  # it saves after the answer
        return done - ready, done - started

    @contextmanager
    def _serving(self) -> Iterator[str]:
        url = f"http://127.0.0.1:{self._port}"
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(self._command, stdout=quiet, stderr=quiet, env=self._environment)
        try:
            while not answers(f"{url}/v1/models"):
                if process.poll() is not None:
                    sys.exit(f"{self._command[0]} ended with {process.returncode}")
                time.sleep(0.01)
            yield url
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def post(url: str, body: dict[str, object]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        sys.exit(f"{url} answered {error.code}: {error.read()[:300]!r}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
