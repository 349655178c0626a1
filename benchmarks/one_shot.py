"""One-shot commands as whole processes, beside `llama-completion`.

    LLAMA_CPP_BIN=… python -m benchmarks.one_shot MODEL.gguf [--rounds 7] [--threads N]

Start-up, sixteen tokens after a short prompt, and sixteen tokens after a document of 2,000 tokens that was asked about
before: without llama.cpp's prompt cache, and with one that was given to it by hand.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import LOCALRUN, Run, in_turns, run, show, tool

PROMPT = "The capital of France is"
WORDS = ("river", "stone", "light", "winter", "garden", "music", "paper", "window", "story", "bread", "silver", "road")
_LOAD = """
import os, sys, time
sys.argv = ["localrun", "generate", "--raw", "-n", "1", "--no-cache", "-m", {model!r}, "Hello"]
import localrun.llama.model as m
def load(*a, **k):
    print(time.clock_gettime(time.CLOCK_BOOTTIME) - start())
    sys.stdout.flush()
    os._exit(0)
def start():
    ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")
m.LlamaModel.load = load
from localrun.cli.main import main
main()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default=str(os.cpu_count() or 1))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALRUN_HOME"] = folder
        start_up(arguments.model, arguments.rounds)
        short(arguments.model, arguments.rounds, arguments.threads)
        document(arguments.model, arguments.rounds, arguments.threads, Path(folder))


def start_up(model: Path, rounds: int) -> None:
    """`--help`, and the moment at which the model begins to load."""
    empty = [run([sys.executable, "-c", "pass"]).wall_s for _ in range(rounds + 1)][1:]
    help_ = [run([*LOCALRUN, "--help"]).wall_s for _ in range(rounds + 1)][1:]
    extra = statistics.median(help_) - statistics.median(empty)
    print(f"localrun --help, beyond an empty interpreter    {extra:6.2f} s      asked ≤ 0.25 s")
    code = _LOAD.format(model=str(model))
    seconds = [float(run([sys.executable, "-c", code]).out) for _ in range(rounds + 1)][1:]
    after = statistics.median(seconds) - statistics.median(empty)
    print(f"generate begins to load, beyond an empty one    {after:6.2f} s      asked ≤ 0.2 s", flush=True)


def _ours(model: Path, threads: str, *more: str | Path, n: int = 16, stdin: bytes = b"") -> Run:
    command = [*LOCALRUN, "generate", "-m", model, "-n", str(n), "--temperature", "0", "--threads", threads, *more]
    return run(command, stdin=stdin)


def _theirs(model: Path, threads: str, *more: str | Path, n: int = 16) -> Run:
    command = [tool("llama-completion"), "-m", model, "-no-cnv", "--no-display-prompt", "-n", str(n), "--temp", "0"]
    return run([*command, "-t", threads, "-fa", "off", *more])


def short(model: Path, rounds: int, threads: str) -> None:
    """Sixteen tokens after a prompt of a few words."""
    wall, memory = in_turns(
        lambda: _ours(model, threads, "--raw", "--no-cache", PROMPT),
        lambda: _theirs(model, threads, "-p", PROMPT),
        rounds,
    )
    show("short prompt, 16 tokens: wall time", wall, "s", asked="≤ 1.3")
    show("short prompt, 16 tokens: peak memory", memory, "MB", asked="≤ 1.3")


def document(model: Path, rounds: int, threads: str, folder: Path) -> None:
    """A second question about a document of some 2,000 tokens."""
    rng = random.Random(1)
    text = " ".join(rng.choice(WORDS) for _ in range(1950))
    document = folder / "document.txt"
    document.write_text(text)

    def ask(number: int) -> Run:
        return _ours(model, threads, "--raw", "--json", "-f", document, f"\n\nQuestion {number}: what is it about?")

    import json

    first = json.loads(ask(0).out)
    second = [json.loads(ask(i).out) for i in range(1, rounds + 1)]
    ratio = statistics.median(r["timings"]["ttft_s"] for r in second) / first["timings"]["ttft_s"]
    reused = second[0]["usage"]["cached_disk_tokens"], second[0]["usage"]["prompt_tokens"]
    print(f"second question, {reused[0]} of {reused[1]} tokens reused: time to first token {ratio:.3f} of the first's"
          f"   asked ≤ 0.1")  # fmt: skip
    counter = iter(range(100, 10_000))
    prompt = folder / "prompt.txt"

    def theirs(*more: str | Path) -> Run:
        prompt.write_text(f"{text}\n\nQuestion {next(counter)}: what is it about?")
        return _theirs(model, threads, "-f", prompt, *more)

    wall, _ = in_turns(lambda: ask(next(counter)), theirs, max(2, rounds // 2))
    show("document, 16 tokens: against no prompt cache", wall, "s", asked="≤ 1/8")
    cache = folder / "prompt.cache"
    wall, _ = in_turns(
        lambda: ask(next(counter)), lambda: theirs("--prompt-cache", cache, "--prompt-cache-all"), rounds
    )
    show("document, 16 tokens: against --prompt-cache", wall, "s", asked="≤ 1.2")


if __name__ == "__main__":
    main()
