"""The faults of the fake do what they say, and nothing happens that was not asked for."""

from __future__ import annotations

import pytest

from kstream_worker.bus.fake import CommitFault, FakeBroker, SimulatedCrash
from kstream_worker.bus.fake.clients import FakeSource
from kstream_worker.errors import ConfigError, Fatal, Rejoin, Retry
from kstream_worker.ports import Bus, Membership, Source, Writer
from kstream_worker.records import ChangeKind, Committed, End, Messages, Outcome, Progress, TopicPartition

INPUT = TopicPartition("input", 0)
OUTPUT = TopicPartition("output", 0)


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.create_topic("input")
    broker.create_topic("output")
    for number in range(3):
        broker.append("input", 0, b"key", b"%d" % number)
    return broker


def bus_of(broker: FakeBroker, identity: str = "app-0") -> Bus:
    return broker.bus(topic="input", identity=identity)


def started(broker: FakeBroker, identity: str = "app-0") -> tuple[Source, Writer, Membership]:
    bus = bus_of(broker, identity)
    source, writer = bus.source(), bus.writer()
    writer.start(1.0)
    source.start()
    source.poll(0.1)
    source.seek(INPUT, 0)
    source.resume([INPUT])
    membership = source.membership()
    assert membership is not None
    return source, writer, membership


def commit(writer: Writer, membership: Membership, value: bytes = b"out", *, named: str = "token") -> Outcome:
    messages = Messages(OUTPUT, [None], [value], [0], [()])
    return writer.commit([messages], {INPUT: Progress(1)}, membership, named, 0.5)


def outputs(broker: FakeBroker, *, read_committed: bool = True) -> list[bytes | None]:
    return [one.value for one in broker.records("output", read_committed=read_committed)]


# Commits


def test_an_abort_leaves_only_what_nobody_reads(broker: FakeBroker) -> None:
    _, writer, membership = started(broker)
    broker.faults.on_commit(CommitFault.ABORT)
    assert commit(writer, membership) is Outcome.ABORTED
    assert outputs(broker) == []
    assert outputs(broker, read_committed=False) == [b"out"]
    assert broker.committed("app", "input", 0) is None
    assert commit(writer, membership, named="again") is Outcome.COMMITTED
    assert broker.committed("app", "input", 0) == Committed(1, "again", -1)
    (record,) = broker.records("output")
    assert record.offset == 2  # after the aborted record and its marker


@pytest.mark.parametrize(
    ("fault", "first", "answer"),
    [
        (CommitFault.UNKNOWN_COMMITTED, [b"out"], Outcome.COMMITTED),
        (CommitFault.UNKNOWN_ABORTED, [], Outcome.ABORTED),
    ],
)
def test_a_lost_answer_is_resolved_by_the_next_call(
    broker: FakeBroker, fault: CommitFault, first: list[bytes], answer: Outcome
) -> None:
    _, writer, membership = started(broker)
    broker.faults.on_commit(fault, CommitFault.UNAVAILABLE)
    for _ in range(2):
        with pytest.raises(Retry):
            commit(writer, membership)
        assert outputs(broker) == first
    assert commit(writer, membership) is answer
    assert outputs(broker) == first


def test_a_refused_membership_and_a_stale_one(broker: FakeBroker) -> None:
    source, writer, membership = started(broker)
    broker.faults.on_commit(CommitFault.REJOIN)
    with pytest.raises(Rejoin, match="refuses"):
        commit(writer, membership)
    broker.evict("app", "app-0")
    with pytest.raises(Rejoin, match="no member"):
        commit(writer, membership)
    assert [change.kind for change in source.poll(0.1).changes] == [ChangeKind.LOST]
    assert source.membership() is None
    assert [change.kind for change in source.poll(0.1).changes] == [ChangeKind.ASSIGNED]
    with pytest.raises(Rejoin, match="has passed"):
        commit(writer, membership)
    assert outputs(broker, read_committed=False) == []


def test_a_second_writer_of_the_same_identity_fences_the_first(broker: FakeBroker) -> None:
    _, writer, membership = started(broker)
    bus_of(broker).writer().start(1.0)
    with pytest.raises(Fatal, match="another process writes as 'app-0'"):
        commit(writer, membership)


