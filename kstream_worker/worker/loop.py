"""The worker's loop. `step` is the table of contents of the whole service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from kstream_worker.errors import Fatal, KstreamError, Rejoin, Retry
from kstream_worker.ports import Bus, Cluster, Source, Telemetry
from kstream_worker.records import (
    Batch,
    Change,
    ChangeKind,
    End,
    Poll,
    Progress,
    TopicPartition,
)
from kstream_worker.worker.assignment import StartPositions
from kstream_worker.worker.board import Board
from kstream_worker.worker.committer import CommitPolicy, Committer
from kstream_worker.worker.patience import Patience
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

_POLL_S = 0.1  # while settled; an adapter polls on by itself while its group is not
_LAG_EVERY_S = 10.0
_REFUSED_S = 60.0  # how long a refused membership may stay before the group is joined anew
_MAX_REBUILDS = 3


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What the loop needs to know.

    Attributes:
        topic: the input topic.
        start: `earliest`, `latest` or a time in milliseconds, for a group without offsets.
        commit: times and sizes of commits.
        kinds: what each output topic holds, for counting: `estimate`, `alarm` or `dead_letter`.
        grace_s: time from a request to stop until the process gives up on its last commit.
        leave: tell the group at the end even if this is a static member.
    """

    topic: str
    start: str | int = "earliest"
    commit: CommitPolicy = field(default_factory=CommitPolicy)
    kinds: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 25.0
    leave: bool = False


