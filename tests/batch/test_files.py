"""`generate --batch`: the file that is read is never the file that is written."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from localrun.cli.batch import run_batch
from localrun.errors import UsageError
from localrun.params import GenerationParams

ROWS = '{"prompt": "a"}\n{"prompt": "b"}\n'


def run(source: str, resume: Path | None) -> int:
    responder: Any = None  # never asked: the files are looked at first
    return run_batch(
        responder,
        source,
        GenerationParams(),
        n_parallel=1,
        system=None,
        prompt=None,
        resume=resume,
        quiet=True,
        stats=False,
    )


@pytest.mark.parametrize("name", ["rows.jsonl", "./rows.jsonl", "symbolic", "hard"])
def test_the_input_is_never_resumed_into_by_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    (tmp_path / "symbolic").symlink_to(path)
    os.link(path, tmp_path / "hard")
    with pytest.raises(UsageError, match="same file"):
        run(str(path), tmp_path / name)
    assert path.read_text() == ROWS


def test_an_input_on_stdin_is_not_resumed_into_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    with open(path) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(UsageError, match="same file"):
            run("-", path)
    assert path.read_text() == ROWS


def test_answers_are_not_appended_to_the_input_by_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    with open(path, "a") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(UsageError, match="same file"):
            run(str(path), None)
    assert path.read_text() == ROWS