def test_a_second_source_of_the_same_identity_takes_over(broker: FakeBroker) -> None:
    first, writer, membership = started(broker)
    second, _, _ = started(broker)
    with pytest.raises(Fatal, match="another process joined"):
        first.poll(0.1)
    assert sum(map(len, second.poll(0.1).batches)) == 3
    with pytest.raises(Fatal):
        commit(writer, membership)


def test_what_cannot_be_written_is_not_written_in_part(broker: FakeBroker) -> None:
    _, writer, membership = started(broker)
    good = Messages(OUTPUT, [None], [b"good"], [0], [()])
    broker.create_topic("small", config={"max.message.bytes": "10"})
    broker.create_topic("secret")
    broker.faults.deny("write", "secret")
    for topic, message in [("small", "max.message.bytes 10"), ("secret", "no right to write"), ("none", "not exist")]:
        bad = Messages(TopicPartition(topic, 0), [None], [b"x" * 11], [0], [()])
        with pytest.raises(ConfigError, match=message):
            writer.commit([good, bad], {INPUT: Progress(1)}, membership, "t", 1.0)
    assert outputs(broker) == []
    assert broker.committed("app", "input", 0) is None
    assert commit(writer, membership) is Outcome.COMMITTED


@pytest.mark.parametrize(("point", "expected"), [("commit", []), ("commit.sent", []), ("commit.done", [b"out"])])
def test_a_crash_is_resolved_by_the_next_process(broker: FakeBroker, point: str, expected: list[bytes]) -> None:
    _, writer, membership = started(broker)
    broker.faults.crash_at(point, 1)  # type: ignore[arg-type]
    with pytest.raises(SimulatedCrash):
        commit(writer, membership)
    started(broker)
    assert outputs(broker) == expected
    assert (broker.committed("app", "input", 0) is not None) is bool(expected)


def test_positions_of_a_dead_process_hide_until_its_transaction_times_out(broker: FakeBroker) -> None:
    _, writer, membership = started(broker)
    broker.faults.crash_at("commit.sent", 1)
    with pytest.raises(SimulatedCrash):
        commit(writer, membership)
    broker.evict("app", "app-0")
    other, _, _ = started(broker, "app-1")
    with pytest.raises(Retry, match=r"input\[0\] are held by an open transaction"):
        other.committed([INPUT], 1.0)
    assert other.committed([INPUT], 60.0) == {INPUT: None}


# Rebalances


@pytest.mark.parametrize("kind", [ChangeKind.REVOKED, ChangeKind.LOST])
def test_a_planned_rebalance_takes_and_gives_back(broker: FakeBroker, kind: ChangeKind) -> None:
    source, writer, membership = started(broker)
    broker.faults.rebalance(poll=3, kind=kind, unsettled_polls=2)
    assert sum(map(len, source.poll(0.1).batches)) == 3
    taken = source.poll(0.1)
    assert [(change.kind, change.partitions) for change in taken.changes] == [(kind, (INPUT,))]
    for _ in range(2):
        assert source.membership() is None
        assert source.position(INPUT) is None
        found = source.poll(0.1)
        assert (found.changes, found.batches) == ([], [])
    assert [change.kind for change in source.poll(0.1).changes] == [ChangeKind.ASSIGNED]
    after = source.membership()
    assert after is not None
    assert after.generation > membership.generation
    with pytest.raises(Rejoin):
        commit(writer, membership)
    assert commit(writer, after) is Outcome.COMMITTED


def test_partitions_move_only_after_they_were_let_go(broker: FakeBroker) -> None:
    broker.create_topic("input", 4)
    first, second = bus_of(broker).source(), bus_of(broker, "app-1").source()
    first.start()
    assert len(first.poll(0.1).changes[0].partitions) == 4
    second.start()
    assert second.poll(0.1).changes == []
    (revoked,) = first.poll(0.1).changes
    assert (revoked.kind, len(revoked.partitions)) == (ChangeKind.REVOKED, 2)
    (assigned,) = second.poll(0.1).changes
    assert (assigned.kind, assigned.partitions) == (ChangeKind.ASSIGNED, revoked.partitions)
    second.close(leave=False, timeout_s=1.0)
    assert first.poll(0.1).changes == []
    broker.evict("app", "app-1")
    (back,) = first.poll(0.1).changes
    assert back.partitions == revoked.partitions


