"""Every measurement, one after another, beside the tools of others: the ratios of the table in README.md.

    python -m benchmarks [MODEL.gguf] [--only NAME …] [--skip NAME …] [--threads N]

MODEL is the default model's file if it is left out, fetched if need be. llama.cpp's own tools are taken from
`LLAMA_CPP_BIN`; without it they are built once from the sources of the installed engine, in the user's cache (about ten
minutes on two cores; needs CMake and a C++ compiler). Ends with 1 if a measurement failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers import llama_cpp_tools
from localrun.catalog import load_catalogue, resolve

MEASUREMENTS: dict[str, list[str]] = {
    "one_shot": ["-m", "benchmarks.one_shot"],
    "batch": ["-m", "benchmarks.batch", "--rows", "200", "--prefix", "500"],
    "same_text": ["-m", "benchmarks.same_text"],
    "speculation": ["-m", "benchmarks.speculation"],
    "busy": ["-m", "benchmarks.busy"],
    "llama_bench": ["benchmarks/llama_bench.py", "--depth", "512"],
    "constraint_speed": ["benchmarks/constraint_speed.py"],
    "constraint_validity": ["benchmarks/constraint_validity.py"],
    "schema_start": ["-m", "benchmarks.schema_start"],
    "serve": ["benchmarks/serve.py"],
    "typing_latency": ["benchmarks/typing_latency.py"],
    "follow_up": ["-m", "benchmarks.follow_up"],
}
WITHOUT_MODEL = {"typing_latency"}
NEEDS = {"follow_up": "HEARTH"}
"""Measurements beside a tool that is not built here, and the variable that names it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS)
    parser.add_argument("--skip", action="append", choices=MEASUREMENTS, default=[])
    arguments = parser.parse_args()
    model = arguments.model or resolve(load_catalogue().default).path
    tools = llama_cpp_tools()
    environment = {
        **os.environ,
        "LLAMA_CPP_BIN": str(tools),
        "LLAMA_BENCH": str(tools / "llama-bench"),
        "LLAMA_SERVER": str(tools / "llama-server"),
        "LLAMA_COMPLETION": str(tools / "llama-completion"),
    }
    failed = []
    for name in arguments.only or [name for name in MEASUREMENTS if name not in arguments.skip]:
        print(f"\n== {name}", flush=True)
        if (variable := NEEDS.get(name)) and variable not in os.environ:
            print(f"left out: {variable} names no command")
            continue
        command = [sys.executable, *MEASUREMENTS[name], *([] if name in WITHOUT_MODEL else [str(model)])]
        started = time.monotonic()
        code = subprocess.run(command, env=environment, check=False).returncode
        print(f"({time.monotonic() - started:.0f} s)", flush=True)
        if code:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
