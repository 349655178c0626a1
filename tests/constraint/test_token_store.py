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
