"""What happens to the assignment, noted on the client's thread and read by the poll that caused it.

Callbacks run on the client's IO thread, where calls that block raise, and the poll that ran them may already return
records of a new partition. So they do three things only: note the change, pause, and place a seek (without it the
client would look for a committed offset by itself).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from kafka import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.kafka_python.internals import group_state
from kstream_worker.records import Change, ChangeKind, TopicPartition

PLACEHOLDER_OFFSET = 0


class HonestAssignor(CooperativeStickyAssignor):
    """Cooperative-sticky that claims only partitions it got under its present member id.

    A member that was put out and returns would otherwise claim what it owned before; the leader may then give a
    partition to it in the very generation in which the present owner is told to revoke it. `on_partitions_lost`
    alone does not help: when the member is put out *during* a rebalance the client joins again without calling it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.member_id: Callable[[], str] = str
        self._assigned_to = ""

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Note the assignment and for which member id it was made."""
        super().on_assignment(assignment, generation)
        self._assigned_to = self.member_id()

    def forget(self) -> None:
        """Claim nothing at the next join."""
        self.member_assignment = None

    def metadata(self, topics: Any) -> Any:
        """What is told to the leader: subscription and claims."""
        if self.member_id() != self._assigned_to:
            self.forget()
        return super().metadata(topics)


class AssignmentLog(ConsumerRebalanceListener):
    """Listener that notes changes, pauses new partitions and places their seek.

    Args:
        consumer: the client.
        assignor: told to claim nothing once membership is lost.
    """

    def __init__(self, consumer: Any, assignor: HonestAssignor) -> None:
        self._consumer = consumer
        self._assignor = assignor
        self._lock = threading.Lock()
        self._changes: list[Change] = []
        self._settled_as = ""

    def on_partitions_assigned(self, assigned: Iterable[ClientPartition]) -> None:
        """New partitions: paused, at a placeholder."""
        partitions = sorted(assigned)
        hold(self._consumer, partitions)
        self._note(ChangeKind.ASSIGNED, partitions)

    def on_partitions_revoked(self, revoked: Iterable[ClientPartition]) -> None:
        """Partitions taken in an orderly way, or found gone by a member that came back under another id."""
        returned = self._settled_as not in ("", group_state(self._consumer).member_id)
        self._note(ChangeKind.LOST if returned else ChangeKind.REVOKED, sorted(revoked))

    def on_partitions_lost(self, lost: Iterable[ClientPartition]) -> None:
        """The membership was lost."""
        self._assignor.forget()
        self._note(ChangeKind.LOST, sorted(lost))

    def settled(self, member_id: str) -> None:
        """Note the member id of a settled assignment; partitions kept across a change of it are noted as lost and new.

        A member that is put out while it waits in a rebalance joins again under another id without any callback, and
        goes on with partitions that others may have worked on meanwhile.
        """
        returned = self._settled_as not in ("", member_id)
        self._settled_as = member_id
        if not returned:
            return
        kept = set(self._consumer.assignment()) - self._fresh()
        hold(self._consumer, sorted(kept))
        self._note(ChangeKind.LOST, sorted(kept))
        self._note(ChangeKind.ASSIGNED, sorted(kept))

    def _fresh(self) -> set[ClientPartition]:
        """Partitions assigned since the last settled state."""
        with self._lock:
            assigned = [change.partitions for change in self._changes if change.kind is ChangeKind.ASSIGNED]
        return {ClientPartition(*partition) for partitions in assigned for partition in partitions}

    def pending(self) -> bool:
        """Whether changes wait to be taken."""
        with self._lock:
            return bool(self._changes)

    def take(self) -> list[Change]:
        """All changes since the last call, in their order."""
        with self._lock:
            changes, self._changes = self._changes, []
        return changes

    def _note(self, kind: ChangeKind, partitions: Iterable[ClientPartition]) -> None:
        change = Change(kind, tuple(TopicPartition(*partition) for partition in partitions))
        if change.partitions:
            with self._lock:
                self._changes.append(change)


def hold(consumer: Any, partitions: Iterable[ClientPartition]) -> None:
    """Pause partitions and put them at a placeholder; neither call waits."""
    for partition in partitions:
        consumer.pause(partition)
        consumer.seek(partition, PLACEHOLDER_OFFSET)
