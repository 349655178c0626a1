"""Finding what was said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from localrun.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "sessions.db")
    yield opened
    opened.close()


def say(store: Store, *texts: str) -> str:
    session = store.create_session({})
    parent: int | None = None
    for text in texts:
        parent = store.add(session.id, parent, "user", text)
    return session.id


def test_all_words_must_occur_and_the_last_letters_may_be_missing(store: Store) -> None:
    session = say(store, "The quick brown fox", "A lazy dog", "quick silver")
    hits = store.search("qui brow")
    assert [(hit.session_id, hit.number) for hit in hits] == [(session, 1)]
    assert "".join(text for text, _ in hits[0].snippet) == "The quick brown fox"
    assert [text for text, marked in hits[0].snippet if marked] == ["quick", "brown"]


def test_quotes_hold_a_phrase_together(store: Store) -> None:
    say(store, "green eggs and ham", "eggs that are green")
    assert len(store.search("green eggs")) == 2
    assert len(store.search('"green eggs"')) == 1


def test_accents_do_not_matter(store: Store) -> None:
    say(store, "Crème brûlée")
    assert len(store.search("creme brulee")) == 1


@pytest.mark.parametrize("word", ["首都", "東京", "ประเทศ"])
def test_scripts_without_spaces_are_searched_anywhere_in_the_text(store: Store, word: str) -> None:
    say(store, "日本の首都は東京です。", "เมืองหลวงของประเทศไทย")
    assert len(store.search(word)) == 1


@pytest.mark.parametrize(
    "query", ["", "  ", '"', '""', "(", "AND", "a OR", "NEAR(", "x*", "-", "col:x", "%", "_", "\\", "^", "'; --", "\0"]
)
def test_no_query_is_a_syntax_error(store: Store, query: str) -> None:
    say(store, "plain text")
    store.search(query)


def test_punctuation_is_found_literally(store: Store) -> None:
    say(store, "100% sure", "100 sure", "a_b")
    assert len(store.search("%")) == 1
    assert len(store.search("_")) == 1


def test_a_half_written_answer_is_found_once_it_is_closed(store: Store) -> None:
    session = store.create_session({})
    writer = store.begin_answer(session.id, None, {})
    writer.write("nee")
    writer.flush()
    writer.write("dle")
    assert store.search("needle") == []
    writer.finish("interrupted")
    assert len(store.search("needle")) == 1


def test_names_are_searched_too(store: Store) -> None:
    session = say(store, "about nothing")
    store.rename(session, "Holiday plans")
    hits = store.search("holiday")
    assert [(hit.kind, hit.number) for hit in hits] == [("name", 0)]


def test_ten_thousand_messages_are_searched_through_the_index_not_by_reading_them(store: Store) -> None:
    words = [f"word{number}" for number in range(500)]
    with store._database.write() as connection:
        for session in range(100):
            connection.execute("INSERT INTO session (id, created_at, touched_at) VALUES (?, 0, 0)", (f"s{session}",))
        for message in range(10_000):
            connection.execute(
                "INSERT INTO message (id, session_id, number, kind, created_at) VALUES (?, ?, ?, 'user', 0)",
                (message + 1, f"s{message % 100}", message // 100 + 1),
            )
            text = " ".join(words[(message * 7 + offset * 13) % 500] for offset in range(60))
            connection.execute(
                "INSERT INTO segment (message_id, started_at, finish, text, facts) VALUES (?, 0, 'given', ?, ?)",
                (message + 1, text, json.dumps({})),
            )
    assert len(store.search("word42 word55", limit=50)) == 50
    with store._database.read() as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT rowid FROM segment_search WHERE segment_search MATCH 'word42'"
        ).fetchall()
    assert any("VIRTUAL TABLE INDEX" in row["detail"] for row in plan)
