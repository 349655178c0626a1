"""The session store: conversations as trees, in one file.

Knows sessions and messages and how they lie in the database; knows no engine and no screen. Invariant: messages are
only ever added; what a user sees vanish (the trash) is still there until it is deleted for good.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from localrun.errors import StoreError, UsageError
from localrun.paths import default_paths
from localrun.store.database import Database
from localrun.store.naming import name_from_exchange, name_from_text
from localrun.store.owner import is_gone, this_process
from localrun.store.records import CRASHED, GIVEN, Attachment, Facts, Hit, Kind, Node, Session, Tree
from localrun.store.rows import SESSIONS, attachments_of, clean, insert_contents, segments_of, session_of, session_row
from localrun.store.search import search
from localrun.store.writer import FLUSH_S, AnswerWriter, close_segment, open_segment

_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look alike
_MOST = 2**31
"""The largest limit that is passed on: more sessions than that no file holds."""
_ID_LENGTH = 6  # 31^6 is 900 million: a clash among thousands is rare, and is checked for


class Store:
    """All sessions of a user. Safe to use from several threads and several processes."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time, flush_s: float = FLUSH_S) -> None:
        self._database = database
        self._clock = clock
        self._flush_s = flush_s
        self._writer = this_process()

    @classmethod
    def open(
        cls,
        path: Path | None = None,
        *,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
        clock: Callable[[], float] = time.time,
        flush_s: float = FLUSH_S,
    ) -> Store:
        """Open the store (None: the user's own), creating it if need be, and close what crashed writers left open.

        Raises `StoreError`.
        """
        database = Database.open(default_paths().sessions_db if path is None else path, factory=factory)
        return cls._opened(database, clock=clock, flush_s=flush_s)

    @classmethod
    def open_to_read(cls, path: Path | None = None) -> Store:
        """Open the store to look at it only: nothing is created, and a place that cannot be written is no obstacle.

        A store that does not exist yet is empty. Raises `StoreError`.
        """
        database = Database.open_to_read(default_paths().sessions_db if path is None else path)
        return cls(database) if database.only_read else cls._opened(database)

    @classmethod
    def _opened(cls, database: Database, *, clock: Callable[[], float] = time.time, flush_s: float = FLUSH_S) -> Store:
        store = cls(database, clock=clock, flush_s=flush_s)
        try:
            store.recover()
        except StoreError:
            database.close()
            raise
        return store

    @property
    def path(self) -> Path:
        return self._database.path

    def close(self) -> None:
        self._database.close()

    def check(self) -> list[str]:
        """What is wrong with the file; empty if nothing is."""
        return self._database.check()

    def recover(self) -> int:
        """Close the segments whose writers are gone, so that their text can be found; how many there were."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT id, writer FROM segment WHERE finish IS NULL").fetchall()
        gone = [row["id"] for row in rows if is_gone(row["writer"])]
        if gone:
            with self._database.write() as connection:
                for segment_id in gone:
                    close_segment(connection, segment_id, finish=CRASHED)
        return len(gone)

    # Sessions

    def create_session(self, settings: Facts) -> Session:
        """A new, empty, unnamed session."""
        now = self._clock()
        with self._database.write() as connection:
            session_id = self._free_id(connection)
            connection.execute(
                "INSERT INTO session (id, created_at, touched_at, settings) VALUES (?, ?, ?, ?)",
                (session_id, now, now, json.dumps(settings)),
            )
            return session_row(connection, session_id)

    def session(self, session_id: str) -> Session:
        with self._database.read() as connection:
            return session_row(connection, session_id)

    def sessions(self, *, trashed: bool = False, limit: int | None = None) -> list[Session]:
        """The sessions (or the trash), pinned first, then the latest first."""
        where = "IS NOT NULL" if trashed else "IS NULL"
        query = f"{SESSIONS} WHERE trashed_at {where} ORDER BY pinned DESC, touched_at DESC, rowid DESC LIMIT ?"
        with self._database.read() as connection:
            rows = connection.execute(query, (-1 if limit is None else min(limit, _MOST),)).fetchall()
        return [session_of(row) for row in rows]

    def resolve(self, name: str) -> Session:
        """The session a person means: `last`, an id, or the unambiguous beginning of one. Raises `UsageError`."""
        if clean(name) != name:
            raise UsageError(f"no session {name!r}", hint="`localrun sessions ls` lists them")
        if name == "last":
            with self._database.read() as connection:
                row = connection.execute(
                    f"{SESSIONS} WHERE trashed_at IS NULL ORDER BY touched_at DESC, rowid LIMIT 1"
                ).fetchone()
            if row is None:
                raise UsageError("there is no session yet", hint="start one with `localrun chat`")
            return session_of(row)
        with self._database.read() as connection:
            rows = connection.execute(
                f"{SESSIONS} WHERE substr(session.id, 1, ?) = ? LIMIT 2", (len(name), name)
            ).fetchall()
        if not name or not rows:
            raise UsageError(f"no session {name!r}", hint="`localrun sessions ls` lists them")
        if len(rows) > 1 and rows[0]["id"] != name:
            raise UsageError(f"{name!r} begins the id of several sessions", hint="give more letters of it")
        return session_of(rows[0])

    def rename(self, session_id: str, name: str) -> None:
        """Give a session a name of the user's; it is never replaced by an automatic one."""
        name = " ".join(clean(name).split())
        if not name:
            raise UsageError("a session's name cannot be empty")
        self._change(session_id, "name = ?, named_by = 'user'", name)

    def name_after_exchange(self, session_id: str, question: str, answer: str | None = None) -> None:
        """Name a session by its first question that says something, unless it has such a name.

        Until there is one ("hi"), the first answer that has come (not None) lends its name.
        """
        name = name_from_text(question)
        lent = "" if name or answer is None else name_from_exchange(question, answer)
        with self._database.write() as connection:
            if name:
                connection.execute(
                    "UPDATE session SET name = ?, named_by = 'exchange' WHERE id = ? AND named_by = ''",
                    (name, session_id),
                )
            elif lent:
                connection.execute(
                    "UPDATE session SET name = ? WHERE id = ? AND named_by = '' AND name = ''", (lent, session_id)
                )

    def pin(self, session_id: str, pinned: bool = True) -> None:
        """Keep a session at the top of the list."""
        self._change(session_id, "pinned = ?", int(pinned))

    def trash(self, session_id: str) -> None:
        """Hide a session. `restore` brings it back."""
        self._change(session_id, "trashed_at = ?", self._clock())

    def restore(self, session_id: str) -> None:
        """Bring a session back from the trash."""
        self._change(session_id, "trashed_at = ?", None)

    def delete(self, session_id: str) -> None:
        """Delete a session for good: the only thing that cannot be undone."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM session WHERE id = ?", (session_id,))

    def save_settings(self, session_id: str, settings: Facts) -> None:
        """Settings for the messages to come; those of earlier ones are kept with them."""
        self._change(session_id, "settings = ?", json.dumps(settings))

    def set_head(self, session_id: str, message_id: int | None) -> None:
        """Remember where in the tree the user is."""
        self._change(session_id, "head_id = ?", message_id)

    def _change(self, session_id: str, assignment: str, value: object) -> None:
        with self._database.write() as connection:
            cursor = connection.execute(f"UPDATE session SET {assignment} WHERE id = ?", (value, session_id))
            if cursor.rowcount == 0:
                raise StoreError(f"the session {session_id} is gone", hint="another localrun deleted it")

    @staticmethod
    def _free_id(connection: sqlite3.Connection) -> str:
        while True:
            new = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
            if connection.execute("SELECT 1 FROM session WHERE id = ?", (new,)).fetchone() is None:
                return new

    # Messages

    def tree(self, session_id: str) -> Tree:
        """All messages of a session as they are now, half-written ones included."""
        with self._database.read() as connection:
            session = session_row(connection, session_id)
            segments = segments_of(connection, session_id)
            attachments = attachments_of(connection, session_id)
            rows = connection.execute("SELECT * FROM message WHERE session_id = ? ORDER BY number", (session_id,))
            nodes = {
                row["id"]: Node(
                    id=row["id"],
                    number=row["number"],
                    parent_id=row["parent_id"],
                    kind=row["kind"],
                    covers_id=row["covers_id"],
                    created_at=row["created_at"],
                    segments=tuple(segments.get(row["id"], ())),
                    attachments=tuple(attachments.get(row["id"], ())),
                )
                for row in rows
            }
        return Tree(session, nodes)

    def add(
        self,
        session_id: str,
        parent_id: int | None,
        kind: Kind,
        text: str = "",
        *,
        attachments: Sequence[Attachment] = (),
        covers_id: int | None = None,
        facts: Facts | None = None,
    ) -> int:
        """Add a finished message below `parent_id` and make it the head; its id."""
        with self._database.write() as connection:
            message_id = self._insert(connection, session_id, parent_id, kind, covers_id)
            connection.execute(
                "INSERT INTO segment (message_id, started_at, ended_at, finish, text, facts) VALUES (?, ?, ?, ?, ?, ?)",
                (message_id, self._clock(), self._clock(), GIVEN, clean(text), json.dumps(facts or {})),
            )
            connection.executemany(
                "INSERT INTO attachment (message_id, name, text) VALUES (?, ?, ?)",
                [(message_id, clean(attachment.name), clean(attachment.text)) for attachment in attachments],
            )
        return message_id

    def begin_answer(
        self,
        session_id: str,
        parent_id: int | None,
        facts: Facts,
        *,
        kind: Kind = "assistant",
        covers_id: int | None = None,
    ) -> AnswerWriter:
        """Add an answer below `parent_id`, make it the head, and return what writes it."""
        with self._database.write() as connection:
            message_id = self._insert(connection, session_id, parent_id, kind, covers_id)
            return self._open_writer(connection, message_id, facts)

    def continue_answer(self, message_id: int, facts: Facts) -> AnswerWriter:
        """Write on at the end of an answer. Its open segments of a crashed writer are closed first."""
        self.recover()
        with self._database.write() as connection:
            busy = connection.execute(
                "SELECT 1 FROM segment WHERE message_id = ? AND finish IS NULL", (message_id,)
            ).fetchone()
            if busy is not None:
                raise StoreError("another localrun is writing this answer", hint="wait until it has finished")
            return self._open_writer(connection, message_id, facts)

    def _open_writer(self, connection: sqlite3.Connection, message_id: int, facts: Facts) -> AnswerWriter:
        segment_id = open_segment(connection, message_id, started_at=self._clock(), writer=self._writer, facts=facts)
        return AnswerWriter(
            self._database,
            message_id,
            segment_id,
            facts=facts,
            writer=self._writer,
            clock=self._clock,
            flush_s=self._flush_s,
        )

    def _insert(
        self, connection: sqlite3.Connection, session_id: str, parent_id: int | None, kind: Kind, covers_id: int | None
    ) -> int:
        now = self._clock()
        session_row(connection, session_id)  # says so if it is gone
        cursor = connection.execute(
            "INSERT INTO message (session_id, number, parent_id, kind, covers_id, created_at)"
            " SELECT ?, coalesce(max(number), 0) + 1, ?, ?, ?, ? FROM message WHERE session_id = ?",
            (session_id, parent_id, kind, covers_id, now, session_id),
        )
        connection.execute(
            "UPDATE session SET head_id = ?, touched_at = ? WHERE id = ?", (cursor.lastrowid, now, session_id)
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def search(self, words: str, *, limit: int = 50, trashed: bool = False) -> list[Hit]:
        """Where all of `words` occur, best first. The last letters may be missing; "…" holds a phrase together.

        Raises `UsageError` for words that are no text.
        """
        if clean(words) != words:
            raise UsageError(f"{words!r} is not UTF-8 text, so no message can hold it")
        with self._database.read() as connection:
            return search(connection, words, limit=min(limit, _MOST), trashed=trashed)

    def load(self, tree: Tree) -> Session:
        """Add a session from another file as it is, under a new id; half-written messages are closed.

        It keeps its age: `last` stays the chat that was talked in last, wherever that was.
        """
        with self._database.write() as connection:
            return self._load(connection, tree)

    def _load(self, connection: sqlite3.Connection, tree: Tree) -> Session:
        old, new_id = tree.session, self._free_id(connection)
        connection.execute(
            "INSERT INTO session (id, created_at, touched_at, name, named_by, pinned, settings)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                new_id,
                old.created_at,
                min(old.touched_at, self._clock()),
                clean(old.name),
                old.named_by,
                int(old.pinned),
                json.dumps(old.settings),
            ),
        )
        new_ids: dict[int, int] = {}
        for node in sorted(tree.nodes.values(), key=lambda node: node.number):
            cursor = connection.execute(
                "INSERT INTO message (session_id, number, parent_id, kind, covers_id, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    new_id,
                    node.number,
                    None if node.parent_id is None else new_ids[node.parent_id],
                    node.kind,
                    None if node.covers_id is None else new_ids[node.covers_id],
                    node.created_at,
                ),
            )
            assert cursor.lastrowid is not None
            new_ids[node.id] = cursor.lastrowid
            insert_contents(connection, cursor.lastrowid, node)
        head = None if old.head_id is None else new_ids[old.head_id]
        connection.execute("UPDATE session SET head_id = ? WHERE id = ?", (head, new_id))
        return session_row(connection, new_id)
