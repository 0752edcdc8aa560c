"""Consumers of the fake broker: a member of a group, and a reader outside any group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from kstream_worker.bus.common import reasons
from kstream_worker.bus.fake.group import FakeMembership
from kstream_worker.bus.fake.log import FakeRecord, Slice
from kstream_worker.errors import ConfigError, Fatal, Retry
from kstream_worker.records import Batch, Change, ChangeKind, Committed, Poll, TopicPartition

if TYPE_CHECKING:
    from kstream_worker.bus.fake.broker import FakeBroker

READER_POLL_RECORDS = 500


class FakeSource:
    """The `Source` of one process. A poll that finds nothing moves the clock by its timeout."""

    def __init__(self, broker: FakeBroker, topic: str, group: str, identity: str, poll_sizes: Sequence[int]) -> None:
        self._broker = broker
        self._topic = topic
        self._group = broker.group(group)
        self._identity = identity
        self._incarnation = 0
        self._sizes = cycle(poll_sizes)
        self._positions: dict[TopicPartition, int | None] = {}
        self._epochs: dict[TopicPartition, int] = {}  # to be checked at the next poll
        self._paused: set[TopicPartition] = set()
        self._membership: FakeMembership | None = None
        self._unsettled_polls = 0

    def start(self) -> None:
        """Join the group.

        Raises:
            ConfigError: the topic does not exist.
        """
        self._broker.faults.reach("start", self._identity)
        if not self._broker.partitions(self._topic):
            raise ConfigError(f"input topic '{self._topic}' does not exist: create it")
        self._incarnation = self._group.join(self._identity)

    def poll(self, timeout_s: float) -> Poll:
        """Changes of the assignment, then records, at most as many as the next poll size.

        Raises:
            Fatal: another process has taken over the identity, or a position is outside its log.
        """
        number = self._broker.faults.reach("poll", self._identity)
        found = Poll(changes=self._changes(number))
        if self._membership is not None:
            found.batches = self._batches(next(self._sizes))
        idle = not (found.changes or found.batches)
        self._broker.clock.sleep(timeout_s if idle else min(timeout_s, self._broker.poll_cost_s))
        self._group.heard_of(self._identity)
        return found

    def membership(self) -> FakeMembership | None:
        """The proof captured at the end of the last settled poll."""
        return self._membership

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions."""
        self._paused.update(self._positions.keys() & set(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records again."""
        self._paused.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Read from `offset` on; no effect on a partition that is not assigned."""
        if partition in self._positions:
            self._positions[partition] = offset
            self._epochs[partition] = leader_epoch

    def position(self, partition: TopicPartition) -> int | None:
        """The offset to be read next; None before the first seek and when not assigned."""
        return self._positions.get(partition)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Of what lies before the position."""
        position = self._positions.get(partition)
        return -1 if position is None else self._broker.log(partition).leader_epoch(position - 1)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions.

        Raises:
            Retry: an open transaction still holds one of them after `timeout_s`.
        """
        self._broker.faults.reach("committed", self._identity)
        if self._pending(partitions):
            self._broker.clock.sleep(timeout_s)
        if pending := self._pending(partitions):
            raise Retry(f"positions of {', '.join(map(str, pending))} are held by an open transaction")
        return {partition: self._broker.committed(self._group.name, *partition) for partition in partitions}

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Stop; with `leave` the partitions are free at once, else they wait for this identity to return."""
        del timeout_s  # nothing here waits
        if leave and self._incarnation and self._group.is_member(self._identity, self._incarnation):
            self._group.leave(self._identity)
        self._incarnation = 0
        self._membership = None
        self._positions.clear()

    def _changes(self, number: int) -> list[Change]:
        if not self._incarnation:
            raise Fatal("this source is not started, or closed")
        member = self._group.is_member(self._identity, self._incarnation)
        planned = self._broker.faults.next_rebalance(self._identity, number)
        if planned is not None and member:
            self._unsettled_polls = planned.unsettled_polls
            return self._put_out(planned.kind)
        if not member and self._positions:
            return self._drop(ChangeKind.LOST, sorted(self._positions))
        if self._unsettled_polls > 0:
            self._unsettled_polls -= 1
            return []
        if not member:
            self._group.enter(self._identity, self._incarnation)
        return self._settle()

    def _put_out(self, kind: ChangeKind) -> list[Change]:
        if kind is ChangeKind.LOST:
            self._group.leave(self._identity)
        else:
            self._group.release(self._identity)
        return self._drop(kind, sorted(self._positions))

    def _drop(self, kind: ChangeKind, partitions: list[TopicPartition]) -> list[Change]:
        self._membership = None
        for partition in partitions:
            del self._positions[partition]
        return [Change(kind, tuple(partitions))] if partitions else []

    def _settle(self) -> list[Change]:
        changes = self._group.settle(self._identity, self._broker.partitions(self._topic))
        for change in changes:
            for partition in change.partitions:
                if change.kind is ChangeKind.ASSIGNED:
                    self._positions[partition] = None
                    self._paused.add(partition)
                else:
                    del self._positions[partition]
        if changes or not self._group.is_current(self._membership):
            self._membership = self._group.membership(self._identity)
        return changes

    def _batches(self, limit: int) -> list[Batch]:
        batches: list[Batch] = []
        if ("read", self._topic) in self._broker.faults.denied:
            return batches
        for partition, position in self._positions.items():
            if limit <= 0:
                break
            if position is None or partition in self._paused:
                continue
            self._check(partition, position, self._epochs.pop(partition, -1))
            found = _read(self._broker, partition, position, limit)
            self._positions[partition] = found.position
            limit -= len(found.records)
            if found.records:
                batches.append(_batch(self._broker, partition, found))
        return batches

    def _check(self, partition: TopicPartition, position: int, leader_epoch: int) -> None:
        if leader_epoch >= 0 and self._broker.log(partition).epoch_end(leader_epoch) < position:
            raise Fatal(f"{partition}: {reasons.LOST_NEWEST}")

    def _pending(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [one for one in partitions if self._broker.has_pending_position(self._group.name, one)]


class FakeReader:
    """The `Reader`: any partitions from any offsets, without a group."""

    def __init__(self, broker: FakeBroker, identity: str) -> None:
        broker.faults.reach("reader", identity)
        self._broker = broker
        self._identity = identity
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        self._positions = dict(positions)

    def poll(self, timeout_s: float) -> list[Batch]:
        """Records of all partitions, or none after `timeout_s`."""
        self._broker.faults.reach("reader.poll", self._identity)
        batches = []
        for partition, position in self._positions.items():
            if ("read", partition.topic) in self._broker.faults.denied:
                continue
            found = _read(self._broker, partition, position, READER_POLL_RECORDS)
            self._positions[partition] = found.position
            if found.records:
                batches.append(_batch(self._broker, partition, found))
        self._broker.clock.sleep(min(timeout_s, self._broker.poll_cost_s) if batches else timeout_s)
        return batches

    def position(self, partition: TopicPartition) -> int:
        """The offset to be read next."""
        return self._positions[partition]

    def close(self) -> None:
        """Stop."""
        self._positions.clear()


def _read(broker: FakeBroker, partition: TopicPartition, position: int, limit: int) -> Slice:
    log = broker.log(partition)
    if not log.start <= position <= log.end:
        raise Fatal(
            f"{partition}: offset {position} is outside the log ({log.start} to {log.end}): records were "
            "deleted before they were read, or the topic was created anew; set the group's position by hand"
        )
    return log.read(position, limit)


def _batch(broker: FakeBroker, partition: TopicPartition, found: Slice) -> Batch:
    records: list[FakeRecord] = found.records
    return Batch(
        partition=partition,
        offsets=[record.offset for record in records],
        timestamps=[record.timestamp for record in records],
        keys=[record.key for record in records],
        values=[record.value for record in records],
        headers=[record.headers for record in records],
        next_offset=found.position,
        leader_epoch=broker.log(partition).leader_epoch(found.position - 1),
    )
