"""The log of one partition: records, transaction markers, gaps, and what an isolation level sees of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kstream_worker.records import Committed, Headers, TopicPartition


class FakeRecord(NamedTuple):
    """A record as it lies in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class TransactionState(Enum):
    """Where a transaction stands."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False)
class Transaction:
    """Records and positions of one producer that become visible together, or never."""

    producer: str
    started_s: float
    state: TransactionState = TransactionState.OPEN
    logs: list[PartitionLog] = field(default_factory=list)
    positions: dict[tuple[str, TopicPartition], Committed] = field(default_factory=dict)


class Entry(NamedTuple):
    """One offset of a log: a record, or a marker (`record` None) of the end of `transaction`."""

    record: FakeRecord | None
    transaction: Transaction | None


class Slice(NamedTuple):
    """Records that a reader sees, and the position after everything that was passed on the way."""

    records: list[FakeRecord]
    position: int


class PartitionLog:
    """Entries in offset order; offsets may have gaps."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.start = 0
        self.end = 0
        self._offsets: list[int] = []
        self._entries: list[Entry] = []
        self._open: dict[Transaction, int] = {}

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        transaction: Transaction | None = None,
    ) -> int:
        """Add a record; the offset that it got."""
        record = FakeRecord(*self.partition, self.end, key, value, timestamp, tuple(headers))
        if transaction is not None and transaction not in self._open:
            transaction.logs.append(self)
            self._open[transaction] = self.end
        return self._put(Entry(record, transaction))

    def mark(self, transaction: Transaction) -> None:
        """Add the marker that ends a transaction; it takes an offset that no reader ever sees."""
        del self._open[transaction]
        self._put(Entry(None, transaction))

    def skip(self, count: int) -> None:
        """Leave a gap of `count` offsets, as compaction does."""
        self.end += count

    def truncate(self, before: int) -> None:
        """Delete everything below `before`, as retention does."""
        self.start = min(max(self.start, before), self.end)
        cut = bisect_left(self._offsets, self.start)
        del self._offsets[:cut], self._entries[:cut]

    def stable_end(self) -> int:
        """The last stable offset: the first offset of the oldest open transaction, else the end."""
        return min(self._open.values(), default=self.end)

    def read(self, position: int, limit: int, *, read_committed: bool = True) -> Slice:
        """At most `limit` visible records from `position` on."""
        end = self.stable_end() if read_committed else self.end
        records: list[FakeRecord] = []
        for record in self._visible(position, end, read_committed=read_committed):
            records.append(record)
            if len(records) == limit:
                return Slice(records, record.offset + 1)
        return Slice(records, max(position, end))

    def first_at(self, time_ms: int) -> int:
        """The first visible offset with a timestamp of at least `time_ms`, else the stable end."""
        end = self.stable_end()
        visible = self._visible(self.start, end, read_committed=True)
        return next((record.offset for record in visible if record.timestamp >= time_ms), end)

    def _visible(self, position: int, end: int, *, read_committed: bool) -> Iterator[FakeRecord]:
        for index in range(bisect_left(self._offsets, position), bisect_left(self._offsets, end)):
            record, transaction = self._entries[index]
            hidden = transaction is not None and transaction.state is not TransactionState.COMMITTED
            if record is not None and not (read_committed and hidden):
                yield record

    def _put(self, entry: Entry) -> int:
        offset = self.end
        self._offsets.append(offset)
        self._entries.append(entry)
        self.end = offset + 1
        return offset
