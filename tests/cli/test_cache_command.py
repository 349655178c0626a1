"""`localrun cache`: a table for people, lines for scripts, one error for what cannot be read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from localrun.cli.main import run
from localrun.engine.kv_store import KVStore
from localrun.paths import default_paths

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def filled() -> Path:
    root = default_paths().kv_blocks
    cache = KVStore(root, "tiny · f16", block_tokens=4, budget_bytes=1 << 20)
    for key in cache.keys([1, 2, 3, 4]):
        cache.save(key, [1, 2, 3, 4], b"payload")
    cache.close()
    return root


@pytest.mark.usefixtures("filled")
def test_only_a_terminal_gets_a_header(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["cache", "ls"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("  tiny · f16")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["cache", "ls"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert row == line
    assert [header.index(word) for word in ("LAST USED", "MODEL")] == [row.index("20"), row.index("tiny")]


def test_what_a_cache_depends_on_is_told_in_words(capsys: Capture) -> None:
    cache = KVStore(default_paths().kv_blocks, "tiny · flash attention False", block_tokens=4, budget_bytes=1 << 20)
    for key in cache.keys([1, 2, 3, 4]):
        cache.save(key, [1, 2, 3, 4], b"payload")
    cache.close()
    assert run(["cache", "ls"]) == 0
    assert capsys.readouterr().out.endswith("  tiny · flash attention off\n")


@pytest.mark.parametrize("command", ["ls", "stats", "clear"])
def test_a_cache_that_may_not_be_looked_into_is_one_error(
    filled: Path, command: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = next(path for path in filled.iterdir() if path.is_dir())
    scandir = os.scandir

    def refuse(path: str | os.PathLike[str]) -> object:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert run(["cache", command]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"error: the prefix cache in {filled} cannot be read: Permission denied",
        f"hint: chmod u+rwx {folder}",
    ]
