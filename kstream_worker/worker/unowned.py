"""Partitions that the group has given to nobody: found, and whose turn it is to have the group share anew."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from kstream_worker.errors import KstreamError
from kstream_worker.ports import Cluster
from kstream_worker.records import TopicPartition

log = structlog.get_logger(__name__)

_EVERY_S = 10.0
_MOST_DOUBLINGS = 8
_PATIENCE_S = 20.0  # the group may be about to give it to somebody; and between the turns of two members


class UnownedWatch:
    """Asks now and then who has which partitions.

    A static member that ends between the two rounds in which a cooperative group moves a partition, and is back in
    time, is given what it had; nobody begins the second round, and the partition is nobody's until a member leaves.

    Args:
        cluster: knows who has what.
        topic: the input.
        clock: monotonic seconds.
    """

    def __init__(self, cluster: Cluster, topic: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._clock = clock
        self._next_s = clock() + _EVERY_S
        self._tries = 0
        self._since_s: dict[TopicPartition, float] = {}

    def to_mend(self) -> list[TopicPartition]:
        """Partitions that nobody has for long; not empty when it is for this process to leave the group and return."""
        now = self._clock()
        if now < self._next_s:
            return []
        try:
            found = self._cluster.unowned(self._topic)
        except KstreamError as error:  # a question beside the work must not end it
            log.warning("who has which partitions is not known", why=str(error))
            return []
        finally:
            self._next_s = self._clock() + _EVERY_S
        if not found.partitions:
            self._tries = 0
        self._since_s = {tp: self._since_s.get(tp, now) for tp in found.partitions}
        patience_s = _PATIENCE_S * (1 + found.before) * 2 ** min(self._tries, _MOST_DOUBLINGS)
        return [tp for tp, since_s in self._since_s.items() if now - since_s >= patience_s]

    def mended(self) -> None:
        """The group shares anew; should that not help, the next try waits twice as long."""
        self._since_s = {}
        self._tries += 1
