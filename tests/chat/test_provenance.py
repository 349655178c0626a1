"""It is known which characters of a prompt came from messages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from localrun.chat.provenance import Marks
from localrun.errors import TemplateError


def test_texts_are_found_where_they_were_put() -> None:
    marks = Marks(["hello", "world"])
    marked = f"<a>{marks.around('hello')}</a><b>{marks.around(' world ')}</b>"
    plain = "<a>hello</a><b> world </b>"
    spans = marks.locate(marked, plain)
    assert spans is not None
    assert [plain[start:end] for start, end in spans] == ["hello", "world"]


def test_trimming_sees_the_same_white_space() -> None:
    marks = Marks([" \n x y \n"])
    marked = marks.around(" \n x y \n")
    assert marked.startswith(" \n ")
    assert marks.locate(marked.strip(), "x y") == ((0, 3),)


def test_a_blank_text_is_left_alone_and_never_missing() -> None:
    marks = Marks([" \n"])
    assert marks.around(" \n") == " \n"
    assert marks.missing("") == set()


def test_a_text_that_is_nowhere_is_missing() -> None:
    marks = Marks(["a", "b"])
    shown = marks.around("a")
    marks.around("b")
    assert marks.missing(shown) == {"b"}


def test_a_text_written_twice_has_two_places() -> None:
    marks = Marks(["ab"])
    marked = marks.around("ab")
    assert marks.locate(f"{marked}-{marked}", "ab-ab") == ((0, 2), (3, 5))


@pytest.mark.parametrize("cut", [lambda text: text[1:], lambda text: text[:-1], lambda text: text[2:-2]])
def test_a_text_that_was_cut_has_no_known_place(cut) -> None:  # type: ignore[no-untyped-def]
    marks = Marks(["abcdef"])
    assert marks.locate(f"<{cut(marks.around('abcdef'))}>", f"<{cut('abcdef')}>") is None


def test_private_characters_of_the_user_are_not_taken_for_marks() -> None:
    text = "\U000f0000x\U000f0001"
    marks = Marks([text])
    marked = marks.around(text)
    assert marks.locate(marked, text) == ((0, 3),)


def test_when_every_private_character_is_used_the_conversation_is_refused() -> None:
    every = "".join(map(chr, [*range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE)]))
    with pytest.raises(TemplateError, match="too many messages, or private-use characters"):
        Marks([every]).around("x")


@pytest.mark.parametrize("write", [repr, json.dumps])
def test_marks_that_a_template_writes_as_escapes_are_read_back(write: Callable[[str], str]) -> None:
    marks = Marks(['a"b'])
    marked = write(f"<{marks.around('a')}>")
    assert marks.locate(marked, write("<a>")) == ((2, 3),)
    assert marks.missing(marked) == set()


def test_escapes_in_a_message_are_not_taken_for_marks() -> None:
    text = r"\U000f0000 \udb80\udc01"
    marks = Marks([text])
    assert marks.locate(marks.around(text), text) == ((0, len(text)),)
