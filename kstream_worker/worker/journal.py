"""What a commit adds for the next process: a header for each of its partitions, snapshots, and deletions.

Snapshots go oldest dirty key first, at a pace in bytes: at least `FLOOR_BYTES_S` where keys are due, and as much as it
takes to have written all dirty keys once in `replay_records` records. Where that is not enough, since a commit has its
own limit, nothing new is read until it is: a process never has to read more again. Keys whose published state changed
always go with the commit that publishes it: what was published is never derived again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kstream_worker.measures import Telemetry
from kstream_worker.records import Headers, Messages, Progress, TopicPartition
from kstream_worker.state.format import (
    HEADER_KEY,
    POSITION_HEADER,
    encode_header,
    encode_snapshot,
    state_key,
)
from kstream_worker.worker.task import Task

FLOOR_BYTES_S = 4 * 2**20
_MOST_DELETIONS = 20_000  # of one partition in one commit
_LATE = 0.5  # share of `replay_records` from which a key's time does not matter
_TOO_LATE = 0.9  # share from which the budget does not matter either, and nothing new is read
_IN_TIME = 0.8  # share at which reading goes on
_NO_HEADERS: Headers = ()


@dataclass(frozen=True, slots=True)
class SnapshotPolicy:
    """How state is written.

    Attributes:
        topic: of the state.
        interval_s: a key in use is written about this often.
        replay_records: most records that this process may have to read again.
        max_bytes: of the snapshots of one commit.
        format: of the records.
    """

    topic: str
    interval_s: float = 30.0
    replay_records: int = 5_000_000
    max_bytes: int = 16 * 2**20
    format: int = 1


class Journal:
    """Chooses and encodes what is written of the state, and keeps the books of what is in flight.

    Args:
        policy: see `SnapshotPolicy`.
        tasks: the open partitions; the loop's own table.
        telemetry: measurements.
        clock: monotonic seconds.
        now_ms: the wall clock, for the record times of the state topic alone.

    Attributes:
        draining: everything dirty is due, whatever its age.
    """

    def __init__(
        self,
        policy: SnapshotPolicy,
        tasks: Mapping[TopicPartition, Task],
        telemetry: Telemetry,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self.draining = False
        self._policy = policy
        self._tasks = tasks
        self._telemetry = telemetry
        self._clock = clock
        self._now_ms = now_ms
        self._last_s = clock()
        self._last_records = 0
        self._snapshot_bytes = 0.0  # mean, of those written so far
        self._overdue = False

    def pending(self) -> list[TopicPartition]:
        """Partitions with keys or deletions that are due, for which a commit is worth while without new records."""
        now = self._clock()
        return [tp for tp, task in self._tasks.items() if _is_open(task) and self._is_due(task, now)]

    def overdue(self) -> bool:
        """Whether snapshots lag so far behind that nothing new should be read."""
        limit = (_IN_TIME if self._overdue else _TOO_LATE) * self._policy.replay_records
        self._overdue = sum(_span(task) for task in self._tasks.values() if _is_open(task)) > limit
        return self._overdue

    def changed_bytes(self) -> int:
        """Bytes of the snapshots that the next commit must contain, at most: none of a replay, which has no commit."""
        return sum(len(task.changed) * task.bytes_per_key for task in self._tasks.values() if _is_open(task))

    def collect(self, progress: Mapping[TopicPartition, Progress], token: str) -> tuple[list[Messages], list[Task]]:
        """The state part of a commit of these positions; the tasks that have something in flight from now on."""
        tasks = [self._tasks[tp] for tp in progress if tp in self._tasks]
        pages = {task.partition: _Page(task, self._policy) for task in tasks}
        budget = self._budget()
        for page in pages.values():
            page.delete(_MOST_DELETIONS)
            page.write_all(_changed(page.task))
        self._write_oldest([page for page in pages.values() if _is_open(page.task)], budget)
        messages = []
        for tp, page in pages.items():
            page.finish(progress[tp].offset, token)
            messages.append(page.messages(self._now_ms()))
        self._count(pages.values())
        return messages, tasks

    def _budget(self) -> int:
        """Bytes for the snapshots of this commit."""
        now = self._clock()
        elapsed_s, self._last_s = max(now - self._last_s, 1e-3), now
        so_far = sum(task.ledger.ordinal for task in self._tasks.values())
        records, self._last_records = max(so_far - self._last_records, 0), so_far
        size = self._snapshot_bytes or max((task.bytes_per_key for task in self._tasks.values()), default=0)
        dirty = size * sum(len(task.ledger.dirty) for task in self._tasks.values())
        allowed = max(FLOOR_BYTES_S * elapsed_s, dirty * records / self._policy.replay_records)
        self._telemetry.snapshot_budget(allowed / elapsed_s)
        return self._policy.max_bytes if self.draining else min(round(allowed), self._policy.max_bytes)

    def _write_oldest(self, pages: list[_Page], budget: int) -> None:
        now = self._clock()
        written = sum(page.snapshot_bytes for page in pages)
        spans = {page.task.partition: _span(page.task) for page in pages}
        total = sum(_span(task) for task in self._tasks.values())
        by_partition = {page.task.partition: page for page in pages}
        while spans:
            tp = max(spans, key=spans.__getitem__)
            page = by_partition[tp]
            late = total / self._policy.replay_records
            limit = self._policy.max_bytes if self._overdue or late > _TOO_LATE else budget
            if written >= limit:
                return
            if not (late > _LATE or self._is_due(page.task, now)):
                del spans[tp]
                continue
            written += page.write_oldest()
            span = _span(page.task)
            total += span - spans[tp]
            spans[tp] = span
            if not page.task.ledger.dirty:
                del spans[tp]

    def _is_due(self, task: Task, now_s: float) -> bool:
        oldest = task.ledger.dirty.oldest()
        hurry = self.draining or self._overdue
        due = oldest is not None and (hurry or now_s - oldest[1].since_s >= self._policy.interval_s)
        return due or bool(task.ledger.gone)

    def _count(self, pages: Iterable[_Page]) -> None:
        count = sum(page.snapshots for page in pages)
        size = sum(page.snapshot_bytes for page in pages)
        if count:
            mean = size / count
            self._snapshot_bytes = mean if not self._snapshot_bytes else 0.9 * self._snapshot_bytes + 0.1 * mean


class _Page:
    """What one commit writes to one partition of the state topic."""

    def __init__(self, task: Task, policy: SnapshotPolicy) -> None:
        self.task = task
        self.snapshots = 0
        self.snapshot_bytes = 0
        self._policy = policy
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers] = []

    def delete(self, most: int) -> None:
        """Delete the snapshots of keys that went."""
        for key, offset in self.task.ledger.take_gone(most):
            self._add(state_key(key), None, ((POSITION_HEADER, str(offset).encode()),))

    def write_all(self, slots: Iterable[int]) -> None:
        """Write these slots."""
        for slot in slots:
            self._write(slot)

    def write_oldest(self) -> int:
        """Write the key that is dirty for longest; its bytes."""
        oldest = self.task.ledger.dirty.oldest()
        return 0 if oldest is None else self._write(oldest[0])

    def finish(self, offset: int, token: str) -> None:
        """Write the header, last."""
        header = self.task.ledger.header_at(offset, token)
        self._add(HEADER_KEY, encode_header(header, self._policy.format), _NO_HEADERS)

    def messages(self, time_ms: int) -> Messages:
        """All of it, in the order written."""
        target = TopicPartition(self._policy.topic, self.task.partition.partition)
        return Messages(target, self._keys, self._values, [time_ms] * len(self._keys), self._headers)

    def _write(self, slot: int) -> int:
        ledger = self.task.ledger
        value = encode_snapshot(self.task.snapshot(slot), self._policy.format)
        self.task.take(slot)
        self._add(state_key(ledger.keys.name(slot)), value, _NO_HEADERS)
        self.snapshots += 1
        self.snapshot_bytes += len(value)
        return len(value)

    def _add(self, key: bytes, value: bytes | None, headers: Headers) -> None:
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)


def _changed(task: Task) -> list[int]:
    """Slots whose published state changed, in the order in which their keys became dirty."""
    return task.ledger.dirty.in_order(task.changed) if task.changed else []


def _is_open(task: Task) -> bool:
    return not task.ledger.replaying


def _span(task: Task) -> int:
    oldest = task.ledger.dirty.oldest()
    return 0 if oldest is None else task.ledger.ordinal - oldest[1].ordinal
