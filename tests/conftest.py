"""What holds for every test: a home of its own, no network but loopback, and the real model where it is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh `LOCALRUN_HOME`; the user's own files are never seen."""
    root = tmp_path / "localrun-home"
    monkeypatch.setenv("LOCALRUN_HOME", str(root))
    for name in ("LOCALRUN_MODEL", "LOCALRUN_ENGINE", "NO_COLOR", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def modes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.access` says what a file's mode allows its owner, also where the tests run as root."""

    def access(path: str | os.PathLike[str], wanted: int) -> bool:
        try:
            return (os.stat(path).st_mode >> 6) & wanted == wanted
        except OSError:
            return False

    monkeypatch.setattr(os, "access", access)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The path of SmolLM2-135M-Instruct."""
    from tests import models

    return models.smollm2()


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """The path of Gemma-3-270M, a model with a sliding window."""
    from tests import models

    return models.gemma3()
