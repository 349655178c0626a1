"""The shape of the session file, as numbered steps from an empty file to today's.

Knows SQL only. Invariant: a step that has been released never changes; a new need is a new step at the end. A closed
segment never changes (a trigger sees to it): what was said stays said.
"""

from __future__ import annotations

# Messages go with their session, not with their parent: a chain of cascades is at most 1,000 long in SQLite.
_SESSIONS_AS_TREES = """
CREATE TABLE session (
    id TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    touched_at REAL NOT NULL,
    name TEXT NOT NULL DEFAULT '',
    named_by TEXT NOT NULL DEFAULT '' CHECK (named_by IN ('', 'exchange', 'user')),
    pinned INTEGER NOT NULL DEFAULT 0,
    trashed_at REAL,
    settings TEXT NOT NULL DEFAULT '{}',
    head_id INTEGER
);
CREATE INDEX session_by_time ON session (touched_at);

CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    parent_id INTEGER REFERENCES message (id) DEFERRABLE INITIALLY DEFERRED,
    kind TEXT NOT NULL CHECK (kind IN ('user', 'assistant', 'summary', 'shift')),
    covers_id INTEGER REFERENCES message (id) DEFERRABLE INITIALLY DEFERRED,
    created_at REAL NOT NULL,
    UNIQUE (session_id, number)
);
CREATE INDEX message_by_parent ON message (parent_id);
CREATE INDEX message_by_cover ON message (covers_id);

CREATE TABLE segment (
    id INTEGER PRIMARY KEY,
    message_id INTEGER NOT NULL REFERENCES message (id) ON DELETE CASCADE,
    started_at REAL NOT NULL,
    ended_at REAL,
    writer TEXT NOT NULL DEFAULT '',
    finish TEXT,
    text TEXT NOT NULL DEFAULT '',
    reasoning TEXT NOT NULL DEFAULT '',
    facts TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX segment_by_message ON segment (message_id);
CREATE INDEX segment_open ON segment (id) WHERE finish IS NULL;
CREATE TRIGGER segment_is_final BEFORE UPDATE ON segment WHEN OLD.finish IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a closed segment never changes');
END;

CREATE TABLE piece (
    id INTEGER PRIMARY KEY,
    segment_id INTEGER NOT NULL REFERENCES segment (id) ON DELETE CASCADE,
    text TEXT NOT NULL DEFAULT '',
    reasoning TEXT NOT NULL DEFAULT ''
);
CREATE INDEX piece_by_segment ON piece (segment_id);

CREATE TABLE attachment (
    id INTEGER PRIMARY KEY,
    message_id INTEGER NOT NULL REFERENCES message (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX attachment_by_message ON attachment (message_id);
"""

# The index holds no copy of the text: it points at the segments, so it can always be made again from them.
_FULL_TEXT_SEARCH = """
CREATE VIRTUAL TABLE segment_search USING fts5 (
    text, content = 'segment', content_rowid = 'id', tokenize = "unicode61 remove_diacritics 2", prefix = '2 3'
);
CREATE TRIGGER segment_search_given AFTER INSERT ON segment WHEN NEW.finish IS NOT NULL
BEGIN
    INSERT INTO segment_search (rowid, text) VALUES (NEW.id, NEW.text);
END;
CREATE TRIGGER segment_search_closed AFTER UPDATE ON segment WHEN OLD.finish IS NULL AND NEW.finish IS NOT NULL
BEGIN
    INSERT INTO segment_search (rowid, text) VALUES (NEW.id, NEW.text);
END;
CREATE TRIGGER segment_search_gone AFTER DELETE ON segment WHEN OLD.finish IS NOT NULL
BEGIN
    INSERT INTO segment_search (segment_search, rowid, text) VALUES ('delete', OLD.id, OLD.text);
END;
INSERT INTO segment_search (rowid, text) SELECT id, text FROM segment WHERE finish IS NOT NULL;
"""

MIGRATIONS: tuple[str, ...] = (_SESSIONS_AS_TREES, _FULL_TEXT_SEARCH)
"""Step n brings a file of version n to version n + 1; the version is SQLite's `user_version`."""

APPLICATION_ID = 0x6C72756E
"""SQLite's `application_id` of our files: "lrun"."""
