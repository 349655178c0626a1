"""A crash at any write, a kill at any time, a file that is damaged, old or new: nothing acknowledged is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from localrun.errors import StoreError
from localrun.store import CRASHED, Attachment, Store
from localrun.store.owner import is_gone, this_process
from localrun.store.schema import MIGRATIONS


class Crash(BaseException):
    """The program ends here."""


class FailingConnection(sqlite3.Connection):
    """Fails at the statement that `countdown` says, and at every one after it (a full disk stays full)."""

    countdown = 10**9
    failure: type[BaseException] = sqlite3.OperationalError

    def execute(self, sql: str, *args: object) -> sqlite3.Cursor:
        cls = type(self)
        cls.countdown -= 1
        if cls.countdown < 0 and not sql.startswith("ROLLBACK"):
            raise cls.failure("database or disk is full")
        return super().execute(sql, *args)


def converse(store: Store, done: list[str]) -> None:
    """A short life of a session; what has been acknowledged is noted in `done`."""
    session = store.create_session({"system": "s"})
    done.append(f"session {session.id}")
    question = store.add(session.id, None, "user", "question", attachments=[Attachment("a", "file")])
    done.append("question")
    writer = store.begin_answer(session.id, question, {})
    for piece in ("one ", "two ", "three "):
        writer.write(piece)
        writer.flush()
        done.append(piece)
    writer.finish("stop")
    done.append("finish")
    store.rename(session.id, "named")
    done.append("name")


def count_statements(tmp_path: Path) -> int:
    FailingConnection.countdown = 10**9
    store = Store.open(tmp_path / "count.db", factory=FailingConnection)
    before = FailingConnection.countdown
    converse(store, [])
    store.close()
    return before - FailingConnection.countdown


@pytest.mark.parametrize("failure", [sqlite3.OperationalError, Crash])
def test_a_failure_at_any_statement_loses_nothing_that_was_acknowledged(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    total = count_statements(tmp_path)
    assert total > 20
    FailingConnection.failure = failure
    for statement in range(total):
        path = tmp_path / f"{failure.__name__}-{statement}.db"
        FailingConnection.countdown = 10**9
        store = Store.open(path, factory=FailingConnection, flush_s=3600)
        FailingConnection.countdown = statement
        done: list[str] = []
        with pytest.raises((StoreError, Crash)):
            converse(store, done)
        FailingConnection.countdown = 10**9
        store.close()

        again = Store.open(path)
        assert again.check() == []
        check_acknowledged(again, done)
        again.close()


def check_acknowledged(store: Store, done: list[str]) -> None:
    sessions = store.sessions()
    if not done:
        return
    assert [f"session {session.id}" for session in sessions] == done[:1]
    path = store.tree(sessions[0].id).head_path
    if "question" in done:
        assert path[0].text == "question"
        assert path[0].attachments == (Attachment("a", "file"),)
    pieces = [piece for piece in done if piece.endswith(" ")]
    if pieces:
        assert path[1].text.startswith("".join(pieces))
    if "finish" in done:
        assert path[1].finish == "stop"
    if "name" in done:
        assert sessions[0].name == "named"


def test_a_failed_flush_keeps_the_text_for_the_next_one(tmp_path: Path) -> None:
    FailingConnection.failure = sqlite3.OperationalError
    FailingConnection.countdown = 10**9
    store = Store.open(tmp_path / "s.db", factory=FailingConnection, flush_s=3600)
    session = store.create_session({})
    writer = store.begin_answer(session.id, None, {})
    writer.write("kept")
    FailingConnection.countdown = 0
    with pytest.raises(StoreError, match="disk is full") as caught:
        writer.flush()
    assert caught.value.hint is not None
    FailingConnection.countdown = 10**9
    writer.finish("stop")
    assert store.tree(session.id).nodes[writer.message_id].text == "kept"
    store.close()


def test_a_failure_in_the_background_is_reported_by_the_next_write(tmp_path: Path) -> None:
    FailingConnection.failure = sqlite3.OperationalError
    FailingConnection.countdown = 10**9
    store = Store.open(tmp_path / "s.db", factory=FailingConnection, flush_s=0.01)
    session = store.create_session({})
    writer = store.begin_answer(session.id, None, {})
    FailingConnection.countdown = 0
    writer.write("a")
    wait = threading.Event()
    for _ in range(500):
        if writer._failure is not None:
            break
        wait.wait(0.01)
    with pytest.raises(StoreError, match="disk is full"):
        writer.write("b")
    FailingConnection.countdown = 10**9
    writer.finish("stop")
    assert store.tree(session.id).nodes[writer.message_id].text == "ab"
    store.close()


VICTIM = """
import sys, time
from pathlib import Path
from localrun.store import Store
store = Store.open(Path(sys.argv[1]))
session = store.create_session({})
writer = store.begin_answer(session.id, store.add(session.id, None, "user", "go"), {})
for number in range(10**6):
    writer.write(f"{number} ")
    if number == 100:
        print("ready", flush=True)
    time.sleep(0.002)
