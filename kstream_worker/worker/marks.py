"""Partitions that wait for a commit before more of them is read."""

from __future__ import annotations

from kstream_worker.records import TopicPartition
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.task import Task


class Marks:
    """Marks a place in the life of a partition by a commit: that it was opened, that its replay has ended.

    The header of such a commit is what the next process finds if this one ends at the records behind the place.

    Args:
        committer: commits the marks.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._waiting: set[TopicPartition] = set()

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, task: Task) -> None:
        """Commit the partition as it is, soon; it is for the caller not to read it meanwhile."""
        self._waiting.add(task.partition)
        self._committer.outbox.advance(task.partition, task.progress)
        self._committer.hurry = True

    def drop(self, partition: TopicPartition) -> None:
        """The partition is not ours any more."""
        self._waiting.discard(partition)

    def take_done(self) -> list[TopicPartition]:
        """Partitions whose mark is committed since the last call."""
        done = [tp for tp in self._waiting if not self._committer.holds(tp)]
        self._waiting.difference_update(done)
        return done
