"""The way of records from a poll into the outbox: which of them may go in now, and what follows when models fail."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

import structlog

from kstream_worker.errors import Fatal
from kstream_worker.records import Batch, TopicPartition
from kstream_worker.worker.columns import part_of
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.marks import Marks
from kstream_worker.worker.task import Task
from kstream_worker.worker.trials import Trials

log = structlog.get_logger(__name__)

_MAX_REPLAYS = 3


class Feed:
    """Feeds the models of the open partitions.

    Args:
        tasks: the open partitions; the loop's own table.
        committer: its outbox takes what comes of records.
        marks: partitions that are on their way to their first new record.
        trials: partitions whose records go one by one.
        restart: starts a partition again from its last commit.
        relieve: commits what waits, where that is much.
        drain: new records are left where they are.
    """

    def __init__(
        self,
        tasks: Mapping[TopicPartition, Task],
        committer: Committer,
        marks: Marks,
        trials: Trials,
        restart: Callable[[TopicPartition], None],
        relieve: Callable[[], None],
        *,
        drain: bool,
    ) -> None:
        self._tasks = tasks
        self._committer = committer
        self._marks = marks
        self._trials = trials
        self._restart = restart
        self._relieve = relieve
        self._drain = drain
        self._failures: dict[TopicPartition, int] = {}  # of models in replays

    def take(self, batches: Iterable[Batch]) -> None:
        """What a poll has found; before it the record whose trial is announced.

        Raises:
            Fatal: too many records were refused, or models fail at records that they took before.
        """
        self._try_next()
        for batch in batches:
            task = self._tasks.get(batch.partition)
            if task is None or batch.partition in self._marks:
                continue  # not ours any more, or it comes again
            part = self._admitted(task, batch)
            if part is not None:
                self._work(task, part)
            self._relieve()

    def forget(self, partition: TopicPartition) -> None:
        """The partition is not ours any more, or its models have got over what they failed at."""
        self._failures.pop(partition, None)

    def _try_next(self) -> None:
        trial = self._trials.next()
        if trial is None:
            return
        task, record = trial
        if self._work(task, record):
            self._trials.done(task)
        else:
            self._trials.failed(task.partition)

    def _admitted(self, task: Task, batch: Batch) -> Batch | None:
        """What of a batch may go into the models now."""
        if self._marks.replays(batch.partition):  # no record behind it goes in before the start is counted
            live_from = task.ledger.live_from
            part = part_of(batch, 0, bisect_left(batch.offsets, live_from))
            part.next_offset = min(part.next_offset, live_from)
            return part
        return None if self._drain else self._trials.take(task, batch)

    def _work(self, task: Task, batch: Batch) -> bool:
        """Process a batch of a partition; False when its models failed and it is started again."""
        ledger = task.ledger
        replaying = ledger.replaying
        try:
            outputs = task.process(batch) if len(batch) else []
        except Fatal:
            raise
        except Exception as error:
            self._rebuild(task, batch, error)
            return False
        if not replaying:
            self._committer.outbox.add(batch.partition, outputs)
            self._committer.outbox.advance(batch.partition, task.progress)
        elif ledger.replaying and batch.next_offset >= ledger.live_from:  # what is left of it are gaps
            ledger.advance(ledger.live_from, 0)
        return True

    def _rebuild(self, task: Task, batch: Batch, error: Exception) -> None:
        """A model failed: start this partition again from its last commit.

        Of records that were not processed before, the starts are counted in the state, which finds the one that fails;
        those of a replay were processed once, so they fail for another reason.
        """
        tp = task.partition
        log.error(
            "a model failed; the partition starts again from its last commit",
            partition=str(tp),
            first_offset=batch.offsets[0],
            last_offset=batch.offsets[-1],
            exc_info=error,
        )
        if task.ledger.replaying:
            self._failures[tp] = self._failures.get(tp, 0) + 1
        if self._failures.get(tp, 0) > _MAX_REPLAYS:
            raise Fatal(
                f"{tp}: the models failed {self._failures[tp]} times while records between offsets {batch.offsets[0]} "
                f"and {batch.offsets[-1]} were read again ({type(error).__name__}: {error}). Nothing beyond the last "
                "commit was published. Go back to the former release, or start the models afresh with a higher "
                "app.model_epoch and --discard-state; and please report this."
            ) from error
        self._restart(tp)
