"""The way of a partition from its assignment to its first record: restore, decide, go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

import structlog

from kstream_worker.errors import Retry
from kstream_worker.measures import Telemetry
from kstream_worker.ports import Bus, Cluster, Source
from kstream_worker.records import Batch, Committed, End, Messages, Rejects, TopicPartition
from kstream_worker.state.format import Header
from kstream_worker.state.opening import Found, Opening, Policy, StateIdentity, decide
from kstream_worker.worker.assignment import TIMEOUT_S, StartPositions
from kstream_worker.worker.footing import Footing
from kstream_worker.worker.restore import Progressed, Restore, Restored
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

_SLICE_S = 0.2
_COMMITTED_S = 2.0  # an open transaction of a dead worker is waited for between polls, not in one call


@dataclass(frozen=True, slots=True)
class OpenPolicy:
    """How partitions are opened.

    Attributes:
        topic: of the state.
        identity: what the state must have been written by.
        on_mismatch: `state.on_offset_mismatch`.
        discard: models of an older `app.model_epoch` may be discarded.
    """

    topic: str
    identity: StateIdentity
    on_mismatch: Policy = "fail"
    discard: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A partition that can be read.

    Attributes:
        task: with its models as they were.
        committed: of the group; None for none.
        letters: dead letters of damaged state.
        footing: the topics that all of this is about.
    """

    task: Task
    committed: Committed | None
    letters: list[Messages]
    footing: Footing

    @property
    def leader_epoch(self) -> int:
        """Of what lies before the committed position; -1 where unknown, as where the state goes on elsewhere."""
        at = self.committed
        return at.leader_epoch if at is not None and at.offset == self.task.ledger.live_from else -1


