"""The member of the consumer group that reads the input topic."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import Deadline, run_bounded
from kstream_worker.bus.common.gc_pause import collector_paused
from kstream_worker.bus.confluent.assignment import AssignmentLog
from kstream_worker.bus.confluent.clients import Notes, connect, new_consumer, take
from kstream_worker.bus.confluent.columns import split_errors, to_batches
from kstream_worker.bus.confluent.errors import cause_of, classify, is_truncation, meaning_of
from kstream_worker.bus.confluent.membership import ConfluentMembership
from kstream_worker.bus.confluent.offsets import read_committed_offsets
from kstream_worker.bus.confluent.settings import ConfluentSettings
from kstream_worker.errors import KstreamError, Rejoin
from kstream_worker.ports import Membership
from kstream_worker.records import Batch, Change, ChangeKind, Committed, Poll, Progress, TopicPartition

log = logging.getLogger(__name__)

SLICE_S = 0.1  # a change of the assignment ends a poll that late at most, and a signal waits no longer
HARMLESS = frozenset({KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED})  # changes follow the second


class ConfluentSource:
    """`ports.Source` on librdkafka.

    Args:
        settings: of all clients.
        topic: the input topic.
        group_id: the consumer group.
        instance_id: makes this a static member: a restart within the session time-out moves no partition.
    """

    def __init__(
        self, settings: ConfluentSettings, *, topic: str, group_id: str, instance_id: str | None = None
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._group_id = group_id
        self._instance_id = instance_id
        self._consumer: Consumer | None = None
        self._notes = Notes()
        self._log = AssignmentLog()
        self._membership: ConfluentMembership | None = None
        self._positions: dict[TopicPartition, Progress] = {}  # of those that were sought
        self._unplaced: set[TopicPartition] = set()  # sought while the client could not
        self._owned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._flowing: set[TopicPartition] = set()  # as the client has it
        self._held_error: KstreamError | None = None

    def start(self) -> None:
        """Connect and subscribe; the first polls join the group.

        Raises:
            Retry: no broker answers.
            ConfigError: a setting is wrong, or the login is refused.
        """
        settings = {**self._settings.for_consumer(), "group.id": self._group_id}
        if self._instance_id is not None:
            settings["group.instance.id"] = self._instance_id
        self._notes, self._log = Notes(), AssignmentLog()
        consumer = new_consumer(settings, self._notes)
        try:
            connect(
                lambda timeout_s: consumer.list_topics(self._topic, timeout_s),
                lambda: consumer.poll(0),
                self._notes,
                f"joining the group {self._group_id}",
            )
        except BaseException:
            consumer.close()
            raise
        consumer.subscribe(
            [self._topic], on_assign=self._log.on_assign, on_revoke=self._log.on_revoke, on_lost=self._log.on_lost
        )
        self._consumer = consumer

    def poll(self, timeout_s: float) -> Poll:
        """Changes of the assignment, then records; see `ports.Source`.

        Raises:
            Retry: passing; poll again.
            Rejoin: the client's assignment is not the group's any more.
            Fatal: another process uses this instance id, or the position is out of range.
            ConfigError: a right is missing, or the login is refused.
        """
        deadline = Deadline(timeout_s)
        while True:
            with collector_paused():
                messages = self._poll_client(deadline)
                self._settle()
                found = self._collect(messages)
            if found.changes or found.batches or deadline.passed():
                return found

    def membership(self) -> Membership | None:
        """The capture made with the last assignment; None while another generation is on its way."""
        return self._membership

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until resumed."""
        self._paused.update(self._owned.intersection(partitions))
        self._set_flow()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records again; a partition stays still until it was sought."""
        self._paused.difference_update(partitions)
        self._set_flow()

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Read on from `offset`; no effect on a partition that is not assigned."""
        if partition in self._owned:
            self._positions[partition] = Progress(offset, leader_epoch)
            self._unplaced.add(partition)
            self._set_flow()

    def position(self, partition: TopicPartition) -> int | None:
        """The offset to be read next; None where not assigned or not sought."""
        reached = self._reached(partition)
        return None if reached is None else reached.offset

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Of what lies before the position; -1 where unknown."""
        reached = self._reached(partition)
        return -1 if reached is None else reached.leader_epoch

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions, once no transaction on them is open.

        Raises:
            Retry: a transaction is still open, or the broker did not answer in time.
        """
        return read_committed_offsets(self._client, partitions, Deadline(timeout_s))

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Stop within `timeout_s`, whatever the broker does. A dynamic member always leaves the group."""
        consumer, self._consumer = self._consumer, None
        self._membership = None
        self._positions, self._unplaced = {}, set()
        self._owned, self._paused, self._flowing = set(), set(), set()
        if consumer is None:
            return
        self._log.end()
        farewell = leave and self._instance_id is not None
        deadline = Deadline(timeout_s / 2)
        try:
            closed = run_bounded(lambda: _close(consumer, deadline if farewell else None), timeout_s, "kafka-close")
        except (KafkaException, RuntimeError, SystemError) as error:  # SystemError: it lost track of one of its own
            log.warning("closing the consumer: %s", error)
        else:
            if not closed:
                log.warning("the consumer did not close within %.1f s and was left behind", timeout_s)

    @property
    def _client(self) -> Consumer:
        if self._consumer is None:
            raise RuntimeError("the source was not started, or is closed")
        return self._consumer

    def _poll_client(self, deadline: Deadline) -> list[Message]:
        error, self._held_error = self._held_error, None
        if error is not None:
            raise error
        try:
            return take(self._client, max(0.0, min(deadline.left_s(), SLICE_S)))
        except KafkaException as found:
            self._read_again()
            error = classify(found, f"reading {self._topic}")
            if not self._log.pending():
                self._membership = None
                raise error from found
            self._held_error = error  # changes come first
            return []

    def _read_again(self) -> None:
        """What the client took for a call that raised, it gave to nobody and has passed: go back to before it."""
        self._unplaced |= self._flowing
        self._set_flow()

    def _settle(self) -> None:
        """The capture holds while the client is in the generation that it was made in."""
        refusal = self._notes.refusal(f"reading {self._topic}", connected=True)
        if refusal is not None:
            raise refusal
        if self._log.failure is not None:
            why = cause_of(self._log.failure).str()
            raise Rejoin(f"the client did not take an assignment of the group ({why})") from self._log.failure
        captured = self._log.captured
        current = captured is not None and captured.is_member and self._client.consumer_group_metadata()
        self._membership = captured if captured is not None and current == captured.metadata else None

    def _collect(self, messages: list[Message]) -> Poll:
        changes = self._log.take()
        for change in changes:
            self._apply(change)
        late = set(self._unplaced)  # what came of them is from before their seek
        if changes or self._unplaced:
            self._set_flow()
        records, errors = split_errors(messages)
        for one in errors:
            self._hold(one)
        if self._membership is not None and self._membership.partitions != self._owned:
            self._membership = None
        return Poll(changes=changes, batches=list(self._batches(records, late)))

    def _apply(self, change: Change) -> None:
        for partition in change.partitions:
            self._positions.pop(partition, None)
        self._unplaced.difference_update(change.partitions)
        self._flowing.difference_update(change.partitions)  # the callbacks paused them, or they are gone
        if change.kind is ChangeKind.ASSIGNED:
            self._owned.update(change.partitions)
            self._paused.update(change.partitions)
        else:
            self._owned.difference_update(change.partitions)
            self._paused.difference_update(change.partitions)

    def _hold(self, message: Message) -> None:
        """Keep an error for the next poll: the records that came with it are delivered first."""
        error = message.error()
        partition = TopicPartition(message.topic() or self._topic, message.partition() or 0)
        if error is None or error.code() in HARMLESS:
            return
        reset = error.code() == KafkaError._AUTO_OFFSET_RESET
        if reset and not (self._is_flowing(partition) or is_truncation(error)):
            return  # of the placeholder
        self._held_error = self._held_error or meaning_of(error, f"reading {partition}")

    def _set_flow(self) -> None:
        """Place seeks, and make the client pause and resume what it does not yet."""
        for partition in sorted(self._unplaced & self._owned):
            if self._place(partition):
                self._unplaced.discard(partition)
        wanted = {partition for partition in self._owned if self._is_flowing(partition)}
        if stop := sorted(self._flowing - wanted):
            self._client.pause([ClientPartition(*partition) for partition in stop])
        if go := sorted(wanted - self._flowing):
            self._client.resume([ClientPartition(*partition) for partition in go])
        self._flowing = wanted

    def _is_flowing(self, partition: TopicPartition) -> bool:
        return partition in self._positions and partition not in self._paused and partition not in self._unplaced

    def _place(self, partition: TopicPartition) -> bool:
        """Seek; where the client's fetcher does not run (yet), assign the partition anew with the offset."""
        offset, leader_epoch = self._positions[partition]
        target = ClientPartition(*partition, offset, leader_epoch=leader_epoch)
        try:
            self._client.seek(target)
        except KafkaException as error:
            log.debug("%s cannot be sought (%s): it is assigned anew", partition, cause_of(error).name())
            return self._assign_anew(target) and leader_epoch < 0  # which only a seek has the client compare
        return True

    def _assign_anew(self, target: ClientPartition) -> bool:
        try:
            self._client.incremental_unassign([target])
            self._client.incremental_assign([target])
            self._client.pause([target])
        except KafkaException as error:  # in the middle of a rebalance: again at the next poll
            log.debug("%s[%d] cannot be assigned anew: %s", target.topic, target.partition, cause_of(error).name())
            return False
        self._flowing.discard(TopicPartition(target.topic, target.partition))
        return True

    def _reached(self, partition: TopicPartition) -> Progress | None:
        """The position; None where not assigned or not sought."""
        reached = self._positions.get(partition)
        if reached is None or partition in self._unplaced:
            return reached
        return self._passed(partition, reached)

    def _passed(self, partition: TopicPartition, reached: Progress) -> Progress:
        """The client's own position, which passes markers and aborted records, where it has one beyond `reached`."""
        (found,) = self._client.position([ClientPartition(*partition)])
        if found.offset <= reached.offset:
            return reached
        return Progress(found.offset, -1 if found.leader_epoch is None else found.leader_epoch)

    def _batches(self, records: list[Message], late: Container[TopicPartition]) -> Iterator[Batch]:
        for batch in to_batches(records):
            if self._is_flowing(batch.partition) and batch.partition not in late:
                reached = self._passed(batch.partition, Progress(batch.next_offset, batch.leader_epoch))
                self._positions[batch.partition] = reached
                batch.next_offset, batch.leader_epoch = reached
                yield batch


def _close(consumer: Consumer, leaving: Deadline | None) -> None:
    """Close; a static member says good-bye only when it unsubscribes."""
    if leaving is not None:
        consumer.unsubscribe()
        while consumer.memberid() and not leaving.passed():
            consumer.consume(1, 0.05)
    consumer.close()