@dataclass(slots=True)
class _Failures:
    """How often the models of a partition failed before they got beyond the last offset of a failed batch."""

    count: int = 0
    last_offset: int = -1


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
    ) -> None:
        self._bus = bus
        self._make_task = make_task
        self._board = board
        self._telemetry = telemetry
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._writer = bus.writer()
        self._cluster: Cluster = bus.cluster()
        self._source: Source = bus.source()
        self._committer = Committer(self._writer, settings.commit, settings.kinds, telemetry, clock)
        self._tasks: dict[TopicPartition, Task] = {}
        self._waiting: set[TopicPartition] = set()  # assigned, but without a position yet
        self._silence = Patience(
            clock, settings.commit.give_up_s, 0.1, "Check that the brokers can be reached, then start again."
        )
        self._rebuilds: dict[TopicPartition, _Failures] = {}
        self._paused = False
        self._stopping = False
        self._stop_asked_s: float | None = None
        self._patience = Patience(
            clock, settings.commit.give_up_s, 0.1, "Check that the brokers can be reached, then start again."
        )
        self._rejoins = Patience(
            clock, settings.commit.give_up_s, 0.1, "Look for other members of the group and at its coordinator."
        )
        self._refused_since_s: float | None = None
        self._lag_at_s = 0.0

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
                pass
            self._drain()
            why = "asked to stop" if self._stopping else "end of the input"
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
        self._commit_if_due(finished=poll.finished)
        self._press_back()
        self._observe()
        self._open_waiting()
        return not (poll.finished and self._committer.empty and not self._waiting)

    # -- the stages of a step --

    def _poll(self) -> Poll:
        started = self._clock()
        poll = self._source.poll(_POLL_S)
        self._telemetry.stage_seconds("poll", self._clock() - started)
        return poll

    def _apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            log.info("assignment", change=change.kind.value, partitions=[str(tp) for tp in change.partitions])
            self._drop(change.partitions)
            if change.kind is ChangeKind.ASSIGNED:
                self._waiting.update(change.partitions)
        if changes:
            self._show_assignment()

    def _open_waiting(self) -> None:
        """Give newly assigned partitions a position and a fresh task.

        The last stage of a step, since it may raise Retry: then they stay waiting, and all else of the step is done.
        Those of a commit in doubt wait for its end: only then is their committed position the last word.
        """
        waiting = sorted(self._waiting - self._committer.doubtful)
        if not waiting:
            return
        starts = StartPositions(self._source, self._cluster, self._settings.topic, self._settings.start)
        positions = starts.find(waiting)
        for tp, (offset, committed) in positions.items():
            task = self._tasks[tp] = self._make_task(tp)
            task.reached = offset
            self._source.seek(tp, offset)
            if committed and offset > 0:
                log.warning(
                    "models start afresh here: state is not kept across restarts yet",
                    partition=str(tp),
                    offset=offset,
                )
            else:
                # An ordinary commit of the first position: lag becomes visible, and a later start finds it.
                self._committer.outbox.advance(tp, Progress(offset))
        log.info("reading", positions={str(tp): offset for tp, (offset, _) in positions.items()})
        self._waiting -= positions.keys()
        if not self._paused:
            self._source.resume(positions)
        self._show_assignment()

    def _process(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            task = self._tasks.get(batch.partition)
            if task is None:
                continue
            try:
                outputs = task.process(batch)
            except Fatal:
                raise
            except Exception as error:
                self._rebuild(batch, error)
                continue
            self._committer.outbox.add(batch.partition, outputs)
            self._committer.outbox.advance(batch.partition, Progress(batch.next_offset, batch.leader_epoch))
            failures = self._rebuilds.get(batch.partition)
            if failures is not None and batch.next_offset > failures.last_offset:
                del self._rebuilds[batch.partition]  # it got beyond what failed

    def _commit_if_due(self, *, finished: bool) -> None:
        if not self._committer.due() and not (finished and not self._committer.empty):
            return
        membership = self._source.membership()
        self._heal_refused()
        if self._committer.commit(membership):
            self._rejoins.succeeded()

    def _press_back(self) -> None:
        """Pause the input while the outbox is full, that is, while commits fail."""
        if self._committer.full != self._paused:
            self._paused = self._committer.full
            (self._source.pause if self._paused else self._source.resume)(list(self._tasks))

    def _observe(self) -> None:
        for tp, task in self._tasks.items():
            self._telemetry.keys(tp, task.live_keys, task.keys_in_alarm)
            self._telemetry.bank_bytes(tp, task.bank_bytes)
            self._telemetry.outbox_bytes(tp, self._committer.size_of(tp))
        now = self._clock()
        if now >= self._lag_at_s:
            self._lag_at_s = now + _LAG_EVERY_S
            self._observe_lag()

    def _observe_lag(self) -> None:
        tasks = list(self._tasks)
        if not tasks:
            return
        try:
            ends = self._cluster.end(tasks, End.STABLE)
            self._silence.succeeded()
        except Retry as error:
            ends = {}  # unknown: absent, not 0
            # Without anything to commit, nobody else would notice that the bus is away.
            self._silence.failed(str(error))
            log.warning("the bus does not answer", why=str(error))
        for tp, task in self._tasks.items():
            position = self._source.position(tp)
            if position is not None and position > task.reached:
                # Only markers and aborted records: retention of them must not look like a loss at the next start.
                task.reached = position
                self._committer.outbox.advance(tp, Progress(position))
            lag = max(ends[tp] - position, 0) if tp in ends and position is not None else None
            self._telemetry.lag(tp, lag)
            if position is not None:
                self._board.progress(tp, position, lag)

    # -- what goes wrong --

    def _rebuild(self, batch: Batch, error: Exception) -> None:
        """A model failed: start this partition again from its last commit, three times at most."""
        tp = batch.partition
        failures = self._rebuilds.setdefault(tp, _Failures())
        failures.count += 1
        failures.last_offset = max(failures.last_offset, batch.offsets[-1])
        log.error(
            "a model failed; the partition starts again from its last commit",
            partition=str(tp),
            first_offset=batch.offsets[0],
            last_offset=batch.offsets[-1],
            exc_info=error,
        )
        if failures.count > _MAX_REBUILDS:
            raise Fatal(
                f"{tp}: the models failed {failures.count} times between offsets {batch.offsets[0]} and "
                f"{batch.offsets[-1]} ({type(error).__name__}: {error}). Nothing beyond the last commit was "
                "published. Please report this."
            ) from error
        self._source.pause([tp])
        self._drop([tp])
        self._waiting.add(tp)

    def _heal_refused(self) -> None:
        """A membership that stays refused is no membership: join anew."""
        if not self._committer.refused(self._source.membership()):
            self._refused_since_s = None
            return
        now = self._clock()
        self._refused_since_s = now if self._refused_since_s is None else self._refused_since_s
        if now - self._refused_since_s > _REFUSED_S:
            self._refused_since_s = None
            raise Rejoin("commits are refused for this membership, and no newer one came")

    def _rejoin(self, why: str) -> None:
        pause_s = self._rejoins.failed(f"the group is joined again and again ({why})", self._clock())
        log.warning("joining the group again", why=why)
        self._drop(list(self._tasks) + list(self._waiting))
        self._source.close(leave=False, timeout_s=5.0)
        self._source = self._bus.source()
        self._committer.rejoined()
        self._paused = False
        self._show_assignment()
        self._sleep(pause_s)
        self._retrying("join the group", self._source.start)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = list(partitions)
        self._committer.drop(gone)
        for tp in gone:
            self._waiting.discard(tp)
            task = self._tasks.pop(tp, None)
            if task is not None:
                task.close()
                self._telemetry.forget_partition(tp)
                self._board.forget_partition(tp)

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
        """Commit what is processed; records beyond it are read again by whoever comes next."""
        asked_s = self._clock() if self._stop_asked_s is None else self._stop_asked_s
        deadline = asked_s + self._settings.grace_s
        while not self._committer.empty and self._clock() < deadline:
            membership = self._source.membership()
            hopeless = membership is None or self._committer.refused(membership)
            if hopeless and not self._committer.in_doubt:
                break
            self._committer.commit(membership, max(deadline - self._clock(), 0.1))
            if not self._committer.empty:
                self._sleep(0.1)
        if not self._committer.empty:
            log.warning("stopped with uncommitted work, which will be done again by the next process")

    def _close(self, why: str) -> None:
        self._closing("source", lambda: self._source.close(leave=self._settings.leave, timeout_s=5.0))
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
        self._board.set_assignment(len(self._tasks) + len(self._waiting), len(self._tasks))
