"""Rows of the file to values and back.

Knows the columns; knows no transaction (the caller has one open). Invariant: what `insert_contents` writes,
`segments_of` reads back.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from localrun.errors import StoreError
from localrun.store.records import CRASHED, Attachment, Node, Segment, Session

SESSIONS = """
SELECT session.*, (SELECT count(*) FROM message WHERE message.session_id = session.id) AS n_messages FROM session
"""


def insert_contents(connection: sqlite3.Connection, message_id: int, node: Node) -> None:
    connection.executemany(
        "INSERT INTO segment (message_id, started_at, ended_at, finish, text, reasoning, facts)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                message_id,
                segment.started_at,
                segment.ended_at,
                clean(segment.finish or CRASHED),
                clean(segment.text),
                clean(segment.reasoning),
                json.dumps(segment.facts),
            )
            for segment in node.segments
        ],
    )
    connection.executemany(
        "INSERT INTO attachment (message_id, name, text) VALUES (?, ?, ?)",
        [(message_id, clean(attachment.name), clean(attachment.text)) for attachment in node.attachments],
    )


def clean(text: str) -> str:
    """The text with what UTF-8 cannot hold (half of a surrogate pair, from a broken terminal) replaced visibly."""
    return text.encode("utf-8", "replace").decode("utf-8")


def session_row(connection: sqlite3.Connection, session_id: str) -> Session:
    row = connection.execute(f"{SESSIONS} WHERE session.id = ?", (session_id,)).fetchone()
    if row is None:
        raise StoreError(f"the session {session_id} is gone", hint="another localrun deleted it")
    return session_of(row)


def session_of(row: sqlite3.Row) -> Session:
    return Session(
        id=row["id"],
        name=row["name"],
        named_by=row["named_by"],
        created_at=row["created_at"],
        touched_at=row["touched_at"],
        pinned=bool(row["pinned"]),
        trashed_at=row["trashed_at"],
        settings=json.loads(row["settings"]),
        head_id=row["head_id"],
        n_messages=row["n_messages"],
    )


def segments_of(connection: sqlite3.Connection, session_id: str) -> dict[int, list[Segment]]:
    """The segments of each message in order; the text of an open one is joined from its pieces."""
    rows = connection.execute(
        "SELECT segment.* FROM segment JOIN message ON message.id = message_id WHERE session_id = ?"
        " ORDER BY segment.id",
        (session_id,),
    ).fetchall()
    segments: dict[int, list[Segment]] = {}
    for row in rows:
        text, reasoning = row["text"], row["reasoning"]
        if row["finish"] is None:
            pieces = _pieces(connection, row["id"])
            text = "".join(piece["text"] for piece in pieces)
            reasoning = "".join(piece["reasoning"] for piece in pieces)
        segments.setdefault(row["message_id"], []).append(
            Segment(
                id=row["id"],
                text=text,
                reasoning=reasoning,
                finish=row["finish"],
                started_at=row["started_at"],
                ended_at=row["ended_at"],
                facts=json.loads(row["facts"]),
            )
        )
    return segments


def _pieces(connection: sqlite3.Connection, segment_id: int) -> Iterable[sqlite3.Row]:
    return connection.execute(
        "SELECT text, reasoning FROM piece WHERE segment_id = ? ORDER BY id", (segment_id,)
    ).fetchall()


def attachments_of(connection: sqlite3.Connection, session_id: str) -> dict[int, list[Attachment]]:
    """What goes along with each message, in order."""
    rows = connection.execute(
        "SELECT attachment.* FROM attachment JOIN message ON message.id = message_id WHERE session_id = ?"
        " ORDER BY attachment.id",
        (session_id,),
    )
    attachments: dict[int, list[Attachment]] = {}
    for row in rows:
        attachments.setdefault(row["message_id"], []).append(Attachment(row["name"], row["text"]))
    return attachments
