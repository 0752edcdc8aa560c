"""The worker's loop. `step` is the table of contents of the whole service."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from kstream_worker.errors import KstreamError, Rejoin, Retry
from kstream_worker.measures import Telemetry
from kstream_worker.ports import Bus, Cluster, Source
from kstream_worker.records import (
    Batch,
    Change,
    ChangeKind,
    Poll,
    TopicPartition,
)
from kstream_worker.worker.assignment import StartPositions
from kstream_worker.worker.board import Board
from kstream_worker.worker.committer import Committer
from kstream_worker.worker.farewell import Farewell
from kstream_worker.worker.feed import Feed
from kstream_worker.worker.footing import FootingWatch
from kstream_worker.worker.journal import Journal
from kstream_worker.worker.lookout import Lookout
from kstream_worker.worker.marks import Marks
from kstream_worker.worker.opener import Opened, Opener
from kstream_worker.worker.patience import Patience
from kstream_worker.worker.settings import LoopSettings
from kstream_worker.worker.task import Task
from kstream_worker.worker.trials import Trials
from kstream_worker.worker.unowned import UnownedWatch
from kstream_worker.worker.watchdog import Watchdog

log = structlog.get_logger(__name__)

_POLL_S = 0.1  # while settled; an adapter polls on by itself while its group is not
_BUSY_POLL_S = 0.02
_START_S = 2.0  # for a writer that has to be opened again, at a time: the other partitions go on meanwhile
_REFUSED_S = 60.0  # how long a refused membership may stay before the group is joined anew


class Worker:
    """Runs the stages over the partitions that the group gives to this process. Used by one thread.

    Args:
        bus: the adapters.
        make_task: a fresh task for a partition.
        board: what the http endpoints show.
        telemetry: measurements.
        settings: see `LoopSettings`.
        clock: monotonic seconds.
        sleep: waits that many seconds.
        now_ms: the wall clock; no result depends on it.
    """

    def __init__(
        self,
        bus: Bus,
        make_task: Callable[[TopicPartition], Task],
        board: Board,
        telemetry: Telemetry,
        settings: LoopSettings,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._bus = bus
        self._board = board
        self._telemetry = telemetry
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._writer = bus.writer()
        self._cluster: Cluster = bus.cluster()
        self._source: Source = bus.source()
        self._tasks: dict[TopicPartition, Task] = {}
        self._starts = StartPositions(settings.topic, settings.start, now_ms)
        self._journal = Journal(settings.snapshots, self._tasks, telemetry, clock, now_ms)
        self._committer = Committer(self._writer, settings.commit, settings.kinds, self._journal, telemetry, clock)
        self._marks = Marks(self._committer, self._pause, self._resume, self._seek)
        self._trials = Trials(self._committer, self._pause, self._resume, settings.name)
        self._feed = Feed(
            self._tasks,
            self._committer,
            self._marks,
            self._trials,
            self._restart,
            self._commit_if_full,
            drain=settings.drain,
        )
        self._lookout = Lookout(
            self._cluster,
            self._committer,
            Watchdog(settings.progress_timeout_s),
            FootingWatch(self._cluster, settings.topic, settings.opening.topic),
            telemetry,
            board,
            settings.commit.give_up_s,
            settings.fleet_keys,
            clock,
        )
        self._unowned = UnownedWatch(self._cluster, settings.topic, clock)
        self._opener = Opener(
            bus, self._cluster, make_task, self._starts, settings.opening, self._lookout.restoring, telemetry, clock
        )
        self._farewell = Farewell(self._committer, self._journal, self._tasks, clock, sleep)
        self._paused = False
        self._stopping = False
        self._stop_asked_s: float | None = None
        self._patience = Patience(
            clock, settings.commit.give_up_s, 0.1, "Check that the brokers can be reached, then start again."
        )
        self._rejoins = Patience(
            clock, settings.commit.give_up_s, 0.1, "Look for other members of the group and at its coordinator."
        )

    # -- the life of the process --

    def run(self) -> None:
        """Work until asked to stop or until the input ends; then commit and leave.

        Raises:
            Fatal: no way on; what was committed stays committed.
        """
        why = "failed"
        try:
            self._start()
            while not self._stopping and self._guarded_step():
                if self._settings.drain and self._drained():
                    break
            self._drain()
            why = "asked to stop" if self._stopping else "drained" if self._settings.drain else "end of the input"
        finally:
            self._close(why)

    def request_stop(self) -> None:
        """Finish the batch in hand, commit and leave. May be called from a signal handler."""
        if not self._stopping:
            self._stop_asked_s = self._clock()
        self._stopping = True

    def _start(self) -> None:
        # The writer first: it fences a former process of the same identity before this one reads anything.
        self._retrying("start the writer", lambda: self._writer.start(self._settings.commit.timeout_s))
        self._retrying("join the group", self._source.start)
        log.info("started", topic=self._settings.topic)

    def _guarded_step(self) -> bool:
        try:
            alive = self.step()
        except Retry as error:
            self._back_off(str(error))
            return True
        except Rejoin as error:
            self._rejoin(str(error))
            return True
        self._patience.succeeded()
        return alive

    def step(self) -> bool:
        """One turn of the loop; False when the input has ended and all of it is committed."""
        self._board.heartbeat()
        poll = self._poll()
        self._apply(poll.changes)
        self._process(poll.batches)
        self._offer_state()
        self._commit_if_due(finished=poll.finished)
        self._press_back()
        self._observe()
        self._open_waiting()
        self._claim_unowned()
        return not (poll.finished and self._committer.empty and not self._opener and not self._marks)

    # -- the stages of a step --

    def _poll(self) -> Poll:
        started = self._clock()
        # Not 0 even while there is other work: a client needs time inside a poll.
        poll = self._source.poll(_BUSY_POLL_S if self._opener.at_work or self._committer.hurry else _POLL_S)
        self._telemetry.stage_seconds("poll", self._clock() - started)
        return poll

    def _apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            log.info("assignment", change=change.kind.value, partitions=[str(tp) for tp in change.partitions])
            self._drop(change.partitions)
            if change.kind is ChangeKind.ASSIGNED:
                self._opener.assign(change.partitions)
        if changes:
            self._show_assignment()

    def _open_waiting(self) -> None:
        """Bring assigned partitions nearer to their first record.

        The last stage of a step, since it may raise Retry: then all else of the step is done. A transaction that was
        left open when the membership went is ended first, now that there is another: state is read behind it.
        """
        membership = self._source.membership()
        if self._opener and membership is not None and not self._committer.refused(membership):
            self._writer.start(min(_START_S, self._settings.commit.timeout_s))
        for opened in self._opener.step(self._source, self._committer.doubtful):
            self._begin(opened)
        self._committer.birth = self._starts.birth

    def _begin(self, opened: Opened) -> None:
        """A partition is open."""
        task = opened.task
        tp = task.partition
        self._tasks[tp] = task
        self._lookout.opened(opened)
        task.leader_epoch = opened.leader_epoch
        self._trials.begin(task)
        if opened.letters:
            self._committer.outbox.add(tp, opened.letters)
            self._committer.outbox.advance(tp, task.progress)
        self._marks.begin(task)
        self._end_replays()

    def _process(self, batches: Iterable[Batch]) -> None:
        self._feed.take(batches)
        self._end_replays()

    def _commit_if_full(self) -> None:
        """Many alarms at once: in more than one transaction. One that fails takes its time, and the group waits."""
        if self._committer.full and not self._committer.failing:
            self._commit_if_due(finished=False)

    def _end_replays(self) -> None:
        ended = self._marks.end_replays()
        for tp in ended:
            self._feed.forget(tp)
        if ended:
            self._show_assignment()

    def _commit_if_due(self, *, finished: bool) -> None:
        if not self._committer.due() and not (finished and not self._committer.empty):
            return
        membership = self._source.membership()
        self._heal_refused()
        if self._committer.commit(membership):
            self._rejoins.succeeded()
            self._read_marked()

    def _read_marked(self) -> None:
        """Read partitions whose mark is committed; new records are not for a process that only drains."""
        marked = self._marks.take_done()
        if marked:
            if not self._settings.drain:
                self._resume(marked)
            log.info("reading", positions={str(tp): self._tasks[tp].ledger.reached for tp in marked})
            self._show_assignment()

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._source.pause(partitions)

    def _seek(self, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        self._source.seek(partition, offset, leader_epoch)

    def _resume(self, partitions: Iterable[TopicPartition]) -> None:
        if not self._paused:
            self._source.resume(partitions)

    def _press_back(self) -> None:
        """Pause the input while the outbox is full, that is, while commits fail, and while snapshots lag behind."""
        press = self._committer.full or self._journal.overdue()
        if press != self._paused:
            self._paused = press
            readable = [tp for tp in self._tasks if tp not in self._marks and not self._trials.holds(tp)]
            (self._source.pause if self._paused else self._source.resume)(readable)

    def _observe(self) -> None:
        self._lookout.look(self._tasks, self._unread(), self._source, idle=self._settings.drain)
        self._end_replays()  # where markers were all that was left
        if self._paused or self._committer.failing or self._settings.drain:
            return  # to start a partition again is no use
        for tp in self._lookout.standing_still():
            log.error("a partition stands still although there are records; it is started again", partition=str(tp))
            self._telemetry.healed(tp)
            self._restart(tp)

    def _unread(self) -> set[TopicPartition]:
        """Open partitions whose source stands elsewhere than what is processed."""
        unread = {tp for tp in self._tasks if tp in self._marks or self._trials.holds(tp)}
        if self._settings.drain:
            unread |= {tp for tp, task in self._tasks.items() if not task.ledger.replaying}
        return unread

    def _offer_state(self) -> None:
        """Keys become due for a snapshot without new records, too."""
        overdue = self._journal.overdue()
        self._committer.hurry |= overdue
        if self._committer.rested or (overdue and self._committer.empty):
            for tp in self._journal.pending():
                if tp not in self._marks and not self._trials.holds(tp):
                    self._committer.outbox.advance(tp, self._tasks[tp].progress)

    # -- what goes wrong --

    def _restart(self, tp: TopicPartition) -> None:
        """Drop a partition and open it anew."""
        self._source.pause([tp])
        self._drop([tp], healing=True)
        self._opener.assign([tp])
        self._show_assignment()

    def _heal_refused(self) -> None:
        """A membership that stays refused is no membership: join anew."""
        if self._committer.refused_s(self._source.membership()) > _REFUSED_S:
            raise Rejoin("commits are refused for this membership, and no newer one came")

    def _claim_unowned(self) -> None:
        """Where nobody has a partition, leave the group and return: then it shares all of them anew."""
        lost = [] if self._source.membership() is None else self._unowned.to_mend()
        if lost:
            self._unowned.mended()
            self._rejoin(f"nobody in the group has {', '.join(map(str, lost))}", leave=True)

    def _rejoin(self, why: str, *, leave: bool = False) -> None:
        pause_s = self._rejoins.failed(f"the group is joined again and again ({why})", self._clock())
        log.warning("joining the group again", why=why)
        self._drop([*self._tasks, *self._opener.partitions])
        self._source.close(leave=leave, timeout_s=5.0)
        self._source = self._bus.source()
        self._committer.rejoined()
        self._paused = False
        self._show_assignment()
        self._sleep(pause_s)
        self._retrying("join the group", self._source.start)

    def _drop(self, partitions: Iterable[TopicPartition], *, healing: bool = False) -> None:
        gone = list(partitions)
        self._committer.drop(gone)
        self._opener.drop(gone)
        self._trials.drop(gone)
        for tp in gone:
            self._marks.drop(tp)
            task = self._tasks.pop(tp, None)
            if task is not None:
                task.close()
            if not healing:
                self._feed.forget(tp)
                self._lookout.forget(tp)

    def _back_off(self, why: str) -> None:
        pause_s = self._patience.failed(why)
        log.warning("the bus does not answer, trying again", why=why, in_s=pause_s)
        self._sleep(pause_s)

    def _retrying(self, what: str, call: Callable[[], None]) -> None:
        while not self._stopping:
            try:
                call()
            except Retry as error:
                self._back_off(f"{what}: {error}")
            else:
                self._patience.succeeded()
                return

    # -- the end --

    def _drain(self) -> None:
        asked_s = self._clock() if self._stop_asked_s is None else self._stop_asked_s
        for task in self._tasks.values():
            self._trials.spare(task)
        self._farewell.commit_rest(self._source.membership, asked_s + self._settings.grace_s)

    def _drained(self) -> bool:
        """`--drain`: whether all partitions of the topic are ours and up to date."""
        if self._opener or any(map(self._marks.on_its_way, self._tasks)):
            return False
        try:
            return len(self._tasks) == self._cluster.partition_count(self._settings.topic)
        except Retry:
            return False

    def _close(self, why: str) -> None:
        self._closing("source", lambda: self._source.close(leave=self._settings.leave, timeout_s=5.0))
        self._closing("reader", self._opener.close)
        self._closing("writer", lambda: self._writer.close(timeout_s=5.0))
        self._closing("cluster", self._cluster.close)
        for task in self._tasks.values():
            task.close()
        log.info("stopped", why=why)

    def _closing(self, what: str, close: Callable[[], None]) -> None:
        try:
            close()
        except KstreamError as error:
            log.warning("closing failed", what=what, why=str(error))

    def _show_assignment(self) -> None:
        ready = sum(not self._marks.on_its_way(tp) for tp in self._tasks)
        self._board.set_assignment(len(self._tasks) + len(self._opener), ready)
