"""What the doctor says of files and folders: models, sessions, caches, and the right to use them."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from localrun.doctor import stores, surface
from localrun.engine.kv_store import KVStore
from localrun.paths import default_paths
from localrun.store import Store
from tests.doctor.findings import one
from tests.gguf.writer import write_gguf


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    folder = tmp_path / "hub" / "models--o--r" / "snapshots" / "c"
    folder.mkdir(parents=True)
    return folder


def test_models_are_counted_and_copies_found(hub_cache: Path) -> None:
    assert [finding.status for finding in stores.look_at_stores()] == ["warning"]
    write_gguf(hub_cache / "a-Q4_0.gguf")
    (hub_cache / "b-Q8_0.gguf").write_bytes((hub_cache / "a-Q4_0.gguf").read_bytes())
    write_gguf(hub_cache / "c-F16.gguf", {"general.name": "Tiny Text"})
    found = list(stores.look_at_stores())
    assert "Hugging Face cache: 3 models" in found[0].text
    copies = [finding for finding in found if "2 times" in finding.text]
    assert len(copies) == 1
    assert copies[0].fix is not None
    assert copies[0].fix.startswith("localrun rm hf:o/r")


def test_sessions_are_judged_without_touching_them() -> None:
    assert one(stores.look_at_sessions()).text == "none yet"
    path = default_paths().sessions_db
    store = Store.open(path)
    store.create_session({})
    store.close()
    before = {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()}
    finding = one(stores.look_at_sessions())
    assert finding.status == "ok"
    assert finding.facts == {"chats": 1}
    assert {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()} == before


def test_an_open_database_is_judged_too() -> None:
    store = Store.open(default_paths().sessions_db)
    store.create_session({})
    assert one(stores.look_at_sessions()).status == "ok"
    store.close()


def test_a_damaged_database_is_told_with_the_command_that_saves_it() -> None:
    path = default_paths().sessions_db
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 1000)
    finding = one(stores.look_at_sessions())
    assert finding.status == "error"
    assert finding.fix is not None
    assert ".recover" in finding.fix
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE session (id TEXT PRIMARY KEY, text TEXT)")
    connection.executemany("INSERT INTO session VALUES (?, ?)", [(str(i), "x" * 500) for i in range(500)])
    connection.commit()
    connection.close()
    content = bytearray(path.read_bytes())
    content[8192:40000] = b"\xff" * (40000 - 8192)
    path.write_bytes(content)
    assert one(stores.look_at_sessions()).status == "error"


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_database_that_cannot_be_written_is_not_well(closed: str, modes_count: None) -> None:
    path = default_paths().sessions_db
    store = Store.open(path)
    store.create_session({})
    store.close()
    place = path if closed == "file" else path.parent
    mode = place.stat().st_mode
    place.chmod(mode & ~0o222)
    finding = one(stores.look_at_sessions())
    place.chmod(mode)
    assert finding.status == "error"
    assert finding.text == f"1 chats, sound, but nothing can be saved: {place} cannot be written"
    assert finding.fix == f"chmod u+rw{'x' if closed == 'folder' else ''} {place}"


def test_a_place_where_no_database_can_be_made_is_not_well(home: Path, modes_count: None) -> None:
    home.mkdir(mode=0o500)
    finding = one(stores.look_at_sessions())
    assert finding.status == "error"
    assert finding.text == f"chats cannot be saved: {home} cannot be written"
    assert finding.fix == f"chmod u+rwx {home}"


@pytest.mark.parametrize(
    ("folder", "cost"),
    [
        ("cache", "models cannot be fetched, prompts are not kept"),
        ("cache/kv", "prompts are not kept"),
        ("cache/kv/0123", "prompts of one model are not kept"),
        ("cache/tuning", "measurements are not remembered"),
        ("cache/models", "models cannot be fetched"),
        ("run", "servers are not announced"),
    ],
)
def test_each_folder_that_may_not_be_used_is_told_with_what_it_costs(
    home: Path, modes_count: None, folder: str, cost: str
) -> None:
    place = home / folder
    place.mkdir(parents=True)
    place.chmod(0o000)
    found = list(stores.look_at_caches())
    place.chmod(0o700)
    told = [finding for finding in found if not finding.is_well]
    assert [finding.text for finding in told if cost in finding.text]
    assert told[0].text.startswith(f"{place} cannot be written: ")
    assert told[0].fix == f"chmod u+rwx {place}"


def test_models_in_a_folder_that_cannot_be_read_are_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = home / "cache" / "models"
    scandir = os.scandir

    def refuse(path: object) -> object:
        if path == models:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refuse)
    first = next(iter(stores.look_at_stores()))
    assert first.status == "warning"
    assert first.text == f"{models} cannot be read: models in it are not found"


def test_a_configuration_that_may_not_be_read_is_told_with_the_right_command(home: Path, modes_count: None) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text("model = [")
    (home / "config" / "config.toml").chmod(0o000)
    finding = one(surface.look_at_settings())
    assert finding.fix == f"chmod u+rw {home / 'config' / 'config.toml'}"


def test_caches_are_measured_and_damaged_notes_named() -> None:
    assert one(stores.look_at_caches()).text == "empty"
    folder = default_paths().tuning
    folder.mkdir(parents=True)
    (folder / "memory.json").write_text("{")
    warning, summary = stores.look_at_caches()
    assert warning.status == "warning"
    assert warning.fix == f"rm {folder / 'memory.json'}"
    assert "tuning" in summary.text


def test_a_damaged_block_of_the_prefix_cache_is_named() -> None:
    root = default_paths().kv_blocks
    cache = KVStore(root, "model", block_tokens=4, budget_bytes=1 << 20)
    keys = cache.keys([1, 2, 3, 4, 5, 6, 7, 8])
    for number, key in enumerate(keys):
        cache.save(key, [1 + 4 * number, 2 + 4 * number, 3 + 4 * number, 4 + 4 * number], b"payload")
    cache.close()
    assert one(stores.look_at_caches()).is_well
    block = next(root.glob("*/*.kv"))
    block.write_bytes(block.read_bytes()[:-1])
    warning, _ = stores.look_at_caches()
    assert warning.fix == f"rm {block}"


# self-test ------------------------------------------------------------------------------------------------------------
