"""The broker: topics, transactions of fenced producers, committed positions, and what a test does to them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kstream_worker.bus.fake.clients import FakeReader, FakeSource
from kstream_worker.bus.fake.clock import FakeClock
from kstream_worker.bus.fake.cluster import FakeCluster
from kstream_worker.bus.fake.faults import Faults
from kstream_worker.bus.fake.group import Group
from kstream_worker.bus.fake.log import FakeRecord, PartitionLog, Transaction, TransactionState
from kstream_worker.bus.fake.view import FakeGroupView
from kstream_worker.bus.fake.writer import FakeWriter
from kstream_worker.errors import ConfigError
from kstream_worker.ports import Bus
from kstream_worker.records import Committed, Headers, TopicPartition

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588  # the default of Kafka's `max.message.bytes`


class FakeBroker:
    """An in-memory broker; `faults` holds what is to go wrong.

    Args:
        clock: moves while something waits; give the same one to the worker.
        transaction_timeout_s: an open transaction older than this is aborted, as a real coordinator does.
        session_timeout_s: a member of a group that has not polled for longer is put out; inf for never.
        poll_cost_s: time that a poll takes which finds something; one that finds nothing takes all its timeout.
    """

    def __init__(
        self,
        *,
        clock: FakeClock | None = None,
        transaction_timeout_s: float = 30.0,
        session_timeout_s: float = math.inf,
        poll_cost_s: float = 0.001,
    ) -> None:
        self.clock = clock or FakeClock()
        self.faults = Faults()
        self.poll_cost_s = poll_cost_s
        self.configs: dict[str, dict[str, str]] = {}
        self._transaction_timeout_s = transaction_timeout_s
        self._session_timeout_s = session_timeout_s
        self._partitions: dict[str, tuple[TopicPartition, ...]] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._groups: dict[str, Group] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._foreign = 0
        self._topic_ids: dict[str, int] = {}
        self._topics_created = 0

    def create_topic(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Create a topic, or add partitions to it.

        Raises:
            ValueError: fewer partitions than it has.
        """
        present = self.partitions(name)
        if partitions < max(1, len(present)):
            raise ValueError(f"topic '{name}' has {len(present)} partitions; {partitions} is not possible")
        if not present:
            self._topics_created += 1
            self._topic_ids[name] = self._topics_created
        new = [PartitionLog(TopicPartition(name, number)) for number in range(len(present), partitions)]
        self._logs.update((log.partition, log) for log in new)
        self._partitions[name] = (*present, *(log.partition for log in new))
        self.configs.setdefault(name, {}).update(config or {})

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, and the positions that groups have committed for it.

        Raises:
            ValueError: it does not exist.
        """
        if name not in self._partitions:
            raise ValueError(f"topic '{name}' does not exist")
        for partition in self._partitions.pop(name):
            del self._logs[partition]
        del self.configs[name]
        for group in self._groups.values():
            group.positions = {one: at for one, at in group.positions.items() if one.topic != name}
        for transaction in self._open.values():
            transaction.forget(name)

    def topic_id(self, name: str) -> str:
        """Another one each time the topic is created; empty when it does not exist."""
        return f"topic-{self._topic_ids[name]}" if name in self._partitions else ""

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> int:
        """Add one record outside any transaction; its offset. Without a timestamp it gets the clock's."""
        time_ms = self.clock.time_ms() if timestamp is None else timestamp
        return self.log(TopicPartition(topic, partition)).append(key, value, time_ms, headers)

    def records(self, topic: str, *, read_committed: bool = True) -> list[FakeRecord]:
        """All records of a topic that a consumer sees, by partition and offset."""
        self._expire()
        return [
            record
            for log in map(self._logs.__getitem__, self._partitions[topic])
            for record in log.read(log.start, -1, read_committed=read_committed).records
        ]

    def bus(
        self, *, topic: str, group: str = "app", identity: str = "app-0", poll_sizes: Sequence[int] = (500,)
    ) -> Bus:
        """The adapters for one process.

        Args:
            topic: the input topic.
            group: the consumer group.
            identity: of the process: its static member id and its transactional id.
            poll_sizes: most records of successive polls, used in turn.
        """
        return Bus(
            source=lambda: FakeSource(self, topic, group, identity, poll_sizes),
            writer=lambda: FakeWriter(self, group, identity),
            cluster=lambda: FakeCluster(self, group, identity),
            reader=lambda: FakeReader(self, identity),
            group=lambda: FakeGroupView(self, group),
            transaction_timeout_s=self._transaction_timeout_s,
        )

    def gap(self, topic: str, partition: int, count: int = 1) -> None:
        """Leave out the next `count` offsets."""
        self.log(TopicPartition(topic, partition)).skip(count)

    def truncate(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset."""
        self.log(TopicPartition(topic, partition)).truncate(before)

    def lose_newest(self, topic: str, partition: int, end: int) -> None:
        """Lose the records of a partition from an offset on, by an unclean election of its leader."""
        self.log(TopicPartition(topic, partition)).lose_newest(end)

    def compact(self, topic: str) -> None:
        """Keep the last value of each key, as the cleaner does where nothing delays it; offsets get gaps."""
        self._expire()
        for partition in self._partitions[topic]:
            self._logs[partition].compact()

    def expire_positions(self, group: str) -> None:
        """Forget what a group has committed, as happens to one without members for too long."""
        self.group(group).positions.clear()

    def copy(self) -> FakeBroker:
        """The same broker apart from this one, with its own clock: topics, groups, open transactions.

        Planned faults stay behind, except for rights that are missing.
        """
        other = FakeBroker(
            clock=FakeClock(self.clock()),
            transaction_timeout_s=self._transaction_timeout_s,
            session_timeout_s=self._session_timeout_s,
            poll_cost_s=self.poll_cost_s,
        )
        other.faults.denied = self.faults.denied.copy()
        other.configs = {name: config.copy() for name, config in self.configs.items()}
        other._partitions, other._topic_ids = self._partitions.copy(), self._topic_ids.copy()
        other._topics_created, other._foreign = self._topics_created, self._foreign
        other._epochs = self._epochs.copy()
        other._groups = {name: group.copy(other.clock) for name, group in self._groups.items()}
        opened = {one: one.copy() for one in self._open.values()}
        other._open = {name: opened[one] for name, one in self._open.items()}
        other._logs = {partition: log.copy(opened) for partition, log in self._logs.items()}
        for before, after in opened.items():
            after.logs = [other._logs[log.partition] for log in before.logs]
        return other

    def transaction(self, identity: str | None = None) -> ForeignTransaction:
        """Open a transaction of a producer that is not ours (or, with an identity, in its name)."""
        self._foreign += 1
        return ForeignTransaction(self, identity or f"foreign-{self._foreign}")

    def evict(self, group: str, identity: str) -> None:
        """Put a member out of its group, as happens to one that did not poll for too long."""
        self.group(group).leave(identity)

    def committed(self, group: str, topic: str, partition: int) -> Committed | None:
        """The committed position of a group, open transactions not counted."""
        self._expire()
        return self.group(group).positions.get(TopicPartition(topic, partition))

    def has_pending_position(self, group: str, partition: TopicPartition) -> bool:
        """Whether an open transaction holds a position of this partition."""
        self._expire()
        return any((group, partition) in transaction.positions for transaction in self._open.values())

    def partitions(self, topic: str) -> tuple[TopicPartition, ...]:
        """The partitions of a topic, the same object while it does not change; none when it does not exist."""
        return self._partitions.get(topic, ())

    def log(self, partition: TopicPartition) -> PartitionLog:
        """The log of a partition.

        Raises:
            ConfigError: it does not exist.
        """
        if self._open:
            self._expire()
        found = self._logs.get(partition)
        if found is None:
            raise ConfigError(f"{partition} does not exist; create the topic with enough partitions")
        return found

    def group(self, name: str) -> Group:
        """A group, made at first sight."""
        if name not in self._groups:
            self._groups[name] = Group(name, self.clock, self._session_timeout_s)
        return self._groups[name]

    def max_message_bytes(self, topic: str) -> int:
        """Largest record that the topic takes."""
        return int(self.configs[topic].get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))

    def fence(self, producer: str) -> int:
        """Begin a new epoch of a producer and abort what it has open; the epoch."""
        self.end_transaction(producer, TransactionState.ABORTED)
        self._epochs[producer] = self._epochs.get(producer, -1) + 1
        return self._epochs[producer]

    def epoch(self, producer: str) -> int:
        """The current epoch of a producer."""
        return self._epochs.get(producer, -1)

    def begin(self, producer: str) -> Transaction:
        """Open a transaction."""
        self._open[producer] = Transaction(producer, self.clock())
        return self._open[producer]

    def end_transaction(self, producer: str, state: TransactionState) -> None:
        """End the open transaction of a producer, if there is one, and write its markers."""
        transaction = self._open.pop(producer, None)
        if transaction is None:
            return
        transaction.state = state
        for log in transaction.logs:
            log.mark(transaction)
        if state is TransactionState.COMMITTED:
            for (group, partition), position in transaction.positions.items():
                self.group(group).positions[partition] = position

    def _expire(self) -> None:
        oldest_s = self.clock() - self._transaction_timeout_s
        for transaction in [open_one for open_one in self._open.values() if open_one.started_s < oldest_s]:
            self.end_transaction(transaction.producer, TransactionState.ABORTED)


class ForeignTransaction:
    """An open transaction of another producer: its records hide what comes after them until it ends."""

    def __init__(self, broker: FakeBroker, producer: str) -> None:
        broker.fence(producer)
        self._broker = broker
        self._transaction = broker.begin(producer)

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int | None = None,
    ) -> int:
        """Add a record; its offset."""
        time_ms = self._broker.clock.time_ms() if timestamp is None else timestamp
        log = self._broker.log(TopicPartition(topic, partition))
        return log.extend([key], [value], [time_ms], [()], self._transaction)

    def commit(self) -> None:
        """Let its records be seen; no effect on one that was timed out or fenced."""
        self._end(TransactionState.COMMITTED)

    def abort(self) -> None:
        """Let its records never be seen."""
        self._end(TransactionState.ABORTED)

    def _end(self, state: TransactionState) -> None:
        if self._transaction.state is TransactionState.OPEN:
            self._broker.end_transaction(self._transaction.producer, state)
