"""Finds partitions that stand still although there are records to read, so that the loop can start them again.

In `Worker.step`:

    watchdog.progress(tp, position, lag, now_s)    for each partition being read, whenever its lag was asked for
    watchdog.restoring(tp, done, now_s)            for each restore, whenever it was polled
    watchdog.to_heal(now_s)                        drop and open these anew, call `telemetry.healed`
    watchdog.forget(tp)                            when a partition went to another process

A partition that is healed is *not* forgotten, neither here nor on the board (`Board.forget_partition`): the clock that
ends in a failed `/healthz` runs on until its position passes the place where it stood. While the input is paused
because commits fail, to heal is no use: do not ask then.
"""

from __future__ import annotations

from dataclasses import dataclass

from kstream_worker.records import TopicPartition
from kstream_worker.standstill import Standstill


@dataclass(slots=True)
class _Watched:
    standstill: Standstill
    limit_s: float  # heal when it stood still for so long


class Watchdog:
    """Says which partitions to heal: after half of the time-out, and after each whole one more.

    Liveness fails after the whole time-out, so there is one attempt before it; the later ones are for processes that
    nobody restarts. A restore that stands still is not healed, since it has a deadline of its own, whose error names
    the remedy. Pure: time is what the caller says.

    Args:
        timeout_s: `worker.progress_timeout`.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._watched: dict[TopicPartition, _Watched] = {}

    def progress(self, partition: TopicPartition, position: int, lag: int | None, now_s: float) -> None:
        """Where a partition stands.

        Args:
            partition: of the input.
            position: the offset to be read next.
            lag: offsets up to the last stable one; None when unknown.
            now_s: monotonic seconds.
        """
        watched = self._watch(partition, now_s)
        if watched.standstill.at_position(position, lag, now_s):
            watched.limit_s = self._timeout_s / 2

    def restoring(self, partition: TopicPartition, done: int, now_s: float) -> None:
        """How far a restore is, in offsets of the state topic: while it moves, the partition does not stand still."""
        self._watch(partition, now_s).standstill.at_restore(done, now_s)

    def to_heal(self, now_s: float) -> list[TopicPartition]:
        """The partitions to start again now; each is named once, and again only after a whole time-out more."""
        due = []
        for partition, watched in self._watched.items():
            idle_s = watched.standstill.idle_s(now_s)
            if idle_s >= watched.limit_s and not watched.standstill.restoring:
                watched.limit_s = idle_s + self._timeout_s
                due.append(partition)
        return sorted(due)

    def forget(self, partition: TopicPartition) -> None:
        """The partition is no longer ours."""
        self._watched.pop(partition, None)

    def _watch(self, partition: TopicPartition, now_s: float) -> _Watched:
        watched = self._watched.get(partition)
        if watched is None:
            watched = self._watched[partition] = _Watched(Standstill(now_s), self._timeout_s / 2)
        return watched
