"""A few tokens of a model that is here: the proof that everything together works.

Runs the command line in a process of its own, with a home that is thrown away, so that a crash or a hang is told and
nothing is left behind. Invariant: it fetches nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from localrun.doctor.finding import Finding
from localrun.errors import LocalrunError

LIMIT_S = 30.0
_EXPECTED_S = 10.0
_LARGEST = 3 * 10**9
"""Bytes of a model that loads and answers in seconds even from a slow disk."""
_TOKENS = 16


def look_at_an_answer(model: Path | None, name: str) -> Iterator[Finding]:
    """Generate a few tokens with the model at `model`; None where the default model is not here."""
    if model is None:
        yield _without(name)
        return
    if model.stat().st_size > _LARGEST:
        yield Finding("self-test", "info", f"left out: {name} is large; `localrun bench {name}` measures it")
        return
    with tempfile.TemporaryDirectory(prefix="localrun-doctor-") as home:
        yield _judge(model, name, home)


def _without(name: str) -> Finding:
    """Why there is no answer without the model: it can be fetched, or nobody knows it."""
    from localrun.catalog.resolve import check_exists

    if not name:
        return Finding("self-test", "info", "left out: the settings do not tell the default model")
    try:
        check_exists(name)
    except LocalrunError as error:
        return Finding("self-test", "warning", f"left out: {error.message}", error.hint)
    return Finding("self-test", "info", f"left out: {name} is not on this machine", f"localrun pull {name}")


def _judge(model: Path, name: str, home: str) -> Finding:
    command = [
        sys.executable, "-m", "localrun", "generate", "--raw", "Once upon a time", "-m", str(model.absolute()),
        "-n", str(_TOKENS), "--temperature", "0", "--ignore-eos", "--ctx", "512", "--offline", "--json",
    ]  # fmt: skip
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LOCALRUN_")}
    environment |= {"LOCALRUN_HOME": home, "LOCALRUN_CACHE": "false"}
    again = f"localrun generate --debug -m {name} hello"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Finding("self-test", "error", f"{name} gave no answer within {LIMIT_S:.0f} s", again)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "no reason given")
        how = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return Finding(
            "self-test", "error", f"{name} could not answer ({how}): {reason.removeprefix('error: ')}", again
        )
    result = json.loads(done.stdout)
    timings = result["timings"]
    text = (
        f"{name}: loaded in {timings['load_s']:.2f} s, {result['usage']['completion_tokens']} tokens at "
        f"{timings['decode_tps']:.0f} tokens/s"
    )
    if timings["total_s"] > _EXPECTED_S:
        return Finding("self-test", "warning", f"{text}: slow", f"localrun bench {name}; see docs/tuning.md", timings)
    return Finding("self-test", "ok", text, facts=timings)
