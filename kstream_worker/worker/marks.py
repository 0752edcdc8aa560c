"""Open partitions on their way to their first new record: read again, mark, go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from kstream_worker.records import TopicPartition
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

PauseOrResume = Callable[[Iterable[TopicPartition]], None]


class Marks:
    """Brings models up to date, then marks by a commit that new records are begun with.

    The header of that commit counts the start, and is what the next process finds if this one ends at those records. It
    is committed after the replay, since who loses a partition in a replay has not met them.

    Args:
        committer: commits the marks.
        pause: stop reading partitions.
        resume: read them.
        seek: read a partition from an offset on, if what lies before it is still of this leader epoch.
    """

    def __init__(
        self,
        committer: Committer,
        pause: PauseOrResume,
        resume: PauseOrResume,
        seek: Callable[[TopicPartition, int, int], None],
    ) -> None:
        self._committer = committer
        self._pause = pause
        self._resume = resume
        self._seek = seek
        self._replays: dict[TopicPartition, Task] = {}
        self._waiting: set[TopicPartition] = set()

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting or self._replays)

    def replays(self, partition: TopicPartition) -> bool:
        """Whether only records that were read before may go into the models of this partition."""
        return partition in self._replays

    def on_its_way(self, partition: TopicPartition) -> bool:
        """Whether no new record of this partition is read yet."""
        return partition in self._waiting or partition in self._replays

    def begin(self, task: Task) -> None:
        """A partition is open: read again what its models lack."""
        tp = task.partition
        self._replays[tp] = task
        if not task.ledger.replaying:
            return
        self._seek(tp, task.ledger.reached, -1)  # the epochs of what is read again are not kept
        self._resume([tp])
        log.info("reading again", partition=str(tp), offset=task.ledger.reached, until=task.ledger.live_from)

    def end_replays(self) -> list[TopicPartition]:
        """Mark partitions whose models are up to date; those, from now on paused until the mark is committed."""
        ended = [task for task in self._replays.values() if not task.ledger.replaying]
        for task in ended:
            tp = task.partition
            if task.ledger.ordinal:
                log.info("replayed", partition=str(tp), records=task.ledger.ordinal)
            task.go_live()
            del self._replays[tp]
            self._waiting.add(tp)
            self._pause([tp])
            self._seek(tp, task.ledger.reached, task.leader_epoch)
            self._committer.outbox.advance(tp, task.progress)
            self._committer.hurry = True
        return [task.partition for task in ended]

    def take_done(self) -> list[TopicPartition]:
        """Partitions whose mark is committed since the last call."""
        done = [tp for tp in self._waiting if not self._committer.holds(tp)]
        self._waiting.difference_update(done)
        return done

    def drop(self, partition: TopicPartition) -> None:
        """The partition is not ours any more."""
        self._waiting.discard(partition)
        self._replays.pop(partition, None)