"""


def test_a_killed_process_leaves_all_but_the_last_second(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(path)], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "ready\n"
    time.sleep(1)  # what was written before "ready" is now a second old
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stdout.close()

    store = Store.open(path)
    (session,) = store.sessions()
    answer = store.tree(session.id).head_path[-1]
    assert answer.text.startswith("".join(f"{number} " for number in range(101)))
    assert answer.finish == CRASHED
    assert len(store.search("100")) == 1
    assert store.check() == []
    store.close()


WRITER = """
import sys
from pathlib import Path
from localrun.store import Store
store = Store.open(Path(sys.argv[1]), flush_s=0.01)
for number in range(20):
    session = store.create_session({})
    writer = store.begin_answer(session.id, store.add(session.id, None, "user", sys.argv[2]), {})
    writer.write("text")
    writer.flush()
    writer.finish("stop")
"""


def test_two_processes_write_at_once_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("left", "right")]
    assert [writer.wait() for writer in writers] == [0, 0]
    store = Store.open(path)
    assert len(store.sessions()) == 40
    assert len(store.search("left")) == len(store.search("right")) == 20
    assert store.check() == []
    store.close()


def test_a_writer_that_was_taken_for_dead_writes_on_in_the_same_message(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db", flush_s=3600)
    session = store.create_session({})
    writer = store.begin_answer(session.id, None, {"seed": 1})
    writer.write("before ")
    writer.flush()
    with store._database.write() as connection:
        connection.execute("UPDATE segment SET writer = ?", (this_process().rsplit("/", 2)[0] + "/999999999/1.00",))
    other = Store.open(tmp_path / "s.db")
    assert other.tree(session.id).head_path[-1].finish == CRASHED
    writer.write("after")
    writer.finish("stop")
    node = other.tree(session.id).head_path[-1]
    assert (node.text, node.finish, len(node.segments)) == ("before after", "stop", 2)
    other.close()
    store.close()


def test_a_living_process_or_one_of_another_host_is_never_called_gone() -> None:
    assert not is_gone(this_process())
    assert not is_gone("elsewhere/1/1.00")
    assert not is_gone("")
    assert not is_gone(this_process().rsplit("/", 2)[0] + "/x/1.00")
    assert is_gone(this_process() + "1")


def test_a_file_of_the_first_version_is_brought_up_to_date_with_its_text_searchable(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    old.executescript(MIGRATIONS[0])
    old.executescript(
        f"PRAGMA application_id = {0x6C72756E}; PRAGMA user_version = 1;"
        "INSERT INTO session (id, created_at, touched_at, name) VALUES ('abc', 1, 1, 'Old');"
        "INSERT INTO message (id, session_id, number, kind, created_at) VALUES (1, 'abc', 1, 'user', 1);"
        "INSERT INTO segment (message_id, started_at, finish, text) VALUES (1, 1, 'given', 'ancient words');"
    )
    old.close()
    store = Store.open(path)
    assert [hit.session_name for hit in store.search("ancient")] == ["Old"]
    assert store.check() == []
    store.close()


def test_a_migration_that_fails_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = sqlite3.connect(path)
    old.executescript(MIGRATIONS[0])
    old.executescript(
        f"PRAGMA application_id = {0x6C72756E}; PRAGMA user_version = 1; CREATE TABLE segment_search (x);"
    )
    old.close()
    with pytest.raises(StoreError, match="already exists"):
        Store.open(path)
    old = sqlite3.connect(path)
    assert old.execute("PRAGMA user_version").fetchone()[0] == 1
    old.close()


def test_a_newer_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    Store.open(path).close()
    new = sqlite3.connect(path)
    new.execute("PRAGMA user_version = 99")
    new.close()
    with pytest.raises(StoreError, match="has version 99") as caught:
        Store.open(path)
    assert caught.value.hint is not None
    assert "update localrun" in caught.value.hint


def test_a_database_of_another_program_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path)


@pytest.mark.parametrize("content", [b"<!DOCTYPE html>" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.db"
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Store.open(path)
    assert str(path) in caught.value.message
    assert path.read_bytes() == content


def test_a_folder_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "s.db").mkdir()
    with pytest.raises(StoreError, match=r"s\.db"):
        Store.open(tmp_path / "s.db")


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "private" / "s.db")
    store.create_session({})
    for file in (tmp_path / "private").iterdir():
        assert file.stat().st_mode & 0o077 == 0
    store.close()
