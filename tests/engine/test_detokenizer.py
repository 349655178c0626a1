"""Streamed text is whole characters, holds no part of a stop string, and is the same however it was cut."""

from __future__ import annotations

import codecs
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localrun.engine.detokenizer import Detokenizer

MIXED = "héllo 🙂 👩‍👩‍👧‍👦 日本語 🇫🇷 e\u0301"


def stream(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[list[str], str | None]:
    detokenizer = Detokenizer(stops)
    shown = [detokenizer.push(piece) for piece in pieces]
    return [*shown, detokenizer.finish()], detokenizer.stopped


def each_byte(text: str) -> list[bytes]:
    return [bytes([byte]) for byte in text.encode()]


def reference(data: bytes, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The definition: of all matches the one that ends first, of those the one that begins first."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
    matches = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not matches:
        return text, None
    end, _, stop = min(matches)
    return text[: end - len(stop)], stop


def test_every_single_byte_of_a_character_waits_for_the_last_one() -> None:
    shown, stopped = stream(each_byte(MIXED))
    assert "".join(shown) == MIXED
    assert all("\ufffd" not in text for text in shown)
    assert stopped is None


def test_a_piece_that_ends_inside_a_character_shows_what_is_whole() -> None:
    first, second = "ab🙂".encode()[:4], "ab🙂".encode()[4:]
    assert stream([first, second])[0] == ["ab", "🙂", ""]


def test_a_character_cut_off_by_the_end_is_left_out_and_its_bytes_are_kept() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.push("ok 🙂".encode()[:-1]) == "ok "
    assert detokenizer.finish() == ""
    assert detokenizer.incomplete == "🙂".encode()[:-1]


def test_invalid_bytes_are_replaced_and_the_text_goes_on() -> None:
    assert "".join(stream([b"a\xff", b"b\xe2", b"c"])[0]) == "a\ufffdb\ufffdc"


def test_a_stop_string_over_many_pieces_is_never_shown() -> None:
    shown, stopped = stream(each_byte("ABCDEFGHIJK"), ("DEFGHIJ",))
    assert shown == ["A", "B", "C", *[""] * 9]
    assert stopped == "DEFGHIJ"


def test_a_near_miss_is_shown_completely() -> None:
    shown, stopped = stream(each_byte("ABCDEFGHIX"), ("DEFGHIJ",))
    assert "".join(shown) == "ABCDEFGHIX"
    assert shown[9] == "DEFGHIX"
    assert stopped is None


def test_text_held_back_at_the_end_is_not_lost() -> None:
    shown, stopped = stream([b"ABCD", b"EF"], ("DEFG",))
    assert shown == ["ABC", "", "DEF"]
    assert stopped is None


@pytest.mark.parametrize(
    ("stops", "text", "shown", "stopped"),
    [
        (("ABC", "AB"), "xABCy", "x", "AB"),
        (("AB", "ABC"), "xABCy", "x", "AB"),
        (("C", "ABC"), "xABCy", "x", "ABC"),
        (("END", "🙂"), "hi 🙂 END", "hi ", "🙂"),
        (("aab",), "aaaab", "aa", "aab"),
        (("\n\n",), "\n\nlater", "", "\n\n"),
        (("abab", "bac"), "abac", "a", "bac"),
    ],
)
def test_the_match_that_ends_first_wins(stops: tuple[str, ...], text: str, shown: str, stopped: str) -> None:
    for pieces in ([text.encode()], each_byte(text)):
        pieces_shown, found = stream(pieces, stops)
        assert ("".join(pieces_shown), found) == (shown, stopped)


def test_nothing_comes_after_a_stop() -> None:
    detokenizer = Detokenizer(("stop",))
    assert detokenizer.push(b"go stop on") == "go "
    assert detokenizer.push(b" and on \xf0") == ""
    assert detokenizer.finish() == ""
    assert detokenizer.incomplete == b""


def test_an_empty_piece_changes_nothing() -> None:
    assert "".join(stream([b"a", b"", b"b"], ("bc",))[0]) == "ab"


ALPHABET = ["a", "b", "é", "日", "🙂"]
stop_strings = st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=3).map(tuple)
streams = st.one_of(
    st.lists(st.sampled_from([char.encode() for char in ALPHABET]), max_size=24).map(b"".join),
    st.lists(st.sampled_from([*(char.encode() for char in ALPHABET), b"\xf0", b"\x9f\x99", b"\xff", b"\xe6"])).map(
        b"".join
    ),
    st.binary(max_size=40),
)


@settings(deadline=None)
@given(data=streams, stops=stop_strings, cuts=st.lists(st.integers(0, 60), max_size=20))
def test_streamed_text_is_the_text_of_the_whole(data: bytes, stops: tuple[str, ...], cuts: list[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    shown, stopped = stream([data[a:b] for a, b in pairwise(edges)], stops)
    assert ("".join(shown), stopped) == reference(data, stops)


@settings(deadline=None)
@given(data=streams, stops=stop_strings)
def test_text_once_shown_is_never_part_of_the_stop_string(data: bytes, stops: tuple[str, ...]) -> None:
    detokenizer = Detokenizer(stops)
    shown = ""
    for byte in data:
        shown += detokenizer.push(bytes([byte]))
        assert not any(stop in shown for stop in stops)
