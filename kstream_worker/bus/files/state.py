"""The state topic without a broker: a table with the latest record of each key, as a compacted topic has it.

The offset of a record is counted over all partitions, grows with each record that is written, and is never given
twice. A record without a value deletes that of its key and leaves no trace.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing

import msgspec

from kstream_worker.bus.files.database import format_of
from kstream_worker.records import Batch, Headers, Messages, TopicPartition

POLL_BYTES = 8 * 2**20  # with them a poll takes some ten milliseconds, whatever the size of the rows
POLL_ROWS = 10_000

_READ = (
    "SELECT number, key, value, time_ms, headers FROM state INDEXED BY state_by_partition "
    "WHERE partition = ? AND number > ? ORDER BY number"
)
_DELETE = "DELETE FROM state WHERE partition = ? AND key = ?"
_REPLACE = "INSERT OR REPLACE INTO state (partition, key, value, time_ms, headers) VALUES (?, ?, ?, ?, ?)"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, bytes]]).decode


def check(messages: Iterable[Messages]) -> None:
    """Refuse what cannot be written before anything is.

    Raises:
        ValueError: columns differ in length, or a key is missing, which a compacted topic does not take either.
    """
    for column in messages:
        lengths = {len(column.keys), len(column.values), len(column.timestamps), len(column.headers)}
        if len(lengths) > 1:
            raise ValueError(f"columns for {column.partition} differ in length: {sorted(lengths)}")
        if None in column.keys:
            raise ValueError(f"a record for {column.partition} has no key: state is kept by key")


def put(database: sqlite3.Connection, messages: Iterable[Messages]) -> None:
    """Write records in their order, within the caller's transaction."""
    for column in messages:
        number = column.partition.partition
        rows = zip(column.keys, column.values, column.timestamps, column.headers, strict=True)
        for key, value, time_ms, headers in rows:
            if value is None:
                database.execute(_DELETE, (number, key))
            else:
                database.execute(_REPLACE, (number, key, value, time_ms, _encode(headers) if headers else b""))


def end(database: sqlite3.Connection) -> int:
    """The offset that the next record gets."""
    if format_of(database) < 2:  # not started since the update: there is no state yet
        return 0
    row = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'state'").fetchone()
    return 0 if row is None else int(row[0])


def read(database: sqlite3.Connection, partition: TopicPartition, position: int, max_bytes: int) -> Batch:
    """Records of a partition from a position on, the last of them beyond `max_bytes`; none where there are none."""
    after = end(database)  # before the rows: what is written meanwhile lies behind it
    batch = Batch(partition, [], [], [], [], [], max(position, after))
    if position >= after:
        return batch
    with closing(database.execute(_READ, (partition.partition, position))) as rows:
        for number, key, value, time_ms, headers in rows:
            batch.offsets.append(number - 1)
            batch.keys.append(key)
            batch.values.append(value)
            batch.timestamps.append(time_ms)
            batch.headers.append(_headers(headers))
            max_bytes -= len(value)
            if max_bytes <= 0 or len(batch) == POLL_ROWS:
                batch.next_offset = number
                return batch
    batch.next_offset = max([after, *(offset + 1 for offset in batch.offsets[-1:])])
    return batch


def _headers(content: bytes) -> Headers:
    return tuple(_decode(content)) if content else ()
