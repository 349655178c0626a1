"""An answer on its way into the store: pieces in, one closed segment at the end.

Knows the clock of saving: what arrives is on disk at most `FLUSH_S` later, whether or not more arrives. Invariant: the
text of the closed segment is what the pieces on disk say, joined in the file itself, so nothing is there twice.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable

from localrun.errors import StoreError
from localrun.store.database import Database
from localrun.store.records import CRASHED, Facts

FLUSH_S = 0.5
"""Half of what a crash may cost."""


class AnswerWriter:
    """Writes one segment of one message. Used by one thread, besides its own timer."""

    def __init__(
        self,
        database: Database,
        message_id: int,
        segment_id: int,
        *,
        facts: Facts,
        writer: str,
        clock: Callable[[], float] = time.time,
        flush_s: float = FLUSH_S,
    ) -> None:
        self.message_id = message_id
        self._database = database
        self._segment_id = segment_id
        self._facts = facts
        self._writer = writer
        self._clock = clock
        self._flush_s = flush_s
        self._lock = threading.Lock()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._timer: threading.Timer | None = None
        self._failure: StoreError | None = None
        self._closed = False

    def write(self, text: str = "", reasoning: str = "") -> None:
        """Take in what the model said. Raises `StoreError` if an earlier flush failed; the text is kept and retried."""
        with self._lock:
            assert not self._closed, "written after the end"
            self._text.append(text)
            self._reasoning.append(reasoning)
            failure, self._failure = self._failure, None
            if self._timer is None:
                self._timer = threading.Timer(self._flush_s, self._flush_in_background)
                self._timer.daemon = True
                self._timer.start()
        if failure is not None:
            raise failure

    def flush(self) -> None:
        """Save what has been taken in. Raises `StoreError`; nothing is lost by a failed flush."""
        with self._lock:
            self._flush()

    def finish(self, finish: str, facts: Facts | None = None) -> None:
        """Close the segment: `finish` says how it ended, `facts` what is known now. Raises `StoreError`."""
        with self._lock:
            self._stop_timer()
            with self._database.write() as connection:
                self._save_buffer(connection)
                close_segment(
                    connection,
                    self._segment_id,
                    finish=finish,
                    ended_at=self._clock(),
                    facts=self._facts if facts is None else facts,
                )
            self._forget_buffer()
            self._closed = True

    def _flush_in_background(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._timer = None
            try:
                self._flush()
            except StoreError as error:
                self._failure = error

    def _flush(self) -> None:
        self._stop_timer()
        with self._database.write() as connection:
            self._save_buffer(connection)
        self._forget_buffer()

    def _save_buffer(self, connection: sqlite3.Connection) -> None:
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        if not text and not reasoning:
            return
        row = connection.execute("SELECT finish FROM segment WHERE id = ?", (self._segment_id,)).fetchone()
        if row is None:
            raise StoreError("the message was deleted while it was written", hint="another localrun deleted the chat")
        if row["finish"] is not None:
            # This process slept so long that another one took it for dead and closed the segment: open the next one.
            self._segment_id = open_segment(
                connection, self.message_id, started_at=self._clock(), writer=self._writer, facts=self._facts
            )
        connection.execute(
            "INSERT INTO piece (segment_id, text, reasoning) VALUES (?, ?, ?)", (self._segment_id, text, reasoning)
        )

    def _forget_buffer(self) -> None:
        self._text.clear()
        self._reasoning.clear()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def open_segment(
    connection: sqlite3.Connection, message_id: int, *, started_at: float, writer: str, facts: Facts
) -> int:
    """A new segment at the end of a message, ready for pieces; its id."""
    cursor = connection.execute(
        "INSERT INTO segment (message_id, started_at, writer, facts) VALUES (?, ?, ?, ?)",
        (message_id, started_at, writer, json.dumps(facts)),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def close_segment(
    connection: sqlite3.Connection,
    segment_id: int,
    *,
    finish: str = CRASHED,
    ended_at: float | None = None,
    facts: Facts | None = None,
) -> None:
    """Join the pieces of an open segment and close it. A segment that is closed already stays as it is."""
    pieces = connection.execute(
        "SELECT text, reasoning FROM piece WHERE segment_id = ? ORDER BY id", (segment_id,)
    ).fetchall()
    connection.execute(
        "UPDATE segment SET finish = ?, ended_at = ?, facts = coalesce(?, facts), text = ?, reasoning = ?"
        " WHERE id = ? AND finish IS NULL",
        (
            finish,
            ended_at,
            None if facts is None else json.dumps(facts),
            "".join(row["text"] for row in pieces),
            "".join(row["reasoning"] for row in pieces),
            segment_id,
        ),
    )
    connection.execute("DELETE FROM piece WHERE segment_id = ?", (segment_id,))