class Opener:
    """Opens newly assigned partitions, a slice of work at a time.

    Args:
        bus: for readers of the state.
        cluster: for ends and identities.
        make_task: a fresh task for a partition.
        starts: where new partitions begin.
        policy: see `OpenPolicy`.
        tell: told (partition, done, total) of a restore, in offsets of the state topic.
        telemetry: measurements.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        bus: Bus,
        cluster: Cluster,
        make_task: Callable[[TopicPartition], Task],
        starts: StartPositions,
        policy: OpenPolicy,
        tell: Progressed,
        telemetry: Telemetry,
        clock: Callable[[], float],
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._make_task = make_task
        self._starts = starts
        self._policy = policy
        self._tell = tell
        self._telemetry = telemetry
        self._clock = clock
        self._waiting: set[TopicPartition] = set()  # nothing is known of them yet
        self._committed: dict[TopicPartition, Committed | None] = {}
        self._footings: dict[TopicPartition, Footing] = {}
        self._restores: list[Restore] = []
        self._restored: list[Restored] = []

    def __len__(self) -> int:
        """Partitions that are assigned and not yet opened."""
        return len(self._waiting) + len(self._restored) + sum(len(restore.parts) for restore in self._restores)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those partitions."""
        restoring = [tp for restore in self._restores for tp in restore.parts]
        return [*self._waiting, *restoring, *(part.task.partition for part in self._restored)]

    @property
    def at_work(self) -> bool:
        """Whether the next step has something to do other than wait."""
        return bool(self._restores or self._restored)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Open these partitions."""
        self._waiting.update(partitions)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are not ours any more."""
        for tp in partitions:
            self._waiting.discard(tp)
            for restore in self._restores:
                restore.drop(tp)
            self._restored = [part for part in self._restored if part.task.partition != tp]
        self._sweep()

    def close(self) -> None:
        """Stop."""
        self.drop(self.partitions)

    def step(self, source: Source, doubtful: Set[TopicPartition]) -> list[Opened]:
        """Work for a slice of time; the partitions that are open now.

        Args:
            source: of the input.
            doubtful: partitions of a commit that is still to be resolved: only then is their committed position the
                last word.

        Raises:
            Retry: the bus does not answer; what was reached is kept.
            Fatal: a partition cannot be opened; the message says what to do.
        """
        waiting = sorted(self._waiting - doubtful)
        # What stands in the way of some must not hold up the others.
        troubles = _tried(lambda: self._begin(source, waiting)) if waiting else []
        for restore in list(self._restores):
            troubles += _tried(partial(restore.step, _SLICE_S / len(self._restores)))
            self._restored += restore.finished()
        self._sweep()
        opened = self._open_restored(source) if self._restored else []
        if troubles and not opened:
            raise troubles[0]
        return opened

    def _begin(self, source: Source, waiting: list[TopicPartition]) -> None:
        """Begin the restore of those that have a place for their state; an input may get partitions before it has."""
        count = self._cluster.partition_count(self._policy.topic) or 0
        placed = [tp for tp in waiting if tp.partition < count]
        if placed:
            self._ask(source, placed)
        if len(placed) < len(waiting):
            most = waiting[-1]
            raise Retry(
                f"{most} has no place for its state: state topic '{self._policy.topic}' has {count} partitions. Add "
                f"partitions to it until it has as many as '{most.topic}'; this is tried again until then"
            )

    def _ask(self, source: Source, waiting: list[TopicPartition]) -> None:
        committed = source.committed(waiting, _COMMITTED_S)
        # After the committed positions: a dead worker's last commit lies below the end that is seen now.
        state = [TopicPartition(self._policy.topic, tp.partition) for tp in waiting]
        ends = self._cluster.end(state, End.HIGH)
        starts = self._cluster.earliest(state)
        ids = self._cluster.topic_id(waiting[0].topic), self._cluster.topic_id(self._policy.topic)
        self._restores.append(self._restore([self._make_task(tp) for tp in waiting], starts, ends))
        self._committed.update(committed)
        self._footings |= {tp: Footing(*ids, starts[at]) for tp, at in zip(waiting, state, strict=True)}
        self._starts.learn(at for at in committed.values() if at is not None)
        self._waiting.difference_update(waiting)
        log.info("restoring", state={str(tp): ends[tp] - starts[tp] for tp in state})

    def _restore(
        self, tasks: Sequence[Task], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Restore:
        reader = self._bus.reader()
        try:
            return Restore(reader, self._policy.topic, tasks, starts, ends, self._clock, self._tell, self._bus.stall_s)
        except BaseException:
            reader.close()
            raise

    def _open_restored(self, source: Source) -> list[Opened]:
        """Decide for all that are read, with one question of each kind to the bus.

        All of them before anything is done: a partition that is half opened when one is not answered would be nobody's.
        """
        parts = {part.task.partition: part for part in self._restored}
        moved = self._moved(source, parts)
        earliest = self._cluster.earliest(list(parts))
        ends = self._cluster.end(list(parts), End.HIGH)
        cluster_id = self._cluster.cluster_id()
        new = [tp for tp in parts if self._committed.get(tp) is None]
        first = self._starts.find(source, self._cluster, new) if new else {}
        opened = []
        for tp, part in parts.items():
            self._restored.remove(part)
            if tp in moved:
                self._waiting.add(tp)
                continue
            found = Found(
                partition=tp,
                committed=self._committed.get(tp),
                header=part.header,
                keys=len(part.generations) + len(part.damaged),
                generation=part.generation,
                first=first.get(tp, earliest[tp]),
                earliest=earliest[tp],
                end=ends[tp],
                cluster_id=cluster_id,
                topic_id=self._footings[tp].input_id,
            )
            opened.append(self._open(part, found))
        return opened

    def _moved(self, source: Source, parts: Mapping[TopicPartition, Restored]) -> set[TopicPartition]:
        """Partitions whose committed position moved while their state was read: to be read again."""
        doubtful = [tp for tp, part in parts.items() if not _agree(part.header, self._committed.get(tp))]
        if not doubtful:
            return set()
        now = source.committed(doubtful, TIMEOUT_S)
        return {tp for tp in doubtful if now[tp] != self._committed.get(tp)}

    def _open(self, part: Restored, found: Found) -> Opened:
        opening = decide(found, self._policy.identity, self._policy.on_mismatch, discard=self._policy.discard)
        doomed = part.belong() if opening.keep else []
        letters = self._quarantine(part) if opening.keep else []
        part.task.open(opening, [*doomed, *part.damaged])
        self._report(part, opening)
        return Opened(part.task, found.committed, letters, self._footings[part.task.partition])

    def _quarantine(self, part: Restored) -> list[Messages]:
        """Damaged snapshots become dead letters; their keys start afresh at the first record that is read again."""
        if not part.damaged:
            return []
        found = sorted(part.damaged.items(), key=lambda item: item[1].offset)
        for key, record in found:
            log.error("a snapshot is damaged; its key starts afresh", key_bytes=len(key), why=record.why)
        self._telemetry.quarantined(len(found))
        batch = Batch(
            TopicPartition(self._policy.topic, part.task.partition.partition),
            [record.offset for _, record in found],
            [record.time_ms for _, record in found],
            [key for key, _ in found],
            [record.value for _, record in found],
            [()] * len(found),
            part.position,
        )
        why = [record.why for _, record in found]
        return part.task.letters(batch, Rejects(list(range(len(found))), ["corrupt_state"] * len(found), why))

    def _report(self, part: Restored, opening: Opening) -> None:
        header, tp = opening.header, part.task.partition
        seconds = self._clock() - part.began_s
        if opening.note:
            log.warning("state and offsets do not fit", partition=str(tp), what=opening.note)
        log.info(
            "restored",
            partition=str(tp),
            keys=part.task.live_keys,
            offset=header.offset,
            replay_from=header.replay_from,
            attempts=header.attempts,
            seconds=round(seconds, 3),
        )
        self._telemetry.restored(tp, part.task.live_keys, seconds)

    def _sweep(self) -> None:
        for restore in [one for one in self._restores if not one.parts]:
            restore.close()
            self._restores.remove(restore)


def _tried(call: Callable[[], None]) -> list[Retry]:
    """What kept the bus from answering; empty where it did."""
    try:
        call()
    except Retry as error:
        return [error]
    return []


def _agree(header: Header | None, committed: Committed | None) -> bool:
    if header is None or committed is None:
        return header is None and committed is None
    return (header.offset, header.token) == (committed.offset, committed.metadata)
