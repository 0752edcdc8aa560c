"""What is committed: input positions, output lengths and state in one SQLite database, locked for one process.

The database is the only truth. Output files hold it up to the committed lengths; what lies behind was never committed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from kstream_worker.bus.files import state
from kstream_worker.bus.files.database import connect, identity_of, new_identity, reading, transaction, translated
from kstream_worker.bus.files.inputs import Input, number_inputs
from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.records import Batch, Committed, Messages, TopicPartition

DATABASE = "positions.sqlite"
LOCK = "lock"

T = TypeVar("T")


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
        self._new_identity = new_identity()
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
                self._database = connect(self._path, self.name, self._new_identity, self.remedy)
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
        path = self._path
        if self._database is not None or path is None or not path.exists():
            return self.inputs
        with reading(path) as database:
            return number_inputs(self._given, dict(database.execute("SELECT path, partition FROM inputs")))

    def identity(self) -> str:
        """What tells this database from any other; that of one yet to be made is known before."""
        with translated("read", self.name):
            return self._read(identity_of, None) or self._new_identity

    def read_state(self, partition: TopicPartition, position: int, max_bytes: int) -> Batch:
        """Records of the state from a position on; see `state.read`."""
        nothing = Batch(partition, [], [], [], [], [], position)
        with translated("read", self.name):
            return self._read(lambda database: state.read(database, partition, position, max_bytes), nothing)

    def state_end(self) -> int:
        """The offset that the next record of the state gets."""
        with translated("read", self.name):
            return self._read(state.end, 0)

    def positions(self) -> dict[int, Position]:
        """Committed positions by partition; none where nothing was committed."""
        with translated("read", self.name):
            return _positions(self._open_database())

    def look_up_positions(self) -> dict[int, Position]:
        """The same without opening the store; another process may be at work."""
        with translated("read", self.name):
            return self._read(_positions, {})

    def lengths(self) -> dict[str, int]:
        """Committed lengths of the output files by topic."""
        with translated("read", self.name):
            return dict(self._open_database().execute("SELECT topic, length FROM outputs").fetchall())

    def add_output(self, topic: str, timeout_s: float) -> None:
        """Note that the file of a topic is ours, before it is made."""
        with translated("write", self.name), transaction(self._open_database(), timeout_s) as database:
            database.execute("INSERT OR IGNORE INTO outputs VALUES (?, 0)", (topic,))

    def commit(
        self,
        positions: Mapping[int, Position],
        lengths: Mapping[str, int],
        records: Sequence[Messages],
        timeout_s: float,
    ) -> None:
        """Put positions, lengths and records of the state in place, all or nothing.

        Raises:
            Retry: something else holds the database longer than `timeout_s`.
            Fatal: the database cannot be written.
        """
        moved = [
            (at.offset, at.metadata, at.leader_epoch, fingerprint, partition)
            for partition, (at, fingerprint) in positions.items()
        ]
        with translated("write", self.name), transaction(self._open_database(), timeout_s) as database:
            database.executemany(
                "UPDATE inputs SET position = ?, token = ?, leader_epoch = ?, fingerprint = ? WHERE partition = ?",
                moved,
            )
            database.executemany(
                "UPDATE outputs SET length = ? WHERE topic = ?", [(length, topic) for topic, length in lengths.items()]
            )
            state.put(database, records)

    @property
    def name(self) -> str:
        """For messages."""
        return str(self.folder / DATABASE) if self.folder else "the database in memory"

    @property
    def _path(self) -> Path | None:
        return self.folder and self.folder / DATABASE

    def _read(self, query: Callable[[sqlite3.Connection], T], default: T) -> T:
        """The answer of the database, opened for a moment where it is not open; the default where there is none."""
        if self._database is not None:
            return query(self._database)
        path = self._path
        if path is None or not path.exists():
            return default
        with reading(path) as database:
            return query(database)

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

    def _register(self) -> dict[int, Input]:
        with translated("write", self.name), transaction(self._open_database(), 5.0) as database:
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


def _positions(database: sqlite3.Connection) -> dict[int, Position]:
    query = "SELECT partition, position, token, leader_epoch, fingerprint FROM inputs WHERE position IS NOT NULL"
    rows = database.execute(query).fetchall()
    return {row[0]: Position(Committed(row[1], row[2], row[3]), row[4]) for row in rows}
