"""The last commits of a process that stops in good order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from kstream_worker.ports import Membership
from kstream_worker.records import TopicPartition
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.journal import Journal
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

_PAUSE_S = 0.1
_SHORTEST_S = 0.1


class Farewell:
    """Commits what is processed, and as many snapshots as there is time for; the rest is done by whoever comes.

    Args:
        committer: has what waits.
        journal: has the snapshots that are due.
        tasks: the open partitions; the loop's own table.
        clock: monotonic seconds.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        committer: Committer,
        journal: Journal,
        tasks: Mapping[TopicPartition, Task],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._committer = committer
        self._journal = journal
        self._tasks = tasks
        self._clock = clock
        self._sleep = sleep

    def commit_rest(self, membership: Callable[[], Membership | None], deadline: float) -> None:
        """Commit until nothing is left, or until `deadline` on the clock.

        Args:
            membership: the present proof of membership.
            deadline: monotonic seconds.

        Raises:
            Fatal: there is no way on.
        """
        self._journal.draining = True
        while self._clock() < deadline:
            for tp in self._journal.pending():
                self._committer.outbox.advance(tp, self._tasks[tp].progress)
            if self._committer.empty:
                break
            proof = membership()
            hopeless = proof is None or self._committer.refused(proof)
            if hopeless and not self._committer.in_doubt:
                break
            if not self._committer.commit(proof, max(deadline - self._clock(), _SHORTEST_S)):
                self._sleep(_PAUSE_S)
        self._tell()

    def _tell(self) -> None:
        if not self._committer.empty:
            log.warning("stopped with uncommitted work, which will be done again by the next process")
        left = sum(len(task.ledger.dirty) for task in self._tasks.values())
        if left:
            records = sum(task.ledger.span() for task in self._tasks.values())
            log.info("stopped before all keys were snapshotted", keys=left, records_to_read_again=records)
