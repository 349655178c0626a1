"""Loopback servers, an empty hub cache, and a machine without other tools' models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.catalog.servers import Served, hub_server, index_server, web_server
from tests.gguf.writer import gguf_bytes


@dataclass
class Recorder:
    """A `Progress` that remembers what it was told, and can interrupt."""

    notes: list[str] = field(default_factory=list)
    transfers: list[tuple[str, int | None, int]] = field(default_factory=list)
    done: int = 0
    open: int = 0
    interrupt_at: int | None = None

    def note(self, text: str) -> None:
        self.notes.append(text)

    def start(self, label: str, total: int | None, done: int) -> None:
        self.transfers.append((label, total, done))
        self.open += 1

    def update(self, done: int) -> None:
        self.done = done
        if self.interrupt_at is not None and done >= self.interrupt_at:
            raise KeyboardInterrupt

    def finish(self) -> None:
        self.open -= 1


@pytest.fixture
def progress() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    assert recorder.open == 0


@pytest.fixture(scope="session")
def big_model() -> bytes:
    """A small but real model file of a few megabytes."""
    return gguf_bytes(tensors=[("token_embd.weight", (64, 4), 0), ("w", (1024, 1024), 0)])


@pytest.fixture(autouse=True)
def other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home without any models, and no settings of other tools in the environment."""
    user_home = tmp_path / "user-home"
    user_home.mkdir()
    monkeypatch.setenv("HOME", str(user_home))
    for name in (
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_HOME",
        "XDG_CACHE_HOME",
        "HF_HUB_OFFLINE",
        "OLLAMA_MODELS",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return user_home


@pytest.fixture
def hub_cache(other_tools: Path) -> Path:
    return other_tools / ".cache" / "huggingface" / "hub"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with hub_server() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
        yield served


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub refuses connections."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A package index that pip uses instead of everything else."""
    import os

    with index_server() as served:
        for name in list(os.environ):
            if name.startswith("PIP_"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/simple/")
        yield served


@pytest.fixture
def web() -> Iterator[Served]:
    with web_server() as served:
        yield served
