"""What simulations ask of the fake: compaction, topics that vanish, offsets that expire, sessions, copies."""

from __future__ import annotations

import math

import pytest

from kstream_worker.bus.fake import CommitFault, FakeBroker
from kstream_worker.errors import ConfigError, Fatal, Rejoin, Retry
from kstream_worker.ports import Bus, Membership, Source, Writer
from kstream_worker.records import ChangeKind, Committed, End, Messages, Outcome, Progress, TopicPartition

INPUT = TopicPartition("input", 0)
STATE = TopicPartition("state", 0)
IDENTITY = "app-0"


def broker_of(session_timeout_s: float = math.inf) -> FakeBroker:
    broker = FakeBroker(session_timeout_s=session_timeout_s)
    broker.create_topic("input")
    broker.create_topic("state", config={"cleanup.policy": "compact"})
    broker.append("input", 0, b"key", b"0")
    return broker


@pytest.fixture
def broker() -> FakeBroker:
    return broker_of()


def bus_of(broker: FakeBroker, identity: str = IDENTITY) -> Bus:
    return broker.bus(topic="input", identity=identity)


def started(broker: FakeBroker, identity: str = IDENTITY) -> tuple[Source, Writer, Membership]:
    bus = bus_of(broker, identity)
    source, writer = bus.source(), bus.writer()
    writer.start(1.0)
    source.start()
    source.poll(0.1)
    membership = source.membership()
    assert membership is not None
    return source, writer, membership


def commit(writer: Writer, membership: Membership, key: bytes, value: bytes | None, named: str = "token") -> Outcome:
    messages = Messages(STATE, [key], [value], [0], [()])
    return writer.commit([messages], {INPUT: Progress(1)}, membership, named, 0.5)


def state(broker: FakeBroker, *, read_committed: bool = True) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for one in broker.records("state", read_committed=read_committed)]


# Doubts


@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        (CommitFault.UNAVAILABLE, Outcome.ABORTED),
        (CommitFault.UNKNOWN_ABORTED, Outcome.ABORTED),
        (CommitFault.UNKNOWN_COMMITTED, Outcome.COMMITTED),
    ],
)
def test_the_call_that_resolves_a_doubt_writes_nothing(broker: FakeBroker, fault: CommitFault, answer: Outcome) -> None:
    _, writer, membership = started(broker)
    broker.faults.on_commit(fault)
    with pytest.raises(Retry):
        commit(writer, membership, b"k", b"1", "doubtful")
    before = state(broker)
    assert commit(writer, membership, b"k", b"1", "doubtful") is answer
    assert state(broker) == before
    assert len(before) == (answer is Outcome.COMMITTED)
    assert commit(writer, membership, b"k", b"2", "next") is Outcome.COMMITTED


@pytest.mark.parametrize(("point", "answer"), [("commit.sent", Outcome.ABORTED), ("commit.done", Outcome.COMMITTED)])
def test_an_error_on_the_way_is_a_doubt(broker: FakeBroker, point: str, answer: Outcome) -> None:
    _, writer, membership = started(broker)
    broker.faults.raise_at(point, 1, Retry("gone"))  # type: ignore[arg-type]
    with pytest.raises(Retry, match="gone"):
        commit(writer, membership, b"k", b"1")
    broker.clock.sleep(100.0)  # beyond the time-out of the transaction, which puts nobody out
    assert commit(writer, membership, b"k", b"1") is answer
    assert len(state(broker)) == (answer is Outcome.COMMITTED)


def test_an_absent_broker_keeps_a_former_doubt(broker: FakeBroker) -> None:
    _, writer, membership = started(broker)
    broker.faults.on_commit(CommitFault.UNKNOWN_COMMITTED, CommitFault.UNAVAILABLE, CommitFault.UNAVAILABLE)
    for _ in range(2):
        with pytest.raises(Retry):
            commit(writer, membership, b"k", b"1", "doubtful")
    with pytest.raises(Retry):
        commit(writer, membership, b"k", b"2", "other")
    assert commit(writer, membership, b"k", b"2", "other") is Outcome.ABORTED
    assert commit(writer, membership, b"k", b"1", "doubtful") is Outcome.COMMITTED
    assert len(state(broker)) == 1


# Topics


def test_compaction_keeps_the_last_value_of_each_key_and_the_offsets(broker: FakeBroker) -> None:
    for key, value in [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"1")]:
        broker.append("state", 0, key, value)
    aborted = broker.transaction()
    aborted.append("state", 0, b"a", b"never")
    aborted.abort()
    broker.compact("state")
    assert state(broker, read_committed=False) == [(2, b"a", b"2"), (4, b"c", b"1")]
    cluster = bus_of(broker).cluster()
    assert cluster.earliest([STATE]) == {STATE: 0}
    assert cluster.end([STATE], End.HIGH) == {STATE: 7}
    reader = broker.bus(topic="input").reader
    assert reader is not None
    reading = reader()
    reading.assign({STATE: 0})
    (batch,) = reading.poll(0.1)
    assert (batch.offsets, batch.next_offset, reading.position(STATE)) == ([2, 4], 7, 7)
    assert broker.append("state", 0, b"a", b"3") == 7


def test_compaction_leaves_what_an_open_transaction_holds_back(broker: FakeBroker) -> None:
    broker.append("state", 0, b"a", b"1")
    foreign = broker.transaction()
    foreign.append("state", 0, b"f", b"1")
    broker.append("state", 0, b"a", None)
    broker.compact("state")
    assert state(broker) == [(0, b"a", b"1")]
    foreign.commit()
    broker.compact("state")
    assert state(broker) == [(1, b"f", b"1")]


