"""Looking at the store changes nothing, and works where nothing can be changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localrun.errors import StoreError, UsageError
from localrun.store import Store


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a read-only file system answers; the tests may run as a user whom no mode keeps from writing."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)


def filled(path: Path) -> str:
    store = Store.open(path)
    session = store.create_session({})
    store.add(session.id, None, "user", "How do tides work?")
    store.close()
    return session.id


def test_a_store_that_is_not_there_is_empty_and_stays_away(tmp_path: Path) -> None:
    store = Store.open_to_read(tmp_path / "none" / "sessions.db")
    assert store.sessions() == []
    assert store.search("tides") == []
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_store_below_something_that_is_no_folder_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store.open_to_read(tmp_path / "file" / "sessions.db")
    assert store.sessions() == []
    store.close()


@pytest.mark.usefixtures("unwritable")
def test_a_store_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    session = filled(tmp_path / "sessions.db")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    store = Store.open_to_read(tmp_path / "sessions.db")
    assert [found.id for found in store.sessions()] == [session]
    assert [hit.session_id for hit in store.search("tides")] == [session]
    assert store.tree(store.resolve("last").id).nodes
    with pytest.raises(StoreError, match="readonly"):
        store.pin(session)
    store.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.usefixtures("unwritable")
@pytest.mark.parametrize("content", [b"no database at all" * 100, b""])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sessions.db").write_bytes(content)
    with pytest.raises(StoreError):
        Store.open_to_read(tmp_path / "sessions.db")


def test_words_and_names_that_are_no_text_are_wrong_usage(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "sessions.db")
    with pytest.raises(UsageError, match="not UTF-8"):
        store.search("\udcff")
    with pytest.raises(UsageError, match="no session"):
        store.resolve("\udcff")
    assert store.sessions(limit=10**30) == store.search("x", limit=10**30) == []
    store.close()
