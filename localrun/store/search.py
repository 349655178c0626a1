"""Search over every message and name.

Knows the query language (words and "phrases", all of which must occur) and both ways to look: the word index, and a
plain scan for scripts that are written without spaces. Invariant: no query a user types is a syntax error.
"""

from __future__ import annotations

import re
import sqlite3

from localrun.store.records import Hit

_START, _END = "\x02", "\x03"  # marks in a snippet; control characters that no message needs
_SNIPPET_WORDS = 14
_SNIPPET_CHARACTERS = 40  # to each side of a match that a scan found
_TERM = re.compile(r'"([^"]*)"?|(\S+)')
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese: the index takes a run of them for one word."""

_COLUMNS = """
session.id AS session_id, session.name, message.number, message.kind, message.created_at
"""


def search(connection: sqlite3.Connection, words: str, *, limit: int, trashed: bool) -> list[Hit]:
    """The places where all terms of `words` occur, those of one chat together, best match first.

    A chat is found by its name (these come first) only if none of its messages is: most names are the first question.
    """
    terms = [phrase or word for phrase, word in _TERM.findall(words.replace("\0", " "))]
    if not terms:
        return []
    alive = "" if trashed else "AND session.trashed_at IS NULL"
    look = _by_scan if any(_NO_SPACES.search(term) for term in terms) else _by_index
    by_session: dict[str, list[Hit]] = {}
    for hit in look(connection, terms, alive, limit):
        by_session.setdefault(hit.session_id, []).append(hit)
    names = [hit for hit in _in_names(connection, terms, alive, limit) if hit.session_id not in by_session]
    return [*names, *(hit for hits in by_session.values() for hit in hits)][:limit]


def _by_index(connection: sqlite3.Connection, terms: list[str], alive: str, limit: int) -> list[Hit]:
    # A term of punctuation alone has no word in the index and would match nothing.
    quoted = [f'"{term.replace(chr(34), "")}"*' for term in terms if any(letter.isalnum() for letter in term)]
    if not quoted:
        return _by_scan(connection, terms, alive, limit)
    rows = connection.execute(
        f"SELECT {_COLUMNS}, snippet(segment_search, 0, ?, ?, '…', ?) AS snippet FROM segment_search"
        " JOIN segment ON segment.id = segment_search.rowid JOIN message ON message.id = segment.message_id"
        " JOIN session ON session.id = message.session_id"
        f" WHERE segment_search MATCH ? {alive} ORDER BY segment_search.rank LIMIT ?",
        (_START, _END, _SNIPPET_WORDS, " ".join(quoted), limit),
    )
    return [_hit(row, _marked(row["snippet"])) for row in rows]


def _by_scan(connection: sqlite3.Connection, terms: list[str], alive: str, limit: int) -> list[Hit]:
    conditions = " AND ".join(r"segment.text LIKE ? ESCAPE '\'" for _ in terms)
    rows = connection.execute(
        f"SELECT {_COLUMNS}, segment.text FROM segment JOIN message ON message.id = segment.message_id"
        f" JOIN session ON session.id = message.session_id WHERE {conditions} {alive}"
        " ORDER BY segment.id DESC LIMIT ?",
        (*map(_like, terms), limit),
    )
    return [_hit(row, _around(row["text"], terms[0])) for row in rows]


def _in_names(connection: sqlite3.Connection, terms: list[str], alive: str, limit: int) -> list[Hit]:
    conditions = " AND ".join(r"session.name LIKE ? ESCAPE '\'" for _ in terms)
    rows = connection.execute(
        "SELECT session.id AS session_id, session.name, 0 AS number, 'name' AS kind, session.created_at"
        f" FROM session WHERE {conditions} {alive} ORDER BY session.touched_at DESC LIMIT ?",
        (*map(_like, terms), limit),
    )
    return [_hit(row, _around(row["name"], terms[0])) for row in rows]


def _like(term: str) -> str:
    return "%" + re.sub(r"([\\%_])", r"\\\1", term) + "%"


def _hit(row: sqlite3.Row, snippet: tuple[tuple[str, bool], ...]) -> Hit:
    return Hit(
        session_id=row["session_id"],
        session_name=row["name"],
        number=row["number"],
        kind=row["kind"],
        created_at=row["created_at"],
        snippet=snippet,
    )


def _marked(snippet: str) -> tuple[tuple[str, bool], ...]:
    parts: list[tuple[str, bool]] = []
    for index, part in enumerate(re.split(f"[{_START}{_END}]", " ".join(snippet.split(" ")))):
        if part:
            parts.append((_one_line(part), index % 2 == 1))
    return tuple(parts)


def _around(text: str, term: str) -> tuple[tuple[str, bool], ...]:
    found = re.search(re.escape(term), text, re.IGNORECASE)
    if found is None:
        return ((_one_line(text[: 2 * _SNIPPET_CHARACTERS]), False),)
    start, end = found.span()
    left = max(0, start - _SNIPPET_CHARACTERS)
    before = ("…" if left else "") + text[left:start]
    after = text[end : end + _SNIPPET_CHARACTERS] + ("…" if end + _SNIPPET_CHARACTERS < len(text) else "")
    parts = ((_one_line(before), False), (text[start:end], True), (_one_line(after), False))
    return tuple(part for part in parts if part[0])


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
