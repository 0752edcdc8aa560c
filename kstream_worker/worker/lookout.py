"""What the loop looks after between batches: gauges, positions that pass markers, lag, partitions that stand still."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import structlog

from kstream_worker.errors import Retry
from kstream_worker.measures import Telemetry
from kstream_worker.ports import Cluster, Source
from kstream_worker.records import End, TopicPartition
from kstream_worker.worker.board import Board
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.footing import FootingWatch
from kstream_worker.worker.hidden import HiddenRecords
from kstream_worker.worker.opener import Opened
from kstream_worker.worker.patience import Patience
from kstream_worker.worker.task import Task
from kstream_worker.worker.watchdog import Watchdog

log = structlog.get_logger(__name__)

_LAG_EVERY_S = 10.0


class Lookout:
    """Observes the open partitions.

    Args:
        cluster: for the ends of the input.
        committer: for what waits, and to commit positions that passed markers.
        watchdog: says what stands still.
        footings: says what became of the topics.
        telemetry: measurements.
        board: what the http endpoints show.
        give_up_s: how long the bus may stay silent.
        fleet_keys: keys that share the false alarms of a fleet, over all processes; None where none are shared.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        committer: Committer,
        watchdog: Watchdog,
        footings: FootingWatch,
        telemetry: Telemetry,
        board: Board,
        give_up_s: float,
        fleet_keys: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._committer = committer
        self._watchdog = watchdog
        self._footings = footings
        self._hidden = HiddenRecords(cluster)
        self._telemetry = telemetry
        self._board = board
        self._fleet_keys = fleet_keys
        self._crowded = False
        self._clock = clock
        self._silence = Patience(clock, give_up_s, 0.1, "Check that the brokers can be reached, then start again.")
        self._lag_at_s = 0.0

    def look(
        self,
        tasks: Mapping[TopicPartition, Task],
        unread: Container[TopicPartition],
        source: Source,
        *,
        idle: bool,
    ) -> None:
        """Once a step.

        Args:
            tasks: the open partitions.
            unread: those of them that are not read yet.
            source: of the input.
            idle: records are left unread on purpose, which is no standstill.

        Raises:
            Fatal: the input is no longer the topic that it was.
        """
        for tp, task in tasks.items():
            self._telemetry.keys(tp, task.live_keys, task.keys_in_alarm)
            self._telemetry.silent_keys(tp, task.silent_keys)
            self._telemetry.bank_bytes(tp, task.bank_bytes)
            self._telemetry.outbox_bytes(tp, self._committer.size_of(tp))
            self._telemetry.replay_span(tp, task.ledger.span())
            self._telemetry.dirty_keys(tp, len(task.ledger.dirty))
            if task.ledger.replaying and tp not in unread:
                self._pass_markers(task, source.position(tp), source)
        if self._fleet_keys is not None:
            self._look_at_fleet(sum(task.live_keys for task in tasks.values()), self._fleet_keys)
        now = self._clock()
        if tasks and now >= self._lag_at_s:
            self._lag_at_s = now + _LAG_EVERY_S
            self._look_at_lag(tasks, unread, source, idle=idle)
        if not self._silence.failing:  # another question would only take its time, too
            self._write_anew([tasks[tp] for tp in self._footings.shaken(now) if tp in tasks], unread)

    def opened(self, opened: Opened) -> None:
        """A partition is open."""
        self._footings.opened(opened.task.partition, opened.footing)

    def restoring(self, partition: TopicPartition, done: int, total: int) -> None:
        """Progress of a restore, in offsets of the state topic."""
        self._telemetry.restoring(partition, done, total)
        self._board.restoring(partition, done, total)
        self._watchdog.restoring(partition, done, self._clock())

    def standing_still(self) -> list[TopicPartition]:
        """Partitions to be started again: records to read, and no progress."""
        return self._watchdog.to_heal(self._clock())

    def forget(self, partition: TopicPartition) -> None:
        """The partition is not ours any more."""
        self._watchdog.forget(partition)
        self._footings.forget(partition)
        self._telemetry.forget_partition(partition)
        self._board.forget_partition(partition)

    def _write_anew(self, tasks: Iterable[Task], unread: Container[TopicPartition]) -> None:
        """Models are whole in memory alone: write them, and a header, before this process may end."""
        for task in tasks:
            task.ledger.rewrite()
            if task.partition not in unread and not task.ledger.replaying:  # of those a commit is on its way
                self._committer.outbox.advance(task.partition, task.progress)

    def _look_at_fleet(self, live: int, allowed: int) -> None:
        """What one process can know: more keys than the whole fleet was said to have are too many."""
        self._telemetry.fleet_keys(live, allowed)
        if live > allowed and not self._crowded:
            log.warning(
                "more keys than detector.fleet_keys: together they may raise more false alarms than "
                "detector.fleet_false_alarms_per_day; raise fleet_keys to the number of keys",
                live_keys=live,
                fleet_keys=allowed,
            )
        self._crowded = live > allowed

    def _look_at_lag(
        self,
        tasks: Mapping[TopicPartition, Task],
        unread: Container[TopicPartition],
        source: Source,
        *,
        idle: bool,
    ) -> None:
        try:
            ends = self._cluster.end(list(tasks), End.STABLE)
            self._silence.succeeded()
        except Retry as error:
            ends = {}  # unknown: absent, not 0
            # Without anything to commit, nobody else would notice that the bus is away.
            self._silence.failed(str(error))
            log.warning("the bus does not answer", why=str(error))
        read: dict[TopicPartition, int] = {}  # up to the last stable offset
        for tp, task in tasks.items():
            # The source stands ahead of, or elsewhere than, what is processed of the unread.
            position = task.ledger.reached if tp in unread else source.position(tp)
            self._pass_markers(task, position, source)
            lag = max(ends[tp] - position, 0) if tp in ends and position is not None else None
            self._telemetry.lag(tp, lag)
            if lag == 0:
                read[tp] = ends[tp]
            if idle:
                lag = None
            if position is not None:
                self._board.progress(tp, position, lag)
                self._watchdog.progress(tp, position, lag, self._clock())
        if ends:
            self._hidden.look(read, self._clock())

    def _pass_markers(self, task: Task, position: int | None, source: Source) -> None:
        """Only markers and aborted records: retention of them must not look like a loss at the next start."""
        if position is None:
            return
        if task.ledger.replaying:  # what lies behind is not read before the start is counted
            position = min(position, task.ledger.live_from)
        if position > task.ledger.reached:
            task.ledger.advance(position, 0)
            if position > task.ledger.live_from:
                # A marker may be of another leader than the record before it.
                task.leader_epoch = source.leader_epoch(task.partition)
                self._committer.outbox.advance(task.partition, task.progress)
