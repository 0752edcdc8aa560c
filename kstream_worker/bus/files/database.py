"""The SQLite file of an output folder: its tables, their former formats, and what its errors mean."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kstream_worker.errors import Fatal, Retry

FORMAT = 2

_POSITIONS = (
    # With IF NOT EXISTS: format 1 set its number after its tables, so a crash could leave them without it.
    """
    CREATE TABLE IF NOT EXISTS inputs (
        partition INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,
        position INTEGER,
        leader_epoch INTEGER NOT NULL DEFAULT -1,
        token TEXT NOT NULL DEFAULT '',
        fingerprint TEXT NOT NULL DEFAULT ''
    ) STRICT
    """,
    "CREATE TABLE IF NOT EXISTS outputs (topic TEXT PRIMARY KEY, length INTEGER NOT NULL) STRICT",
)
_STATE = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    # AUTOINCREMENT never gives a number twice, also when the newest row is deleted: numbers serve as offsets.
    """
    CREATE TABLE state (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        partition INTEGER NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        time_ms INTEGER NOT NULL,
        headers BLOB NOT NULL,
        UNIQUE (partition, key)
    ) STRICT
    """,
    "CREATE INDEX state_by_partition ON state (partition)",  # its rows are in the order of `number`
)
_STEPS = (_POSITIONS, _STATE)  # step n makes format n + 1 of format n


def connect(path: Path | None, name: str, identity: str, remedy: str) -> sqlite3.Connection:
    """Open a database for writing, and bring it to the present format.

    Args:
        path: None for one in memory.
        name: of the database, for messages.
        identity: that a new one gets.
        remedy: how to begin anew, for messages.

    Raises:
        Fatal: it is damaged, or of a later format.
    """
    with translated("write", name):
        database = sqlite3.connect(":memory:" if path is None else path, timeout=5.0, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            _migrate(database, name, identity, remedy)
        except BaseException:
            database.close()
            raise
    return database


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for a moment to read it; another process may be at work on it."""
    with translated("read", str(path)):
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            yield database
        finally:
            database.close()


@contextmanager
def transaction(database: sqlite3.Connection, timeout_s: float) -> Iterator[sqlite3.Connection]:
    """All or nothing; another process that holds the database is waited for."""
    database.execute(f"PRAGMA busy_timeout = {max(0, int(timeout_s * 1000))}")
    database.execute("BEGIN IMMEDIATE")
    try:
        yield database
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def translated(verb: str, name: str) -> Iterator[None]:
    """SQLite's errors as ours: held by another is passing, anything else is not."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise Retry(f"{name} is held by another process: {error}") from error
        raise Fatal(
            f"cannot {verb} {name}: {error}; nothing committed is lost. Free space, repair the disk or its rights, "
            "and start again"
        ) from error


def format_of(database: sqlite3.Connection) -> int:
    """The format; 0 for an empty database."""
    (found,) = database.execute("PRAGMA user_version").fetchone()
    return int(found)


def identity_of(database: sqlite3.Connection) -> str | None:
    """What tells it from another; None before the format that has it."""
    if format_of(database) < 2:
        return None
    return str(database.execute("SELECT value FROM about WHERE name = 'identity'").fetchone()[0])


def new_identity() -> str:
    """What tells a new database from all others."""
    return secrets.token_hex(8)


def _migrate(database: sqlite3.Connection, name: str, identity: str, remedy: str) -> None:
    """In one transaction: a crash leaves the former format as it was."""
    found = format_of(database)
    if found == FORMAT:
        return
    if not 0 <= found < FORMAT:
        raise Fatal(f"{name} has format {found}, this version reads up to {FORMAT}: run a newer version, or {remedy}")
    with transaction(database, 5.0):
        for statement in (one for step in _STEPS[found:] for one in step):
            database.execute(statement)
        database.execute("INSERT INTO about VALUES ('identity', ?)", (identity,))
        database.execute(f"PRAGMA user_version = {FORMAT}")
