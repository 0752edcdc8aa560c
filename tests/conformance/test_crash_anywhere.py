"""Whatever happens between polls and commits, each input gives its output once, in order, and its state with it.

A small worker that keeps to the port runs on the fake, through any schedule of polls, commits, restarts, kills,
evictions, rebalances, lost answers, aborts, gaps, compactions and open transactions of others. Its state of a partition
is the number of records read, beside the position; it reads that back before it reads on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kstream_worker.bus.fake import CommitFault, FakeBroker, ForeignTransaction, SimulatedCrash
from kstream_worker.bus.fake.faults import Point
from kstream_worker.errors import Rejoin, Retry
from kstream_worker.ports import Bus, Membership
from kstream_worker.records import ChangeKind, End, Messages, Outcome, Progress, TopicPartition

INPUT, OUTPUT, STATE, GROUP = "input", "output", "state", "app"
PARTITIONS = 3
IDENTITIES = ("app-0", "app-1")
CRASH_POINTS: tuple[Point, ...] = ("poll", "committed", "commit", "commit.sent", "commit.done", "writer.start", "start")


@dataclass
class Work:
    """Uncommitted outputs of one partition, the position after them, and how many records there were up to it."""

    values: list[bytes | None] = field(default_factory=list)
    next_offset: int = 0
    count: int = 0


@dataclass
class Attempt:
    """A commit that may have to be called again with the same arguments."""

    work: dict[TopicPartition, Work]
    messages: list[Messages]
    progress: dict[TopicPartition, Progress]
    membership: Membership
    token: str


class SmallWorker:
    """Reads, copies, commits; nothing else."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._name = name
        self._tokens = 0
        self._outbox: dict[TopicPartition, Work] = {}
        self._waiting: set[TopicPartition] = set()
        self._counts: dict[TopicPartition, int] = {}
        self._attempt: Attempt | None = None
        self._writer, self._source, self._cluster = bus.writer(), bus.source(), bus.cluster()
        assert bus.reader is not None
        self._reader = bus.reader()
        self._writer.start(1.0)
        self._source.start()

    def poll(self) -> None:
        found = self._source.poll(0.01)
        for change in found.changes:
            if change.kind is ChangeKind.ASSIGNED:
                self._waiting.update(change.partitions)
            else:
                self._drop(change.partitions)
        for batch in found.batches:
            work = self._outbox.setdefault(batch.partition, Work())
            work.values += batch.values
            work.next_offset = batch.next_offset
            work.count = self._counts[batch.partition] = self._counts[batch.partition] + len(batch)
        self._begin_waiting()

    def commit(self) -> None:
        attempt = self._attempt = self._attempt or self._freeze()
        if attempt is None:
            return
        try:
            outcome = self._writer.commit(attempt.messages, attempt.progress, attempt.membership, attempt.token, 0.01)
        except Retry:
            return
        except Rejoin:
            outcome = Outcome.ABORTED
        self._attempt = None
        if outcome is Outcome.ABORTED:
            self._take_back(attempt)

    def stop(self, *, leave: bool) -> None:
        self._source.close(leave=leave, timeout_s=0.01)
        self._writer.close(0.01)

    def _begin_waiting(self) -> None:
        with suppress(Retry):
            for partition, position in self._source.committed(sorted(self._waiting), 0.01).items():
                found = self._restore(TopicPartition(STATE, partition.partition))
                if found is None:
                    continue
                offset, count = found
                assert offset == (0 if position is None else position.offset), f"state is not that of {partition}"
                self._counts[partition] = count
                self._source.seek(partition, offset)
                self._source.resume([partition])
                self._waiting.discard(partition)

    def _restore(self, state: TopicPartition) -> tuple[int, int] | None:
        """Position and count from the state; None while an open transaction hides a part of it."""
        (end,) = self._cluster.end([state], End.HIGH).values()
        self._reader.assign(self._cluster.earliest([state]))
        batches = [] if self._reader.position(state) == end else self._reader.poll(0.01)
        if self._reader.position(state) < end:
            return None
        rows = [value for batch in batches for key, value in zip(batch.keys, batch.values, strict=True) if key == b"h"]
        if not rows:
            return 0, 0
        offset, count = map(int, (rows[-1] or b"").split())
        return offset, count

    def _drop(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._waiting.difference_update(partitions)
        for partition in partitions:
            self._outbox.pop(partition, None)
            if self._attempt is not None:
                self._attempt.work.pop(partition, None)

    def _freeze(self) -> Attempt | None:
        membership = self._source.membership()
        if membership is None or not self._outbox:
            return None
        work, self._outbox = self._outbox, {}
        messages = []
        for partition, one in work.items():
            column = Messages(TopicPartition(OUTPUT, partition.partition))
            count = len(one.values)
            column.extend([None] * count, one.values, [0] * count, [()] * count)
            state = Messages(TopicPartition(STATE, partition.partition))
            state.extend([b"h", b"k"], [b"%d %d" % (one.next_offset, one.count), None], [0, 0], [(), ()])
            messages += [column, state]
        self._tokens += 1
        progress = {partition: Progress(one.next_offset) for partition, one in work.items()}
        return Attempt(work, messages, progress, membership, f"{self._name}-{self._tokens}")

    def _take_back(self, attempt: Attempt) -> None:
        for partition, work in attempt.work.items():
            later = self._outbox.get(partition)
            if later is not None:
                work.values += later.values
                work.next_offset = later.next_offset
                work.count = later.count
            self._outbox[partition] = work


class World:
    """A broker, its processes, and what a schedule does to them."""

    def __init__(self, poll_sizes: list[int]) -> None:
        self.broker = FakeBroker()
        self.broker.create_topic(INPUT, PARTITIONS)
        self.broker.create_topic(OUTPUT, PARTITIONS)
        self.broker.create_topic(STATE, PARTITIONS, {"cleanup.policy": "compact"})
        self._poll_sizes = poll_sizes
        self._workers: dict[str, SmallWorker] = {}
        self._foreign: list[ForeignTransaction] = []
        self._starts = 0
        self._records = 0

    def do(self, action: tuple[str, int]) -> None:
        """One step of a schedule: a name and a number that chooses among its forms."""
        name, choice = action
        identity = IDENTITIES[choice % len(IDENTITIES)]
        try:
            getattr(self, f"_{name}")(identity, choice // len(IDENTITIES))
        except SimulatedCrash:
            self._kill(identity, 0)

    def settle(self) -> None:
        """No more trouble: run until everything is committed."""
        for one in self._foreign:
            one.abort()
        self.broker.clock.sleep(100.0)
        for _ in range(200):
            for identity in IDENTITIES:
                self.do(("poll", IDENTITIES.index(identity)))
                self.do(("commit", IDENTITIES.index(identity)))
            if self._is_done():
                return
        raise AssertionError("the work did not come to an end")

    def state(self) -> dict[int, bytes | None]:
        """The last state of each partition."""
        return {one.partition: one.value for one in self.broker.records(STATE) if one.key == b"h"}

    def expected_state(self) -> dict[int, bytes | None]:
        """What a run without trouble would have left."""
        found: dict[int, bytes | None] = {}
        for partition, values in self.visible(INPUT).items():
            position = self.broker.committed(GROUP, INPUT, partition)
            if values and position is not None:
                found[partition] = b"%d %d" % (position.offset, len(values))
        return found

    def visible(self, topic: str) -> dict[int, list[bytes | None]]:
        records = self.broker.records(topic)
        return {
            partition: [one.value for one in records if one.partition == partition] for partition in range(PARTITIONS)
        }

    def _is_done(self) -> bool:
        for partition in range(PARTITIONS):
            records = [one for one in self.broker.records(INPUT) if one.partition == partition]
            committed = self.broker.committed(GROUP, INPUT, partition)
            if records and (committed is None or committed.offset <= records[-1].offset):
                return False
        return True

    def _worker(self, identity: str) -> SmallWorker:
        if identity not in self._workers:
            self._starts += 1
            bus = self.broker.bus(topic=INPUT, group=GROUP, identity=identity, poll_sizes=self._poll_sizes)
            self._workers[identity] = SmallWorker(bus, f"{identity}-{self._starts}")
        return self._workers[identity]

    def _poll(self, identity: str, _: int) -> None:
        self._worker(identity).poll()

    def _commit(self, identity: str, _: int) -> None:
        self._worker(identity).commit()

    def _stop(self, identity: str, choice: int) -> None:
        if worker := self._workers.pop(identity, None):
            worker.stop(leave=bool(choice % 2))

    def _kill(self, identity: str, _: int) -> None:
        self._workers.pop(identity, None)

    def _evict(self, identity: str, _: int) -> None:
        self.broker.evict(GROUP, identity)

    def _append(self, _: str, choice: int) -> None:
        for _unused in range(1 + choice // PARTITIONS):
            self._records += 1
            self.broker.append(INPUT, choice % PARTITIONS, None, b"%d" % self._records)

    def _gap(self, _: str, choice: int) -> None:
        self.broker.gap(INPUT, choice % PARTITIONS, 1 + choice)

    def _foreign_open(self, _: str, choice: int) -> None:
        transaction = self.broker.transaction()
        if choice % 2:
            transaction.append(STATE, choice % PARTITIONS, b"foreign", b"")
        else:
            transaction.append(INPUT, choice % PARTITIONS, None, b"foreign %d" % len(self._foreign))
        self._foreign.append(transaction)

    def _foreign_end(self, _: str, choice: int) -> None:
        if self._foreign:
            transaction = self._foreign.pop(choice % len(self._foreign))
            (transaction.commit if choice % 2 else transaction.abort)()

    def _fault(self, _: str, choice: int) -> None:
        self.broker.faults.on_commit(list(CommitFault)[choice % len(CommitFault)])

    def _rebalance(self, identity: str, choice: int) -> None:
        kind = ChangeKind.LOST if choice % 2 else ChangeKind.REVOKED
        poll = self.broker.faults.calls("poll", identity) + 1 + choice % 3
        self.broker.faults.rebalance(poll, kind, identity=identity, unsettled_polls=choice % 4)

    def _crash(self, identity: str, choice: int) -> None:
        point = CRASH_POINTS[choice % len(CRASH_POINTS)]
        self.broker.faults.crash_at(point, self.broker.faults.calls(point, identity) + 1, identity=identity)

    def _compact(self, _: str, choice: int) -> None:
        self.broker.compact(STATE)

    def _wait(self, _: str, choice: int) -> None:
        self.broker.clock.sleep(10.0 * choice)


NAMES = (
    *("append",) * 3,
    *("poll",) * 6,
    *("commit",) * 4,
    *("fault", "crash", "rebalance", "kill", "evict", "stop", "gap", "foreign_open", "foreign_end", "wait", "compact"),
)
schedules = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 27)), min_size=20, max_size=60)
cuts = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@pytest.mark.timeout(240)
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(schedules, cuts)
@example([("append", 6), ("poll", 0), ("poll", 0), ("crash", 6), ("commit", 0), ("poll", 1), ("poll", 1)], [5])
@example([("append", 6), ("poll", 0), ("poll", 0), ("fault", 2), ("commit", 0), ("rebalance", 2), ("poll", 0)], [5])
def test_each_input_gives_its_output_once_and_in_order(schedule: list[tuple[str, int]], cut: list[int]) -> None:
    world = World(cut)
    for action in schedule:
        world.do(action)
    world.settle()
    assert world.visible(OUTPUT) == world.visible(INPUT)
    assert world.state() == world.expected_state()
