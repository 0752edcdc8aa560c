"""The member of the consumer group that reads the input topic."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import Deadline, run_bounded
from kstream_worker.bus.kafka_python import internals
from kstream_worker.bus.kafka_python.columns import leader_epoch_of, to_batch
from kstream_worker.bus.kafka_python.errors import classify, translate
from kstream_worker.bus.kafka_python.membership import KafkaMembership
from kstream_worker.bus.kafka_python.offsets import read_committed_offsets
from kstream_worker.bus.kafka_python.polling import poll
from kstream_worker.bus.kafka_python.rebalance import AssignmentLog, HonestAssignor
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.errors import Fatal, KstreamError
from kstream_worker.ports import Membership
from kstream_worker.records import Batch, Change, ChangeKind, Committed, Poll, TopicPartition

log = logging.getLogger(__name__)

SETTLED_SLICE_S = 0.1  # a longer wait would delay what the group asks of us
JOINING_SLICE_S = 1.0  # a join that ends between two polls is thrown away by the client
SHORTEST_POLL_S = 0.01  # a poll of 0 starts a join and never ends it


class KafkaSource:
    """`ports.Source` on kafka-python.

    Args:
        settings: of all clients.
        topic: the input topic.
        group_id: the consumer group.
        instance_id: makes this a static member: a restart within the session time-out moves no partition.
    """

    def __init__(self, settings: KafkaSettings, *, topic: str, group_id: str, instance_id: str | None = None) -> None:
        self._settings = settings
        self._topic = topic
        self._group_id = group_id
        self._instance_id = instance_id
        self._consumer: Any = None
        self._membership: KafkaMembership | None = None
        self._owned: set[TopicPartition] = set()
        self._sought: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._held_error: KstreamError | None = None

    def start(self) -> None:
        """Connect and subscribe; the first polls join the group.

        Raises:
            Retry: no broker answers.
            ConfigError: a setting is wrong, or a right is missing.
        """
        assignor = HonestAssignor()
        settings = {
            **self._settings.for_consumer(),
            "group_id": self._group_id,
            "group_instance_id": self._instance_id,
            "partition_assignment_strategy": [assignor],
        }
        with translate(f"joining the group {self._group_id}"):
            consumer: Any = KafkaConsumer(**settings)
        assignor.member_id = lambda: str(internals.group_state(consumer).member_id)
        self._log = AssignmentLog(consumer, assignor)
        consumer.subscribe([self._topic], listener=self._log)
        self._consumer = consumer

    def poll(self, timeout_s: float) -> Poll:
        """Changes of the assignment, then records; see `ports.Source`.

        While the group is unsettled a call lasts until it is settled or `timeout_s` is over: give it a second then,
        and do no work between two such calls.

        Raises:
            Retry: passing; poll again.
            Fatal: another process uses this instance id, the position is out of range, or a right is missing.
        """
        deadline = Deadline(max(timeout_s, SHORTEST_POLL_S))
        while True:
            records = self._poll_client(deadline)
            self._settle()
            found = self._collect(records)
            if found.changes or found.batches or deadline.passed():
                return found

    def membership(self) -> Membership | None:
        """The capture made after the last poll; None while unsettled."""
        return self._membership

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until resumed."""
        self._paused.update(self._owned.intersection(partitions))
        self._restore_pauses()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records again; a partition stays still until it was sought."""
        self._paused.difference_update(partitions)
        self._restore_pauses()

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Read on from `offset`; no effect on a partition that is not assigned."""
        client_partition = ClientPartition(*partition)
        if partition in self._owned and client_partition in self._consumer.assignment():
            internals.seek(self._consumer, client_partition, OffsetAndMetadata(offset, "", leader_epoch))
            self._sought.add(partition)
            self._restore_pauses()

    def position(self, partition: TopicPartition) -> int | None:
        """The offset to be read next; None where not assigned or not sought."""
        if partition not in self._sought:
            return None
        return internals.position_offset(self._consumer, ClientPartition(*partition))

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Of what lies before the position; -1 where unknown."""
        reached = internals.position(self._consumer, ClientPartition(*partition))
        return -1 if reached is None else leader_epoch_of(reached)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions, once no transaction on them is open.

        Raises:
            Retry: a transaction is still open, or the broker did not answer in time.
        """
        return read_committed_offsets(self._consumer, partitions, Deadline(timeout_s))

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Stop within `timeout_s`, whatever the broker does. A dynamic member always leaves the group."""
        consumer, self._consumer = self._consumer, None
        self._membership = None
        self._owned, self._sought, self._paused = set(), set(), set()
        if consumer is None:
            return
        if leave and self._instance_id is not None:
            internals.leave_although_static(consumer)
        try:
            closed = run_bounded(
                lambda: consumer.close(autocommit=False, timeout_ms=timeout_s * 1000 / 2),
                timeout_s,
                "kafka-consumer-close",
            )
        except KafkaError as error:
            log.warning("closing the consumer: %s", error)
        else:
            if not closed:
                log.warning("the consumer did not close within %.1f s and was left behind", timeout_s)

    def _poll_client(self, deadline: Deadline) -> dict[ClientPartition, list[Any]]:
        error, self._held_error = self._held_error, None
        if error is not None:
            raise error
        try:
            return self._fetch(deadline) if self._is_settled() else self._join(deadline)
        except (KafkaError, OSError) as found:
            error = classify(found, f"reading {self._topic}")
            if not self._log.pending():
                self._membership = None
                raise error from found
            self._held_error = error  # changes come first
            return {}

    def _fetch(self, deadline: Deadline) -> dict[ClientPartition, list[Any]]:
        slice_s = max(min(deadline.left_s(), SETTLED_SLICE_S), SHORTEST_POLL_S)
        internals.free_line(self._consumer)
        return poll(self._consumer, [ClientPartition(*partition) for partition in self._sought], slice_s)

    def _join(self, deadline: Deadline) -> dict[ClientPartition, list[Any]]:
        slice_s = max(min(deadline.left_s(), JOINING_SLICE_S), SHORTEST_POLL_S)
        internals.join_group(self._consumer, slice_s)
        return {}

    def _is_settled(self) -> bool:
        consumer = self._consumer
        return internals.is_stable(internals.group_state(consumer)) and not internals.rejoin_wanted(consumer)

    def _settle(self) -> None:
        """Capture the membership if this poll left the group settled, else forget it."""
        self._membership = None
        metadata = internals.group_state(self._consumer)
        if internals.fenced_without_word(self._consumer):
            raise Fatal(
                f"another process joined the group {self._group_id} with the instance id {self._instance_id}: "
                "give each process its own"
            )
        if internals.is_stable(metadata):
            self._log.settled(metadata.member_id)
            partitions = frozenset(TopicPartition(*each) for each in self._consumer.assignment())
            self._membership = KafkaMembership(metadata, partitions)

    def _collect(self, records: Mapping[ClientPartition, list[Any]]) -> Poll:
        changes = self._log.take()
        for change in changes:
            self._apply(change)
        if changes:
            self._restore_pauses()
        if self._membership is not None and self._membership.partitions != self._owned:
            self._membership = None
        return Poll(changes=changes, batches=list(self._batches(records)))

    def _apply(self, change: Change) -> None:
        self._sought.difference_update(change.partitions)
        if change.kind is ChangeKind.ASSIGNED:
            self._owned.update(change.partitions)
            self._paused.update(change.partitions)
        else:
            self._owned.difference_update(change.partitions)
            self._paused.difference_update(change.partitions)

    def _restore_pauses(self) -> None:
        """Set the pause state of every assigned partition: one that leaves and returns comes back unpaused."""
        for client_partition in self._consumer.assignment():
            if self._is_flowing(TopicPartition(*client_partition)):
                self._consumer.resume(client_partition)
            else:
                self._consumer.pause(client_partition)

    def _is_flowing(self, partition: TopicPartition) -> bool:
        return partition in self._sought and partition not in self._paused

    def _batches(self, records: Mapping[ClientPartition, list[Any]]) -> Iterator[Batch]:
        for client_partition, rows in records.items():
            partition = TopicPartition(*client_partition)
            if rows and self._is_flowing(partition):
                yield to_batch(partition, rows, internals.position(self._consumer, client_partition))
