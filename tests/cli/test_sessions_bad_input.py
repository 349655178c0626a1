"""`localrun sessions` with input and places that are no good."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.cli.process import COMMAND, environment, run


def test_without_a_place_for_chats_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("sessions", "ls", LOCALRUN_HOME=str(tmp_path / "file" / "home"))
    assert (done.code, done.out) == (0, b"")
    assert done.err.startswith("no chats yet")


def test_words_that_are_no_text_are_wrong_usage() -> None:
    done = subprocess.run(
        [*(os.fsencode(word) for word in COMMAND), b"sessions", b"search", b"\xff"],
        capture_output=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1


def test_a_file_that_is_nested_too_deeply_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000)
    run("sessions", "import", tmp_path / "deep.json").assert_refused(2, "deep.json", "nested too deeply")
