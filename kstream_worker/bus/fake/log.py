"""The log of one partition: records, transaction markers, gaps, and what an isolation level sees of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
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


_COMMITTED = TransactionState.COMMITTED


@dataclass(eq=False)
class Transaction:
    """Records and positions of one producer that become visible together, or never."""

    producer: str
    started_s: float
    state: TransactionState = TransactionState.OPEN
    logs: list[PartitionLog] = field(default_factory=list)
    positions: dict[tuple[str, TopicPartition], Committed] = field(default_factory=dict)

    def copy(self) -> Transaction:
        """The same transaction apart from this one, without its logs."""
        return Transaction(self.producer, self.started_s, self.state, [], self.positions.copy())

    def forget(self, topic: str) -> None:
        """Leave out what concerns a topic that was deleted."""
        self.logs = [log for log in self.logs if log.partition.topic != topic]
        self.positions = {key: at for key, at in self.positions.items() if key[1].topic != topic}


class Slice(NamedTuple):
    """Records that a reader sees, and the position after everything that was passed on the way."""

    records: list[FakeRecord]
    position: int


class PartitionLog:
    """Entries in offset order, as columns: records, and markers (no record) that end a transaction. Offsets may have
    gaps.
    """

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.start = 0
        self.end = 0
        self._ended_epochs: list[int] = []  # where each of them ended
        self._offsets: list[int] = []
        self._records: list[FakeRecord | None] = []
        self._transactions: list[Transaction | None] = []
        self._open: dict[Transaction, int] = {}

    def append(self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers) -> int:
        """Add a record; the offset that it got."""
        offset = self.end
        self._put(FakeRecord(*self.partition, offset, key, value, timestamp, tuple(headers)), None)
        return offset

    def extend(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers],
        transaction: Transaction | None = None,
    ) -> int:
        """Add records, as columns of equal length; the offset of the first."""
        first = self.end
        if transaction is not None and transaction not in self._open and keys:
            transaction.logs.append(self)
            self._open[transaction] = first
        topic, partition = self.partition
        self.end += len(keys)
        offsets = range(first, self.end)
        self._offsets += offsets
        self._records += [
            FakeRecord(topic, partition, offset, key, value, timestamp, tuple(each))
            for offset, key, value, timestamp, each in zip(offsets, keys, values, timestamps, headers, strict=True)
        ]
        self._transactions += [transaction] * len(keys)
        return first

    def mark(self, transaction: Transaction) -> None:
        """Add the marker that ends a transaction; it takes an offset that no reader ever sees."""
        del self._open[transaction]
        self._put(None, transaction)

    def skip(self, count: int) -> None:
        """Leave a gap of `count` offsets, as compaction does."""
        self.end += count

    def truncate(self, before: int) -> None:
        """Delete everything below `before`, as retention does."""
        self.start = min(max(self.start, before), self.end)
        cut = bisect_left(self._offsets, self.start)
        del self._offsets[:cut], self._records[:cut], self._transactions[:cut]

    def lose_newest(self, end: int) -> None:
        """Lose everything from `end` on, as where a leader is elected that did not have it; no transaction is open."""
        cut = bisect_left(self._offsets, end)
        del self._offsets[cut:], self._records[cut:], self._transactions[cut:]
        self.end = end
        self._ended_epochs.append(end)

    def leader_epoch(self, offset: int) -> int:
        """The epoch in which this offset was written."""
        return sum(end <= offset for end in self._ended_epochs)

    def epoch_end(self, epoch: int) -> int:
        """The first offset behind the records of this epoch."""
        return self._ended_epochs[epoch] if epoch < len(self._ended_epochs) else self.end

    def compact(self) -> None:
        """Keep the last value of each key below the last stable offset, and no tombstones; the offsets stay."""
        last = {record.key: record for record in self._visible(self.start, self.stable_end())}
        kept = sorted((one.offset, one) for one in last.values() if one.value is not None)
        dirty = bisect_left(self._offsets, self.stable_end())
        self._offsets[:dirty] = [offset for offset, _ in kept]
        self._records[:dirty] = [record for _, record in kept]
        self._transactions[:dirty] = [None] * len(kept)  # all of them are committed

    def copy(self, transactions: Mapping[Transaction, Transaction]) -> PartitionLog:
        """The same log apart from this one; open transactions are exchanged for their own copies."""
        other = PartitionLog(self.partition)
        other.start, other.end = self.start, self.end
        other._ended_epochs = self._ended_epochs.copy()
        other._offsets, other._records = self._offsets.copy(), self._records.copy()
        other._transactions = self._transactions.copy()
        if self._open:
            first = bisect_left(self._offsets, self.stable_end())
            other._transactions[first:] = [
                None if one is None else transactions.get(one, one) for one in self._transactions[first:]
            ]
            other._open = {transactions[one]: offset for one, offset in self._open.items()}
        return other

    def stable_end(self) -> int:
        """The last stable offset: the first offset of the oldest open transaction, else the end."""
        return min(self._open.values()) if self._open else self.end

    def read(self, position: int, limit: int, *, read_committed: bool = True) -> Slice:
        """At most `limit` visible records from `position` on; all of them with a negative limit."""
        end = self.stable_end() if read_committed else self.end
        if position >= end:
            return Slice([], position)
        visible = self._visible(position, end, read_committed=read_committed)
        records = list(visible if limit < 0 else islice(visible, limit))
        return Slice(records, records[-1].offset + 1 if len(records) == limit else end)

    def first_at(self, time_ms: int) -> int:
        """The first visible offset with a timestamp of at least `time_ms`, else the stable end."""
        end = self.stable_end()
        return next((record.offset for record in self._visible(self.start, end) if record.timestamp >= time_ms), end)

    def _visible(self, position: int, end: int, *, read_committed: bool = True) -> Iterator[FakeRecord]:
        first, last = bisect_left(self._offsets, position), bisect_left(self._offsets, end)
        records, transactions = self._records, self._transactions
        for index in range(first, last):
            record, transaction = records[index], transactions[index]
            hidden = transaction is not None and transaction.state is not _COMMITTED and read_committed
            if record is not None and not hidden:
                yield record

    def _put(self, record: FakeRecord | None, transaction: Transaction | None) -> None:
        self._offsets.append(self.end)
        self._records.append(record)
        self._transactions.append(transaction)
        self.end += 1
