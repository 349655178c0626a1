"""What a schema adds to the time until the first character of a one-shot command. Whole processes, in turns.

    python -m benchmarks.schema_start MODEL.gguf [--rounds N]

`localrun generate` with `--schema` beside the same command without: with a short and a long prompt, with nothing of
the vocabulary on disk and with its tokens there. The prefix cache is off.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import LOCALRUN

SCHEMA = (
    '{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},'
    '"required":["name","age"],"additionalProperties":false}'
)
PROMPTS = {"short": "Invent a person.", "long": " ".join(f"word{i}" for i in range(120)) + " Invent a person."}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        first_character(arguments.model, "short", Path(home), ["--schema", SCHEMA])  # reads the files from the disk
        for prompt in PROMPTS:
            for cold in (False, True):
                measure(arguments.model, prompt, Path(home), arguments.rounds, cold=cold)


def measure(model: Path, prompt: str, home: Path, rounds: int, *, cold: bool) -> None:
    """Print one line: what is added, pair by pair, in wall and in CPU time."""
    plain: list[float] = []
    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(rounds):
        if cold:
            shutil.rmtree(home / "cache" / "vocabularies")
        free = first_character(model, prompt, home, [])
        bound = first_character(model, prompt, home, ["--schema", SCHEMA])
        plain.append(free[0])
        wall.append(bound[0] - free[0])
        cpu.append(bound[1] - free[1])
    state = "first run" if cold else "tokens on disk"
    print(
        f"{prompt:6} prompt, {state:14}  {statistics.median(plain):6.3f} s without a schema; it adds "
        f"{statistics.median(wall):+.3f} s (least {min(wall):+.3f}), {statistics.median(cpu):+.3f} s of CPU time"
    )


def first_character(model: Path, prompt: str, home: Path, extra: list[str]) -> tuple[float, float]:
    """Seconds until the first byte of the answer, and CPU seconds of the whole process."""
    command = [*LOCALRUN, "generate", "-m", model, "--offline", "--no-cache", "--raw", "--temperature", "0", "-n", "24"]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*map(str, command), *extra, PROMPTS[prompt]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LOCALRUN_HOME": str(home)},
    )
    assert process.stdout is not None
    if not os.read(process.stdout.fileno(), 1):
        sys.exit(f"{' '.join(map(str, command))} answered nothing")
    first = time.perf_counter() - started
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return first, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
