"""What the session store promises about sessions and trees."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from localrun.errors import StoreError, UsageError
from localrun.store import Attachment, Store, from_json, read_session_file, to_json


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "sessions.db", flush_s=0.01)
    yield opened
    opened.close()


def answer(store: Store, session_id: str, parent: int, text: str, finish: str = "stop") -> int:
    writer = store.begin_answer(session_id, parent, {"seed": 7})
    writer.write(text)
    writer.finish(finish)
    return writer.message_id


def test_a_conversation_is_read_back_as_it_was_written(store: Store) -> None:
    session = store.create_session({"system": "Be brief."})
    question = store.add(session.id, None, "user", "Why?", attachments=[Attachment("a.txt", "one\ntwo")])
    writer = store.begin_answer(session.id, question, {"seed": 7, "model": {"name": "m"}})
    writer.write(reasoning="hm ")
    writer.write("Because", reasoning="so")
    writer.write(".")
    writer.finish("stop", {"seed": 7, "usage": {"completion_tokens": 2}})

    tree = store.tree(session.id)
    first, second = tree.head_path
    assert (first.text, first.attachments) == ("Why?", (Attachment("a.txt", "one\ntwo"),))
    assert (second.text, second.reasoning, second.finish) == ("Because.", "hm so", "stop")
    assert second.facts == {"seed": 7, "usage": {"completion_tokens": 2}}
    assert [node.number for node in tree.head_path] == [1, 2]
    assert tree.session.settings == {"system": "Be brief."}
    assert store.check() == []


def test_a_second_answer_is_a_sibling_and_moving_back_finds_the_newest_leaf(store: Store) -> None:
    session = store.create_session({})
    question = store.add(session.id, None, "user", "Why?")
    first = answer(store, session.id, question, "A")
    deeper = store.add(session.id, first, "user", "And?")
    second = answer(store, session.id, question, "B")

    tree = store.tree(session.id)
    assert [node.text for node in tree.siblings(second)] == ["A", "B"]
    assert tree.session.head_id == second
    assert tree.newest_leaf(first).id == deeper
    store.set_head(session.id, deeper)
    assert [node.text for node in store.tree(session.id).head_path] == ["Why?", "A", "And?"]


def test_a_continued_answer_is_one_text_of_two_runs(store: Store) -> None:
    session = store.create_session({})
    question = store.add(session.id, None, "user", "Count")
    message = answer(store, session.id, question, "1 2", "interrupted")
    writer = store.continue_answer(message, {"seed": 8})
    writer.write(" 3")
    writer.finish("stop")

    node = store.tree(session.id).nodes[message]
    assert (node.text, node.finish) == ("1 2 3", "stop")
    assert [segment.facts["seed"] for segment in node.segments] == [7, 8]


def test_an_answer_that_is_being_written_cannot_be_continued(store: Store) -> None:
    session = store.create_session({})
    writer = store.begin_answer(session.id, store.add(session.id, None, "user", "x"), {})
    with pytest.raises(StoreError, match="is writing"):
        store.continue_answer(writer.message_id, {})
    writer.finish("stop")


def test_what_is_being_written_can_be_read_meanwhile(store: Store) -> None:
    session = store.create_session({})
    writer = store.begin_answer(session.id, store.add(session.id, None, "user", "x"), {})
    writer.write("half")
    writer.flush()
    node = store.tree(session.id).nodes[writer.message_id]
    assert (node.text, node.finish) == ("half", None)
    writer.finish("stop")


def test_what_was_written_is_saved_soon_even_if_nothing_follows(store: Store) -> None:
    session = store.create_session({})
    writer = store.begin_answer(session.id, store.add(session.id, None, "user", "x"), {})
    writer.write("alone")
    saved = threading.Event()
    for _ in range(500):  # the timer of the fixture is 10 ms; this waits 5 s at most
        if store.tree(session.id).nodes[writer.message_id].text == "alone":
            saved.set()
            break
        saved.wait(0.01)
    assert saved.is_set()
    writer.finish("stop")


def test_a_closed_segment_cannot_be_changed(store: Store) -> None:
    session = store.create_session({})
    store.add(session.id, None, "user", "said")
    with pytest.raises(StoreError, match="never changes"), store._database.write() as connection:
        connection.execute("UPDATE segment SET text = 'unsaid'")


def test_a_session_is_named_by_its_first_exchange_until_the_user_names_it(store: Store) -> None:
    session = store.create_session({})
    store.name_after_exchange(session.id, "Hello! How do tides work?\nIn detail.", "The moon…")
    assert store.session(session.id).name == "How do tides work?"
    store.name_after_exchange(session.id, "Something else entirely", "")
    assert store.session(session.id).name == "How do tides work?"
    store.rename(session.id, "  My \n tides ")
    store.name_after_exchange(session.id, "Again", "")
    assert store.session(session.id).name == "My tides"
    with pytest.raises(UsageError):
        store.rename(session.id, " \n")


def test_small_talk_names_a_session_only_until_something_is_said(store: Store) -> None:
    session = store.create_session({})
    store.name_after_exchange(session.id, "hi")
    assert store.session(session.id).name == ""
    store.name_after_exchange(session.id, "hi", "Hello! What shall we talk about?")
    assert store.session(session.id).name == "What shall we talk about?"
    store.name_after_exchange(session.id, "how are you?", "Very well.")
    assert store.session(session.id).name == "What shall we talk about?"
    store.name_after_exchange(session.id, "How do tides work?")
    assert store.session(session.id).name == "How do tides work?"
    store.name_after_exchange(session.id, "And the moon?")
    assert store.session(session.id).name == "How do tides work?"


def test_an_imported_chat_keeps_its_age_so_last_is_the_one_talked_in_last(store: Store, tmp_path: Path) -> None:
    session = store.create_session({})
    store.add(session.id, None, "user", "said today")
    transcript = tmp_path / "old.md"
    transcript.write_text("# Old\n\n## User\n\nhi\n\n## Assistant\n\nhello\n")
    os.utime(transcript, (1_000_000_000, 1_000_000_000))
    imported = store.load(read_session_file(transcript))
    assert imported.touched_at == imported.created_at == 1_000_000_000
    exported = store.tree(imported.id)
    assert store.load(from_json(to_json(exported))).touched_at == 1_000_000_000
    assert store.resolve("last").id == session.id


def test_the_trash_hides_a_session_and_gives_it_back(store: Store) -> None:
    session = store.create_session({})
    store.add(session.id, None, "user", "needle")
    store.trash(session.id)
    assert store.sessions() == []
    assert store.search("needle") == []
    assert [trashed.id for trashed in store.sessions(trashed=True)] == [session.id]
    store.restore(session.id)
    assert [found.id for found in store.sessions()] == [session.id]
    assert len(store.search("needle")) == 1


def test_pinned_sessions_come_first_then_the_latest(tmp_path: Path) -> None:
    now = [100.0]
    store = Store.open(tmp_path / "s.db", clock=lambda: now[0])
    ids = []
    for _ in range(3):
        now[0] += 1
        ids.append(store.create_session({}).id)
    store.pin(ids[0])
    assert [session.id for session in store.sessions()] == [ids[0], ids[2], ids[1]]
    store.close()


def test_a_long_session_can_be_deleted_for_good(store: Store) -> None:
    session = store.create_session({})
    parent: int | None = None
    for index in range(1100):  # more than SQLite's depth of nested triggers
        parent = _add_fast(store, session.id, parent, f"message {index}")
    store.delete(session.id)
    assert store.sessions() == []
    assert store.search("message") == []
    assert store.check() == []


def _add_fast(store: Store, session_id: str, parent: int | None, text: str) -> int:
    store._database._connection.execute("PRAGMA synchronous = OFF")
    return store.add(session_id, parent, "user", text)


def test_sessions_are_found_by_the_beginning_of_their_id(store: Store) -> None:
    session = store.create_session({})
    assert store.resolve(session.id[:4]).id == session.id
    assert store.resolve("last").id == session.id
    with pytest.raises(UsageError, match="no session 'zzzzzzz'"):
        store.resolve("zzzzzzz")
    with pytest.raises(UsageError, match="no session ''"):
        store.resolve("")


def test_an_ambiguous_beginning_is_refused(store: Store) -> None:
    for _ in range(60):  # more sessions than letters: two share their first
        store.create_session({})
    letters = [session.id[0] for session in store.sessions()]
    shared = next(letter for letter in letters if letters.count(letter) > 1)
    with pytest.raises(UsageError, match="several sessions"):
        store.resolve(shared)


def test_changing_a_session_that_another_process_deleted_is_an_error(store: Store) -> None:
    session = store.create_session({})
    store.delete(session.id)
    with pytest.raises(StoreError, match="is gone"):
        store.pin(session.id)
    with pytest.raises(StoreError, match="is gone"):
        store.tree(session.id)


def test_text_from_a_broken_terminal_is_stored_visibly_damaged(store: Store) -> None:
    session = store.create_session({})
    store.add(session.id, None, "user", "a\ud800b\0c")
    assert store.tree(session.id).head_path[0].text == "a?b\0c"


def test_several_threads_may_write_at_once(store: Store) -> None:
    session = store.create_session({})
    question = store.add(session.id, None, "user", "x")

    def run(name: str) -> None:
        writer = store.begin_answer(session.id, question, {})
        for _ in range(20):
            writer.write(name)
            writer.flush()
        writer.finish("stop")

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = {node.text for node in store.tree(session.id).children(question)}
    assert texts == {"a" * 20, "b" * 20, "c" * 20}
