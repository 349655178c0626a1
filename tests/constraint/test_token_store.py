"""Tokens on disk: what comes back is what was kept, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localrun.constraint.token_store import KEPT, TokenStore
from localrun.constraint.tokens import VocabularyTokens

TOKENS = VocabularyTokens([b"", b'{"', "é".encode(), b"\xff\0", b" " * 1401, b"<end>"], (5,), (0, 5))


def the_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_tokens_come_back_to_the_byte(tmp_path: Path) -> None:
    TokenStore(tmp_path).save("a", TOKENS)
    assert TokenStore(tmp_path).load("a") == TOKENS


def test_nothing_comes_back_for_another_vocabulary(tmp_path: Path) -> None:
    TokenStore(tmp_path).save("a", TOKENS)
    assert TokenStore(tmp_path).load("b") is None


@pytest.mark.parametrize("place", [0, 20, 60, -1])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, place: int) -> None:
    TokenStore(tmp_path).save("a", TOKENS)
    data = bytearray(the_file(tmp_path).read_bytes())
    data[place] ^= 1
    the_file(tmp_path).write_bytes(data)
    assert TokenStore(tmp_path).load("a") is None


@pytest.mark.parametrize("left", [0, 10, 50, 100])
def test_a_file_that_was_cut_short_is_as_good_as_none(tmp_path: Path, left: int) -> None:
    TokenStore(tmp_path).save("a", TOKENS)
    the_file(tmp_path).write_bytes(the_file(tmp_path).read_bytes()[:left])
    assert TokenStore(tmp_path).load("a") is None


def test_the_vocabularies_used_last_stay(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    for number in range(KEPT):
        store.save(str(number), TOKENS)
        os.utime(store._path(str(number)), (number, number))
    assert store.load("0") == TOKENS  # used now
    store.save("new", TOKENS)
    assert [store.load(name) is not None for name in ("0", "1", "2", "new")] == [True, False, True, True]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = TokenStore(tmp_path / "file")
    store.save("a", TOKENS)
    assert store.load("a") is None


def test_the_file_of_another_vocabulary_under_this_name_is_not_believed(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.save("a", TOKENS)
    store._path("a").rename(store._path("b"))
    assert store.load("b") is None
    store.save("b", TOKENS)
    assert store.load("b") == TOKENS


@pytest.mark.parametrize("more", [-4, 4, 2**40], ids=["shorter", "longer", "huge and sparse"])
def test_a_file_of_another_length_than_its_head_tells_is_made_again(more: int, tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.save("a", TOKENS)
    os.truncate(the_file(tmp_path), the_file(tmp_path).stat().st_size + more)
    assert store.load("a") is None
    store.save("a", TOKENS)
    assert store.load("a") == TOKENS


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_of_this_name_is_not_waited_for_and_replaced(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    os.mkfifo(store._path("a"))
    assert store.load("a") is None
    store.save("a", TOKENS)
    assert store.load("a") == TOKENS


def test_a_folder_of_this_name_only_costs_time_and_is_left_alone(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    (store._path("a") / "inner").mkdir(parents=True)
    assert store.load("a") is None
    store.save("a", TOKENS)
    assert store.load("a") is None
    assert [file.name for file in store._path("a").iterdir()] == ["inner"]
    assert list(tmp_path.iterdir()) == [store._path("a")]


@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_folder_that_may_not_be_used_only_costs_time(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "vocabularies"
    folder.mkdir()
    store = TokenStore(folder)
    folder.chmod(mode)
    try:
        store.save("a", TOKENS)
        assert store.load("a") in (None, TOKENS)  # an administrator may write everywhere
    finally:
        folder.chmod(0o700)