def test_a_compacted_topic_takes_no_record_without_a_key(broker: FakeBroker) -> None:
    _, writer, membership = started(broker)
    messages = Messages(STATE, [None], [b"v"], [0], [()])
    with pytest.raises(ConfigError, match="'state' is compacted"):
        writer.commit([messages], {INPUT: Progress(1)}, membership, "t", 1.0)
    assert state(broker, read_committed=False) == []


def test_a_topic_that_is_created_again_is_another_one(broker: FakeBroker) -> None:
    source, writer, membership = started(broker)
    assert commit(writer, membership, b"k", b"v") is Outcome.COMMITTED
    cluster = bus_of(broker).cluster()
    before = cluster.topic_id("input"), cluster.topic_id("state")
    assert before == (cluster.topic_id("input"), cluster.topic_id("state"))
    assert len(set(before)) == 2
    open_one = broker.transaction()
    open_one.append("input", 0, None, b"")
    broker.delete_topic("input")
    assert cluster.topic_id("input") == ""
    assert cluster.partition_count("input") is None
    assert [change.kind for change in source.poll(0.1).changes] == [ChangeKind.REVOKED]
    with pytest.raises(ConfigError, match="does not exist"):
        cluster.end([INPUT], End.HIGH)
    broker.create_topic("input")
    open_one.commit()
    assert cluster.topic_id("input") not in ("", *before)
    assert cluster.topic_id("state") == before[1]
    assert cluster.end([INPUT], End.HIGH) == {INPUT: 0}
    assert broker.committed("app", "input", 0) is None
    with pytest.raises(ValueError, match="'none' does not exist"):
        broker.delete_topic("none")


def test_positions_expire(broker: FakeBroker) -> None:
    source, writer, membership = started(broker)
    commit(writer, membership, b"k", b"v")
    assert source.committed([INPUT], 1.0) == {INPUT: Committed(1, "token")}
    broker.expire_positions("app")
    assert source.committed([INPUT], 1.0) == {INPUT: None}


# Sessions


def test_a_member_that_does_not_poll_is_put_out() -> None:
    broker = broker_of(session_timeout_s=10.0)
    first, writer, membership = started(broker)
    second, _, _ = started(broker, "app-1")
    assert second.poll(6.0).changes == []
    assert first.poll(0.1).changes == []  # heard of in time
    assert second.poll(9.0).changes == []
    (assigned,) = [change for _ in range(2) for change in second.poll(1.0).changes]
    assert (assigned.kind, assigned.partitions) == (ChangeKind.ASSIGNED, (INPUT,))
    with pytest.raises(Rejoin, match="no member"):
        commit(writer, membership, b"k", b"v")
    assert [change.kind for change in first.poll(0.1).changes] == [ChangeKind.LOST]
    assert first.membership() is None


def test_a_static_member_that_returns_in_time_moves_nothing() -> None:
    broker = broker_of(session_timeout_s=10.0)
    first, _, _ = started(broker)
    second, _, _ = started(broker, "app-1")
    first.close(leave=False, timeout_s=1.0)
    assert second.poll(9.0).changes == []
    again, _, _ = started(broker)
    assert again.position(INPUT) is None
    assert second.poll(9.0).changes == []


# Copies


def test_a_copy_goes_its_own_way(broker: FakeBroker) -> None:
    _, writer, membership = started(broker)
    commit(writer, membership, b"k", b"1")
    foreign = broker.transaction()
    foreign.append("state", 0, b"f", b"open")
    broker.append("state", 0, b"k", b"behind")
    broker.faults.deny("write", "input")
    other = broker.copy()
    foreign.commit()
    commit(writer, membership, b"k", b"2", "later")
    broker.append("input", 0, b"key", b"1")
    broker.create_topic("input", 2)
    broker.clock.sleep(1000.0)
    assert [value for _, _, value in state(broker)] == [b"1", b"open", b"behind", b"2"]
    assert [value for _, _, value in state(other)] == [b"1"]
    assert other.committed("app", "input", 0) == Committed(1, "token")
    assert bus_of(other).cluster().partition_count("input") == 1
    assert bus_of(other).cluster().topic_id("input") == bus_of(broker).cluster().topic_id("input")
    assert other.clock() < 1000.0
    assert other.faults.denied == {("write", "input")}
    assert bus_of(other).cluster().end([STATE], End.STABLE) == {STATE: 2}
    other.clock.sleep(1000.0)  # the open transaction of the copy times out by its own clock
    assert [value for _, _, value in state(other)] == [b"1", b"behind"]
    assert [value for _, _, value in state(broker)] == [b"1", b"open", b"behind", b"2"]


def test_a_process_of_the_original_does_not_reach_the_copy(broker: FakeBroker) -> None:
    first, writer, membership = started(broker)
    other = broker.copy()
    again, other_writer, other_membership = started(other)
    assert commit(other_writer, other_membership, b"k", b"copy") is Outcome.COMMITTED
    assert commit(writer, membership, b"k", b"original") is Outcome.COMMITTED
    assert [value for _, _, value in state(other)] == [b"copy"]
    assert [value for _, _, value in state(broker)] == [b"original"]
    assert first.poll(0.1).changes == again.poll(0.1).changes == []
    started(other)
    with pytest.raises(Fatal, match="another process joined"):
        again.poll(0.1)
