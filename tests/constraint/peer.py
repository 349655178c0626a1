"""Runs llama.cpp's grammar engine in a process of its own and reads its verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.sdist import vocabulary_file

Job = tuple[str, list[str]]
"""A grammar, and texts to judge by it."""


def llama_verdicts(jobs: list[Job]) -> list[list[bool] | None]:
    """For each job None if llama.cpp refuses the grammar, else whether it accepts each text."""
    script = Path(__file__).with_name("llama_grammar_peer.py")
    done = subprocess.run(
        [sys.executable, str(script), str(vocabulary_file("gpt-2"))],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[list[bool] | None] = json.loads(done.stdout)
    return answers
