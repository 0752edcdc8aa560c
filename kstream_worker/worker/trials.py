"""Records one by one, each behind a committed note of the attempt: for partitions whose starts led to no progress.

A record that ends the process leaves nothing behind but the note in the header. Found three times, the record is given
up: it becomes a dead letter, and stays one in every replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from kstream_worker.records import Batch, TopicPartition
from kstream_worker.worker.columns import part_of
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

_ATTEMPTS = 3  # starts without progress after which records go one by one
_OFFSETS = 5000  # so far; what was read ahead before lay hardly further


class Trials:
    """Takes the records of such partitions out of the stream, and gives them back one at a time.

    Args:
        committer: each record is preceded by a commit.
        pause: stop reading a partition.
        resume: read it again.
    """

    def __init__(
        self,
        committer: Committer,
        pause: Callable[[list[TopicPartition]], None],
        resume: Callable[[list[TopicPartition]], None],
    ) -> None:
        self._committer = committer
        self._pause = pause
        self._resume = resume
        self._until: dict[TopicPartition, int] = {}
        self._queues: dict[TopicPartition, deque[Batch]] = {}

    def begin(self, task: Task) -> None:
        """A partition was opened: see how often that was tried in vain."""
        header = task.ledger.header
        if header.attempts > _ATTEMPTS:
            self._until[task.partition] = header.offset + _OFFSETS
            log.warning(
                "starts without progress: records go one by one for a while",
                partition=str(task.partition),
                offset=header.offset,
                attempts=header.attempts - 1,
            )

    def drop(self, partition: TopicPartition) -> None:
        """The partition is not ours any more."""
        self._until.pop(partition, None)
        self._queues.pop(partition, None)

    def holds(self, partition: TopicPartition) -> bool:
        """Whether records of this partition wait here."""
        return partition in self._queues

    def take(self, task: Task, batch: Batch) -> Batch | None:
        """Keep the records of a batch that go one by one; the others."""
        tp = task.partition
        live = task.ledger.live_from
        first = next((row for row, offset in enumerate(batch.offsets) if offset >= live), len(batch))
        if tp not in self._until or first == len(batch):
            return batch
        self._pause([tp])
        self._queues[tp] = deque(part_of(batch, row, row + 1) for row in range(first, len(batch)))
        self._note(task)
        return part_of(batch, 0, first) if first else None

    def next(self, task: Task) -> Batch | None:
        """The record to be processed now: the note of its attempt is committed."""
        tp = task.partition
        if tp not in self._queues or self._committer.holds(tp):
            return None
        return self._queues[tp].popleft()

    def done(self, task: Task) -> None:
        """That record is processed, and its outputs and position are in the outbox."""
        tp = task.partition
        if self._queues[tp]:
            self._note(task)
            return
        del self._queues[tp]
        task.ledger.trial, task.ledger.deaths = -1, 0
        self._committer.hurry = True
        if task.ledger.reached > self._until[tp]:
            log.info("records go together again", partition=str(tp), offset=task.ledger.reached)
            del self._until[tp]
        self._resume([tp])

    def _note(self, task: Task) -> None:
        """Note the attempt at the next record; committed before it is made."""
        offset = self._queues[task.partition][0].offsets[0]
        if task.ledger.trial != offset:
            task.ledger.trial, task.ledger.deaths = offset, 0
        self._committer.outbox.advance(task.partition, task.progress)
        self._committer.hurry = True