def test_a_planned_error_comes_once(broker: FakeBroker) -> None:
    source, _, _ = started(broker)
    broker.faults.raise_at("poll", 2, Rejoin("put out"), identity="app-0")
    with pytest.raises(Rejoin, match="put out"):
        source.poll(0.1)
    assert sum(map(len, source.poll(0.1).batches)) == 3
    assert broker.faults.calls("poll", "app-0") == 3


def test_a_rebalance_takes_away(broker: FakeBroker) -> None:
    with pytest.raises(ValueError, match="REVOKED or LOST"):
        broker.faults.rebalance(1, ChangeKind.ASSIGNED)


# Logs


def test_open_transactions_hide_what_follows(broker: FakeBroker) -> None:
    source, _, _ = started(broker)
    aborted, committed = broker.transaction(), broker.transaction()
    aborted.append("input", 0, None, b"never")
    committed.append("input", 0, None, b"late")
    broker.append("input", 0, None, b"behind")
    cluster = bus_of(broker).cluster()
    assert cluster.end([INPUT], End.STABLE) == {INPUT: 3}
    assert cluster.end([INPUT], End.HIGH) == {INPUT: 6}
    assert sum(map(len, source.poll(0.1).batches)) == 3
    committed.commit()
    assert source.poll(0.1).batches == []
    aborted.abort()
    (batch,) = source.poll(0.1).batches
    assert (batch.offsets, batch.values) == ([4, 5], [b"late", b"behind"])
    assert batch.next_offset == source.position(INPUT) == 8  # after both markers


def test_gaps_and_deleted_records(broker: FakeBroker) -> None:
    broker.gap("input", 0, 5)
    broker.append("input", 0, b"key", None)
    source, _, _ = started(broker)
    (batch,) = source.poll(0.1).batches
    assert batch.offsets == [0, 1, 2, 8]
    source.seek(INPUT, 4)
    (batch,) = source.poll(0.1).batches
    assert (batch.offsets, batch.values) == ([8], [None])
    broker.truncate("input", 0, 2)
    assert bus_of(broker).cluster().earliest([INPUT]) == {INPUT: 2}
    for offset in (1, 10):
        source.seek(INPUT, offset)
        with pytest.raises(Fatal, match=rf"offset {offset} is outside the log \(2 to 9\)"):
            source.poll(0.1)


def test_reading_without_the_right_finds_nothing(broker: FakeBroker) -> None:
    broker.faults.deny("read", "input")
    source, _, _ = started(broker)
    assert source.poll(0.1).batches == []
    (problem,) = bus_of(broker).cluster().check_rights(inputs=["input"], outputs=["output"])
    assert problem == "no right to read topic 'input': grant it"


# Time and order


def test_only_waiting_moves_the_clock(broker: FakeBroker) -> None:
    source, _, _ = started(broker)
    before = broker.clock()
    assert source.poll(5.0).batches
    assert broker.clock() == before + broker.poll_cost_s
    assert not source.poll(5.0).batches
    assert broker.clock() == before + broker.poll_cost_s + 5.0
    assert broker.append("input", 0, None, b"") == 3
    assert broker.records("input")[-1].timestamp == broker.clock.time_ms()


def test_poll_sizes_are_used_in_turn(broker: FakeBroker) -> None:
    source = broker.bus(topic="input", poll_sizes=(1, 2)).source()
    assert isinstance(source, FakeSource)
    source.start()
    source.poll(0.1)  # takes the first size, too
    source.seek(INPUT, 0)
    source.resume([INPUT])
    assert [len(batch) for _ in range(2) for batch in source.poll(0.1).batches] == [2, 1]


def test_what_is_not_started_says_so(broker: FakeBroker) -> None:
    _, _, membership = started(broker, "app-1")
    bus = bus_of(broker)
    with pytest.raises(Fatal, match="not started"):
        bus.source().poll(0.1)
    with pytest.raises(Fatal, match="not started"):
        commit(bus.writer(), membership)
    with pytest.raises(ConfigError, match="'none' does not exist"):
        broker.bus(topic="none").source().start()
    broker.create_topic("input", 2)
    with pytest.raises(ValueError, match="1 is not possible"):
        broker.create_topic("input", 1)
