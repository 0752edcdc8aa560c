"""What is committed: input positions and output lengths in one SQLite database, guarded by a lock for one process.

The database is the only truth. Output files hold it up to the committed lengths; what lies behind was never committed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kstream_worker.bus.files.inputs import Input, number_inputs
from kstream_worker.errors import ConfigError, Fatal, Retry
from kstream_worker.records import Committed

DATABASE = "positions.sqlite"
LOCK = "lock"
FORMAT = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS inputs (
    partition INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    position INTEGER,
    leader_epoch INTEGER NOT NULL DEFAULT -1,
    token TEXT NOT NULL DEFAULT '',
    fingerprint TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE IF NOT EXISTS outputs (topic TEXT PRIMARY KEY, length INTEGER NOT NULL) STRICT;
"""


class Position(NamedTuple):
    """A committed position of an input, with what identifies the part before it."""

    committed: Committed
    fingerprint: str


class Store:
    """The database of one output folder, or (without a folder) one in memory that ends with the process.

    Source and writer share one store: it is open while either of them is.
    """

    def __init__(self, folder: Path | None, inputs: Sequence[Input]) -> None:
        self.folder = folder
        self._given = inputs
        self._users: set[str] = set()
        self._lock = -1
        self._database: sqlite3.Connection | None = None
        self.inputs: dict[int, Input] = number_inputs(inputs, {})

    @property
    def remedy(self) -> str:
        """How to begin anew, for messages."""
        return f"start afresh with another output folder (or without '{self.folder}')"

    def open(self, user: str) -> None:
        """Lock the folder and open the database, unless that is done.

        Raises:
            ConfigError: another process holds the lock, or the folder cannot be written.
            Fatal: the database is damaged or of another format.
        """
        if not self._users:
            self._acquire()
            try:
                self._database = self._connect()
                self.inputs = self._register()
            except BaseException:
                self._release()
                raise
        self._users.add(user)

    def close(self, user: str) -> None:
        """Let go; the last user closes the database and unlocks the folder."""
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self._release()

    def numbering(self) -> dict[int, Input]:
        """Inputs by partition number, without opening the store (another process may be at work)."""
        path = self.folder and self.folder / DATABASE
        if self._database is not None or path is None or not path.exists():
            return self.inputs
        with _translated("read", str(path)):
            database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            try:
                return number_inputs(self._given, dict(database.execute("SELECT path, partition FROM inputs")))
            finally:
                database.close()

    def positions(self) -> dict[int, Position]:
        """Committed positions by partition; none where nothing was committed."""
        query = "SELECT partition, position, token, leader_epoch, fingerprint FROM inputs WHERE position IS NOT NULL"
        with _translated("read", self.name):
            rows = self._open_database().execute(query).fetchall()
        return {row[0]: Position(Committed(row[1], row[2], row[3]), row[4]) for row in rows}

    def lengths(self) -> dict[str, int]:
        """Committed lengths of the output files by topic."""
        with _translated("read", self.name):
            return dict(self._open_database().execute("SELECT topic, length FROM outputs").fetchall())

    def add_output(self, topic: str, timeout_s: float) -> None:
        """Note that the file of a topic is ours, before it is made."""
        with _translated("write", self.name), self._transaction(timeout_s) as database:
            database.execute("INSERT OR IGNORE INTO outputs VALUES (?, 0)", (topic,))

    def commit(self, positions: Mapping[int, Position], lengths: Mapping[str, int], timeout_s: float) -> None:
        """Put positions and lengths in place, all or nothing.

        Raises:
            Retry: something else holds the database longer than `timeout_s`.
            Fatal: the database cannot be written.
        """
        moved = [
            (at.offset, at.metadata, at.leader_epoch, fingerprint, partition)
            for partition, (at, fingerprint) in positions.items()
        ]
        with _translated("write", self.name), self._transaction(timeout_s) as database:
            database.executemany(
                "UPDATE inputs SET position = ?, token = ?, leader_epoch = ?, fingerprint = ? WHERE partition = ?",
                moved,
            )
            database.executemany(
                "UPDATE outputs SET length = ? WHERE topic = ?", [(length, topic) for topic, length in lengths.items()]
            )

    @property
    def name(self) -> str:
        """For messages."""
        return str(self.folder / DATABASE) if self.folder else "the database in memory"

    @contextmanager
    def _transaction(self, timeout_s: float) -> Iterator[sqlite3.Connection]:
        database = self._open_database()
        database.execute(f"PRAGMA busy_timeout = {max(0, int(timeout_s * 1000))}")
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _open_database(self) -> sqlite3.Connection:
        if self._database is None:
            raise Fatal("the files bus is not started, or closed")
        return self._database

    def _acquire(self) -> None:
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f"output folder '{self.folder}' cannot be written: {error.strerror}; "
                "choose another or correct its rights"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(lock)
            raise ConfigError(
                f"output folder '{self.folder}' is in use by {holder}; stop it, or choose another folder"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._lock = lock

    def _release(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1

    def _connect(self) -> sqlite3.Connection:
        path = ":memory:" if self.folder is None else self.folder / DATABASE
        with _translated("write", self.name):
            database = sqlite3.connect(path, timeout=5.0, isolation_level=None)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            (found,) = database.execute("PRAGMA user_version").fetchone()
            if found not in (0, FORMAT):
                database.close()
                raise Fatal(f"{self.name} has format {found}, this version reads {FORMAT}; {self.remedy}")
            database.executescript(_SCHEMA)
            database.execute(f"PRAGMA user_version = {FORMAT}")
        return database

    def _register(self) -> dict[int, Input]:
        with _translated("write", self.name), self._transaction(5.0) as database:
            known = dict(database.execute("SELECT path, partition FROM inputs").fetchall())
            inputs = number_inputs(self._given, known)
            read = dict(database.execute("SELECT path, ifnull(position, 0) FROM inputs").fetchall())
            for one in self._given:
                one.base = read.get(one.path, 0) if one.is_stream else 0
            database.executemany(
                "INSERT OR IGNORE INTO inputs (partition, path) VALUES (?, ?)",
                [(number, one.path) for number, one in inputs.items()],
            )
        return inputs


@contextmanager
def _translated(verb: str, name: str) -> Iterator[None]:
    """SQLite's errors as ours: held by another is passing, anything else is not."""
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise Retry(f"{name} is held by another process: {error}") from error
        raise Fatal(
            f"cannot {verb} {name}: {error}; nothing committed is lost. Free space, repair the disk or its rights, "
            "and start again"
        ) from error
