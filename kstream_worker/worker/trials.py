"""Records one by one, each behind a committed note of the attempt: for partitions whose starts led to no progress.

A record that ends the process leaves nothing behind but the note in the header. Found three times, the record is given
up: it becomes a dead letter, and stays one in every replay. A note that a partition took along when it moved from one
living process to another says nothing. One note stands at a time, whatever the number of
partitions, and its record goes before all others: so a record of another partition cannot be what ended the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from kstream_worker.records import Batch, TopicPartition
from kstream_worker.worker.columns import part_of
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

_ATTEMPTS = 3  # starts without progress after which records go one by one
_OFFSETS = 5000  # so far; what was read ahead before lay hardly further


@dataclass(frozen=True, slots=True)
class _Queue:
    task: Task
    records: deque[Batch]


class Trials:
    """Takes the records of such partitions out of the stream, and gives them back one at a time.

    Args:
        committer: each record is preceded by a commit.
        pause: stop reading a partition.
        resume: read it again.
        name: of this process, which a restart of it has, too; empty for none.
    """

    def __init__(
        self,
        committer: Committer,
        pause: Callable[[list[TopicPartition]], None],
        resume: Callable[[list[TopicPartition]], None],
        name: str,
    ) -> None:
        self._committer = committer
        self._pause = pause
        self._resume = resume
        self._name = name
        self._until: dict[TopicPartition, int] = {}
        self._queues: dict[TopicPartition, _Queue] = {}  # in the order of their turns
        self._noted: TopicPartition | None = None
        self._mine: dict[TopicPartition, int] = {}  # offset of the last record that this process noted, and lives

    def begin(self, task: Task) -> None:
        """A partition was opened: see how often that was tried in vain."""
        header = task.ledger.header
        if header.attempts > _ATTEMPTS or task.ledger.trial >= 0:  # or somebody died trying
            self._until[task.partition] = header.offset + _OFFSETS
            log.warning(
                "starts without progress: records go one by one for a while",
                partition=str(task.partition),
                offset=header.offset,
                attempts=header.attempts - 1,
            )

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are not ours any more, none of them: a note for one that goes, too, would be nobody's."""
        for tp in partitions:
            self._until.pop(tp, None)
            self._queues.pop(tp, None)
            if self._noted == tp:
                self._noted = None
        self._note_next()

    def failed(self, partition: TopicPartition) -> None:
        """The models failed at that record: it is as if the process had ended."""
        self._mine.pop(partition, None)

    def holds(self, partition: TopicPartition) -> bool:
        """Whether records of this partition wait here."""
        return partition in self._queues

    def take(self, task: Task, batch: Batch) -> Batch | None:
        """A batch of new records, or None where they are kept to go one by one."""
        tp = task.partition
        if tp not in self._until or not len(batch):
            return batch
        self._pause([tp])
        self._queues[tp] = _Queue(task, deque(part_of(batch, row, row + 1) for row in range(len(batch))))
        self._note_next()
        return None

    def next(self) -> tuple[Task, Batch] | None:
        """The record to be processed now, and its task: the note of its attempt is committed."""
        if self._noted is None or self._committer.holds(self._noted):
            return None
        queue = self._queues[self._noted]
        return queue.task, queue.records.popleft()

    def done(self, task: Task) -> None:
        """That record is processed, and its outputs and position are in the outbox; another partition has its turn."""
        tp = task.partition
        queue = self._queues.pop(tp)
        self._noted = None
        task.ledger.try_alone(-1, "")
        self._committer.hurry = True
        if queue.records:
            self._queues[tp] = queue
        else:
            if task.ledger.reached > self._until[tp]:
                log.info("records go together again", partition=str(tp), offset=task.ledger.reached)
                del self._until[tp]
            self._resume([tp])
        self._note_next()

    def spare(self, task: Task) -> None:
        """A stop in good order before the noted record was tried: the next start is no sign of a death."""
        if task.partition == self._noted:
            task.ledger.spare(self._name)
            self._committer.outbox.advance(task.partition, task.progress)

    def _note_next(self) -> None:
        """Note the attempt at the next record; committed before it is made."""
        if self._noted is not None or not self._queues:
            return
        self._noted = next(iter(self._queues))
        queue = self._queues[self._noted]
        offset = queue.records[0].offsets[0]
        if self._mine.get(self._noted) == offset == queue.task.ledger.trial:
            queue.task.ledger.spare(self._name)  # the note that is found again is this process's own
        queue.task.ledger.try_alone(offset, self._name)
        self._mine[self._noted] = offset
        self._committer.outbox.advance(self._noted, queue.task.progress)
        self._committer.hurry = True
