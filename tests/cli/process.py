"""Runs the command line as a process, as a shell would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "localrun"]


@dataclass(frozen=True)
class Done:
    """What a process left behind."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def assert_refused(self, code: int, *words: str) -> None:
        """An error as the contract wants it: the code, one clear line, nothing on stdout, no traceback."""
        assert self.code == code, self
        assert self.out == b""
        assert self.err.startswith("error: "), self.err
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        assert len(lines) <= 2
        assert len(lines) == 1 or lines[1].startswith("hint: ")
        for word in words:
            assert word in self.err, (word, self.err)


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with one engine thread, which busy machines forgive, and `changes`."""
    return {**os.environ, "LOCALRUN_THREADS": "1", **changes}


def run(*arguments: str | Path, stdin: bytes | None = None, timeout: float = 120, **variables: str) -> Done:
    """Run `localrun ARGUMENTS`; without `stdin` it is /dev/null."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        timeout=timeout,
        env=environment(**variables),
    )
    return Done(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start `localrun ARGUMENTS` with pipes."""
    values = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **{**values, **options})
