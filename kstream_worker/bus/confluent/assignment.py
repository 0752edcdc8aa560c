"""What happens to the assignment, noted inside the poll that serves librdkafka's callbacks.

They do four things only: tell librdkafka, pause, note the change, and capture the membership. New partitions get a
placeholder as their offset, so that the client does not look for one by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kstream_worker.bus.confluent.membership import ConfluentMembership
from kstream_worker.records import Change, ChangeKind, TopicPartition

PLACEHOLDER_OFFSET = 0


class AssignmentLog:
    """Callbacks of one consumer, and what they noted. Used by the thread that polls.

    Attributes:
        captured: the membership of the last assignment; librdkafka calls back in every generation, also when
            nothing changes for this member.
        failure: why the client did not do what a callback asked for; from then on it has another assignment than is
            noted here. (What a callback raises, a poll raises instead of the records that it took.)
    """

    def __init__(self) -> None:
        self.captured: ConfluentMembership | None = None
        self.failure: KafkaException | None = None
        self._owned: set[TopicPartition] = set()
        self._changes: list[Change] = []
        self._settled_as = ""
        self._over = False

    def end(self) -> None:
        """The consumer closes: what it still calls back is its own affair.

        The client does by itself what a callback left undone; what one raises there it raises from `close`.
        """
        self._over = True

    def on_assign(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        """New partitions: paused, at a placeholder."""
        if self._over:
            return
        new = _ours(partitions)
        with self._watching():
            _hold(consumer, new)
            self._capture_kept(consumer)
            self._owned.update(new)
            self._note(ChangeKind.ASSIGNED, new)
            metadata, member_id = consumer.consumer_group_metadata(), consumer.memberid()
            self.captured = ConfluentMembership(bytes(metadata), member_id or "", frozenset(self._owned))

    def on_revoke(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        """Partitions taken in an orderly way."""
        self._take(consumer, partitions, ChangeKind.REVOKED)

    def on_lost(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        """The membership was lost."""
        self._take(consumer, partitions, ChangeKind.LOST)

    def pending(self) -> bool:
        """Whether changes wait to be taken."""
        return bool(self._changes)

    def take(self) -> list[Change]:
        """All changes since the last call, in their order."""
        changes, self._changes = self._changes, []
        return changes

    def _capture_kept(self, consumer: Consumer) -> None:
        """Partitions kept across a change of the member id are noted as lost and new.

        A member that was put out and came back under another id must not go on with partitions that others may have
        worked on meanwhile.
        """
        member_id = consumer.memberid() or ""
        returned = self._settled_as not in ("", member_id)
        self._settled_as = member_id
        if returned and self._owned:
            kept = sorted(self._owned)
            consumer.pause([ClientPartition(*partition) for partition in kept])
            self._note(ChangeKind.LOST, kept)
            self._note(ChangeKind.ASSIGNED, kept)

    def _take(self, consumer: Consumer, partitions: list[ClientPartition], kind: ChangeKind) -> None:
        if self._over:
            return
        gone = _ours(partitions)
        with self._watching():
            consumer.incremental_unassign(partitions)
        self.captured = None
        self._owned.difference_update(gone)
        self._note(kind, gone)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            self.failure, self.captured = error, None

    def _note(self, kind: ChangeKind, partitions: Iterable[TopicPartition]) -> None:
        change = Change(kind, tuple(partitions))
        if change.partitions:
            self._changes.append(change)


def _ours(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    return sorted(TopicPartition(each.topic, each.partition) for each in partitions)


def _hold(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    placed = [ClientPartition(*partition, PLACEHOLDER_OFFSET) for partition in partitions]
    consumer.incremental_assign(placed)
    if placed:
        consumer.pause(placed)
