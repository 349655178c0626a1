"""Whole processes measured from outside, in turns.

Knows the kernel's account of a finished process. Two commands are run A B A B …, and the ratio is taken pair by pair,
so that whatever else the machine does strikes both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

LOCALRUN = [sys.executable, "-m", "localrun"]


@dataclass(frozen=True, slots=True)
class Run:
    """One finished process."""

    wall_s: float
    peak_mb: float
    out: bytes


def run(command: Sequence[str | Path], *, stdin: bytes = b"", **environment: str) -> Run:
    """Run a command to its end. Ends the benchmark if it fails.

    Python keeps its bytecode, as an installed package has it, whatever this process was told.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=source,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))[:200]} ended with {process.returncode}")
        out.seek(0)
        return Run(wall, usage.ru_maxrss / 1024, out.read())


@dataclass(frozen=True, slots=True)
class Pair:
    """Medians of two commands, and of the ratio of each pair of runs."""

    ours: float
    theirs: float
    ratio: float


def in_turns(ours: Callable[[], Run], theirs: Callable[[], Run], rounds: int) -> tuple[Pair, Pair]:
    """Wall time and peak memory of both, after one run of each that does not count."""
    ours()
    theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return (
        _pair([(a.wall_s, b.wall_s) for a, b in pairs]),
        _pair([(a.peak_mb, b.peak_mb) for a, b in pairs]),
    )


def _pair(values: list[tuple[float, float]]) -> Pair:
    return Pair(
        statistics.median(a for a, _ in values),
        statistics.median(b for _, b in values),
        statistics.median(a / b for a, b in values),
    )


def tool(name: str) -> Path:
    """One of llama.cpp's own tools, from the folder `LLAMA_CPP_BIN`. Ends the benchmark where it is missing."""
    folder = os.environ.get("LLAMA_CPP_BIN")
    path = Path(folder or ".") / name
    if not folder or not path.is_file():
        sys.exit(f"{name} is not here: LLAMA_CPP_BIN names the folder of llama.cpp's tools")
    return path


def show(name: str, pair: Pair, unit: str, *, asked: str) -> None:
    """One line of a report."""
    print(
        f"{name:<46} {pair.ours:9.2f} {pair.theirs:9.2f} {unit:<4} ratio {pair.ratio:5.2f}   asked {asked}", flush=True
    )
