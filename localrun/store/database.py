"""One SQLite file: opened, brought up to date, and guarded by transactions.

Knows SQLite's ways (WAL, busy timeout, migrations) and maps its errors; knows no table by name. Invariant: everything
that is written is written inside `write()`, so it is there in full or not at all, and two processes may do it at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localrun.errors import StoreError
from localrun.paths import ensure_private
from localrun.store.schema import APPLICATION_ID, MIGRATIONS

BUSY_TIMEOUT_S = 10.0
"""How long a writer waits for another one. Our longest write is an import of some megabytes: below a second."""

_HINTS = (
    ("locked", "another program has held the file for too long; try again"),
    ("not a database", "move the file away (keep it) to start with an empty store"),
    ("malformed", "move the file away (keep it) and recover it with `sqlite3 FILE .recover`"),
    ("readonly", "make the file and its folder writable"),
    ("unable to open", "check that the folder exists and is writable"),
)


def _store_error(path: Path, error: sqlite3.Error) -> StoreError:
    text = str(error)
    if "is full" in text:
        return StoreError(
            f"no space left for the session store {path}: {text}",
            hint="free some space; nothing that was saved is lost",
        )
    hint = next((hint for word, hint in _HINTS if word in text), None)
    return StoreError(f"the session store {path}: {text}", hint=hint)


class Database:
    """A connection that several threads of this process share, one statement block at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, only_read: bool = False) -> None:
        self.path = path
        self.only_read = only_read
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> Database:
        """Open or create the file and bring it to the newest version. `factory` is for tests of failures.

        Raises `StoreError` for a file that is no session store, is newer than this program, or cannot be used.
        """
        try:
            ensure_private(path.parent)
            _create_private(path)
            connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, factory=factory
            )
        except sqlite3.Error as error:
            raise _store_error(path, error) from error
        except OSError as error:
            raise StoreError(
                f"the session store {path}: {error.strerror}", hint="check that the folder exists and is writable"
            ) from error
        database = cls(path, connection)
        try:
            database._prepare()
        except sqlite3.Error as error:
            connection.close()
            raise _store_error(path, error) from error
        except StoreError:
            connection.close()
            raise
        return database

    @classmethod
    def open_to_read(cls, path: Path) -> Database:
        """Open the file without creating anything: one that is not there is empty, one that cannot be written is read.

        Raises `StoreError` like `open`, and for an older file that cannot be brought up to date.
        """
        try:
            exists = path.exists()
        except OSError as error:
            raise StoreError(f"the session store {path}: {error.strerror}", hint="check its folder's rights") from error
        if exists and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            return cls.open(path)
        # Without a journal beside it, nobody is writing: SQLite then needs no shared memory, which it could not create.
        journal = path.with_name(path.name + "-wal")
        still = "" if exists and journal.exists() else "&immutable=1"
        where = f"{path.absolute().as_uri()}?mode=ro{still}" if exists else ":memory:"
        try:
            connection = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise _store_error(path, error) from error
        database = cls(path, connection, only_read=True)
        connection.row_factory = sqlite3.Row
        try:
            if exists:
                database._require_newest()
            else:
                with database.write() as memory:
                    database._migrate(memory)
        except (sqlite3.Error, StoreError) as error:
            connection.close()
            raise (_store_error(path, error) if isinstance(error, sqlite3.Error) else error) from error
        return database

    def _require_newest(self) -> None:
        version, owner = self._version(self._connection)
        if owner == APPLICATION_ID and version < len(MIGRATIONS):
            raise StoreError(
                f"the session store {self.path} has version {version} and cannot be brought up to date",
                hint="make the file and its folder writable",
            )
        self._check_version(version, owner, tables=1)

    def _prepare(self) -> None:
        connection = self._connection
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        # FULL: a commit survives a power cut. A stream commits about once a second, so its price is not felt.
        connection.execute("PRAGMA synchronous = FULL")
        with self.write() as database:
            self._migrate(database)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version, owner = self._version(connection)
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        self._check_version(version, owner, tables)
        if version == len(MIGRATIONS):
            return
        for step in MIGRATIONS[version:]:
            for statement in _statements(step):
                connection.execute(statement)
        # PRAGMA takes no bound values; both are integers of ours.
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @staticmethod
    def _version(connection: sqlite3.Connection) -> tuple[int, int]:
        """The version of the file, and the program it belongs to."""
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
        return version, owner

    def _check_version(self, version: int, owner: int, tables: int) -> None:
        if tables and owner != APPLICATION_ID:
            raise StoreError(f"{self.path} is a database of another program", hint="name another file")
        if version > len(MIGRATIONS):
            raise StoreError(
                f"the session store {self.path} has version {version}, this program knows {len(MIGRATIONS)}",
                hint="it was written by a newer localrun: update localrun",
            )

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that writes: committed at the end of the block, undone by any exception in it."""
        with self._lock:
            connection = self._connection
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.rollback()
                    raise
            except sqlite3.Error as error:
                raise _store_error(self.path, error) from error

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of the file, whatever other processes write meanwhile."""
        with self._lock:
            connection = self._connection
            try:
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    if connection.in_transaction:
                        connection.rollback()
            except sqlite3.Error as error:
                raise _store_error(self.path, error) from error

    def check(self) -> list[str]:
        """What is wrong with the file, in SQLite's words; empty if nothing is."""
        with self.read() as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
            found += [f"a row of {row[0]} points nowhere" for row in connection.execute("PRAGMA foreign_key_check")]
        try:
            with self.write() as connection:
                connection.execute("INSERT INTO segment_search (segment_search, rank) VALUES ('integrity-check', 0)")
        except StoreError as error:
            found.append(f"the search index does not match the messages ({error.message})")
        return found

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._connection.close()


def _create_private(path: Path) -> None:
    """Make sure the file exists and only its owner can read it; SQLite gives its side files the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit the transaction they must share."""
    buffer = ""
    for line in script.splitlines(keepends=True):
        buffer += line
        if sqlite3.complete_statement(buffer):
            yield buffer
            buffer = ""
