"""What `ports.py` promises, held against every bus."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bus_harness import OUTPUT, PARTITIONS, TIMEOUT_S, Harness, Out, Process, copies, reached

from kstream_worker.errors import ConfigError, Fatal, Rejoin, Retry
from kstream_worker.records import ChangeKind, Committed, End, Messages, Outcome, Poll, TopicPartition

Running = Callable[..., Process]

pytestmark = pytest.mark.timeout(120)  # a call that does not keep its timeout ends here


def assigned_only(process: Process) -> list[TopicPartition]:
    """Poll until all partitions are assigned, without seeking or resuming."""
    found: list[TopicPartition] = []
    while len(found) < PARTITIONS:
        poll = process.source.poll(process.harness.poll_timeout_s)
        assert poll.batches == []
        found += [one for change in poll.changes for one in change.partitions if change.kind is ChangeKind.ASSIGNED]
    return found


def quiet_polls(process: Process, count: int = 5) -> list[Poll]:
    return [process.source.poll(process.harness.poll_timeout_s) for _ in range(count)]


def share(first: Process, second: Process) -> None:
    """Poll both until each has one partition and a proof of it."""
    while not all(len(one.assigned) == 1 and one.source.membership() is not None for one in (first, second)):
        first.harness.poll_all([first, second])


# Source


def test_partitions_arrive_paused_and_without_a_position(harness: Harness) -> None:
    harness.append(0, 1, 2)
    process = Process.start(harness)
    assert process.source.membership() is None
    partitions = assigned_only(process)
    assert sorted(partitions) == [harness.partition(0), harness.partition(1)]
    assert [process.source.position(one) for one in partitions] == [None, None]
    assert all(not poll.batches and not poll.changes for poll in quiet_polls(process))
    process.stop()


def test_no_record_comes_before_resume(harness: Harness) -> None:
    harness.append(0, 1, 2)
    process = Process.start(harness)
    partitions = assigned_only(process)
    for one in partitions:
        process.source.seek(one, 0)
    assert all(not poll.batches and not poll.finished for poll in quiet_polls(process))
    process.source.resume(partitions)
    assert process.read_values(2) == [harness.value(1), harness.value(2)]
    process.stop()


def test_membership_holds_while_nothing_changes(running: Running) -> None:
    process = running()
    before = process.source.membership()
    quiet_polls(process)
    after = process.source.membership()
    assert before is not None
    assert after is not None
    assert before.generation == after.generation >= 0


def test_records_come_in_order_as_columns_of_equal_length(harness: Harness, running: Running) -> None:
    for partition in range(PARTITIONS):
        harness.append(partition, *range(100))
    batches = running().read(200)
    for partition in range(PARTITIONS):
        own = [batch for batch in batches if batch.partition == harness.partition(partition)]
        assert [value for batch in own for value in batch.values] == [harness.value(n) for n in range(100)]
        offsets = [offset for batch in own for offset in batch.offsets]
        assert offsets == sorted(set(offsets))
        for batch in own:
            columns = (batch.timestamps, batch.keys, batch.values, batch.headers)
            assert {len(column) for column in columns} == {len(batch)}
            assert len(batch) > 0
            assert batch.next_offset > batch.offsets[-1]


def test_seek_goes_to_the_first_record_at_or_after_the_offset(harness: Harness, running: Running) -> None:
    harness.append(0, *range(10))
    process = running()
    batches = process.read(10)
    offsets = [offset for batch in batches for offset in batch.offsets]
    for offset, first in [(offsets[4], 4), (offsets[4] + 1, 5), (offsets[0], 0), (offsets[9], 9)]:
        process.source.seek(harness.partition(0), offset)
        assert process.source.position(harness.partition(0)) == offset
        again = process.read(10 - first)
        assert [offset for batch in again for offset in batch.offsets] == offsets[first:]
        assert [value for batch in again for value in batch.values] == [harness.value(n) for n in range(first, 10)]


def test_position_is_after_what_was_read(harness: Harness, running: Running) -> None:
    harness.append(0, 1, 2, 3)
    process = running()
    last = process.read(3)[-1]
    assert process.source.position(harness.partition(0)) == last.next_offset
    assert process.source.position(TopicPartition(harness.topic, 17)) is None


def test_paused_partitions_are_silent_and_go_on_where_they_were(harness: Harness, running: Running) -> None:
    process = running()
    harness.append(0, 1, 2)
    assert len(process.read_values(2)) == 2
    process.source.pause([harness.partition(0)])
    harness.append(0, 3, 4)
    harness.append(1, 5, 6)
    assert process.read_values(2) == [harness.value(5), harness.value(6)]
    assert all(not poll.batches for poll in quiet_polls(process))
    process.source.resume([harness.partition(0)])
    assert process.read_values(2) == [harness.value(3), harness.value(4)]


def test_pause_and_resume_of_foreign_partitions_do_nothing(harness: Harness, running: Running) -> None:
    process = running()
    foreign = [TopicPartition(harness.topic, 17), TopicPartition("elsewhere", 0)]
    process.source.pause(foreign)
    process.source.resume(foreign)
    harness.append(1, 1)
    assert process.read_values(1) == [harness.value(1)]


def test_an_empty_input_gives_empty_polls(harness: Harness, running: Running) -> None:
    polls = quiet_polls(running())
    assert all(not poll.changes and not poll.batches for poll in polls)
    assert {poll.finished for poll in polls} == {not harness.is_broker}


def test_the_end_of_the_input_is_told_after_the_last_record(harness: Harness, running: Running) -> None:
    harness.append(0, 1)
    harness.append(1, *range(3))
    process = running()
    while sum(map(len, (poll := process.poll()).batches)) == 0:
        assert not poll.finished
    assert not poll.finished
    if len(poll.batches) < PARTITIONS:
        process.read(1)
    assert process.poll().finished is not harness.is_broker


# Writer


def test_nothing_is_committed_at_first(harness: Harness, running: Running) -> None:
    partitions = [harness.partition(0), harness.partition(1)]
    assert running().source.committed(partitions, TIMEOUT_S) == dict.fromkeys(partitions)


def test_a_commit_stores_positions_and_token_and_shows_the_output(harness: Harness, running: Running) -> None:
    harness.append(0, 1, 2)
    process = running()
    batches = process.read(2)
    assert harness.outputs() == []
    assert process.commit(batches, "a token") is Outcome.COMMITTED
    committed = process.source.committed([harness.partition(0), harness.partition(1)], TIMEOUT_S)
    last = batches[-1]
    assert committed[harness.partition(0)] == Committed(last.next_offset, "a token", last.leader_epoch)
    assert committed[harness.partition(1)] is None
    assert [one.value for one in harness.outputs()] == [harness.value(1), harness.value(2)]


def test_progress_without_messages(harness: Harness, running: Running) -> None:
    harness.append(0, 1, 2)
    process = running()
    batches = process.read(2)
    membership = process.source.membership()
    assert membership is not None
    assert process.writer.commit([], reached(batches), membership, "t", TIMEOUT_S) is Outcome.COMMITTED
    (committed,) = process.source.committed([harness.partition(0)], TIMEOUT_S).values()
    assert committed is not None
    assert committed.offset == batches[-1].next_offset
    assert harness.outputs() == []


def test_a_refused_commit_writes_nothing(harness: Harness, running: Running) -> None:
    harness.append(0, 1, 2)
    process = running()
    batches = process.read(2)
    membership = process.source.membership()
    assert membership is not None
    uneven = Messages(TopicPartition(harness.output, 0), [None], [b"{}", b"{}"], [0, 0], [(), ()])
    with pytest.raises(ValueError, match=r"shorter|differ|longer"):
        process.writer.commit([uneven], reached(batches), membership, "t", TIMEOUT_S)
    assert process.source.committed([harness.partition(0)], TIMEOUT_S) == {harness.partition(0): None}
    assert process.commit(batches) is Outcome.COMMITTED
    assert len(harness.outputs()) == 2


def test_arguments_that_could_not_be_resolved_are_refused(harness: Harness, running: Running) -> None:
    harness.append(0, 1)
    process = running()
    batches = process.read(1)
    membership = process.source.membership()
    assert membership is not None
    for token in ("", "\u00e4" * 51):
        with pytest.raises(ValueError, match="100 bytes"):
            process.writer.commit(copies(batches, OUTPUT), reached(batches), membership, token, TIMEOUT_S)
    with pytest.raises(ValueError, match="progress"):
        process.writer.commit(copies(batches, OUTPUT), {}, membership, "t", TIMEOUT_S)
    assert process.commit(batches, "\u00e4" * 50) is Outcome.COMMITTED
    assert len(harness.outputs()) == 1


def test_in_doubt_the_same_call_does_not_write_twice(harness: Harness, running: Running) -> None:
    harness.append(0, *range(50))
    process = running()
    batches = process.read(50)
    end = harness.disturb()
    with pytest.raises(Retry):
        process.commit(batches, "token", harness.doubtful_timeout_s)
    end()
    process.commit_at_last(batches, "token")
    assert [one.value for one in harness.outputs()] == [harness.value(n) for n in range(50)]
    harness.append(0, 50)
    process.commit_at_last(process.read(1), "next")
    assert [one.value for one in harness.outputs()] == [harness.value(n) for n in range(51)]


def test_after_a_doubt_another_outbox_is_written_as_well(harness: Harness, running: Running) -> None:
    harness.append(0, 0)
    harness.append(1, 1)
    process = running()
    batches = sorted(process.read(2), key=lambda batch: batch.partition)
    end = harness.disturb()
    with pytest.raises(Retry):
        process.commit(batches[:1], "token", harness.doubtful_timeout_s)
    end()
    process.commit_at_last(batches[1:], "another")
    written = [one.value for one in harness.outputs()]
    committed = process.source.committed([harness.partition(0), harness.partition(1)], TIMEOUT_S)
    assert (harness.value(0) in written) is (committed[harness.partition(0)] is not None)
    assert written.count(harness.value(1)) == 1


def test_messages_keep_their_order_within_a_partition(harness: Harness, running: Running) -> None:
    harness.append(0, 1)
    process = running()
    batches = process.read(1)
    membership = process.source.membership()
    assert membership is not None
    columns = []
    for start in (0, 10, 20):
        column = Messages(TopicPartition(harness.output, 0))
        values = [harness.value(n) for n in range(start, start + 10)]
        column.extend([None] * 10, values, [0] * 10, [()] * 10)
        columns.append(column)
    assert process.writer.commit(columns, reached(batches), membership, "t", TIMEOUT_S) is Outcome.COMMITTED
    assert [one.value for one in harness.outputs()] == [harness.value(n) for n in range(30)]


def test_outputs_keep_every_byte(harness: Harness, running: Running) -> None:
    harness.append(0, 1)
    process = running()
    batches = process.read(1)
    membership = process.source.membership()
    assert membership is not None
    records = [
        Out(b"key", b'{"key":"key"}'),
        Out(None, None),
        Out(b"", b""),
        Out("gr\u00fcn \u2603".encode(), '{"key":"gr\u00fcn \u2603"}'.encode()),
        Out(bytes(range(256)), bytes(range(256)), (("h", b"\xff\x00"), ("h", b"again"), ("empty", b""))),
        Out(b"key", b'{\n"key": "key"\n}'),
        Out(b"other", b'{"key":"key"}'),
        Out(b"\xff", b'{"key_b64":"/w=="}'),
        Out(None, b'{"record":{"key":"x"}}'),
        Out(b"k", b"\xef\xbb\xbf not json \r\n"),
    ]
    column = Messages(TopicPartition(harness.output, 0))
    column.extend(*zip(*[(one.key, one.value, 5, one.headers) for one in records], strict=True))
    assert process.writer.commit([column], reached(batches), membership, "t", TIMEOUT_S) is Outcome.COMMITTED
    assert harness.outputs() == records


def test_a_large_batch_in_one_commit(harness: Harness, running: Running) -> None:
    harness.append(0, *range(10_000))
    process = running()
    batches = process.read(10_000)
    process.commit_at_last(batches)
    assert [one.value for one in harness.outputs()] == [harness.value(n) for n in range(10_000)]


# Restarts


def test_a_restart_goes_on_after_the_last_commit(harness: Harness) -> None:
    written: list[bytes] = []
    for start in (0, 10, 20):
        harness.append(0, *range(start, start + 10))
        written += [harness.value(n) for n in range(start, start + 10)]
        process = Process.running(harness)
        assert process.read_values(0) == []
        batches = process.read(10)
        assert [value for batch in batches for value in batch.values] == written[-10:]
        process.commit_at_last(batches)
        process.stop()
    assert [one.value for one in harness.outputs()] == written


def test_what_was_not_committed_is_read_again(harness: Harness) -> None:
    harness.append(0, *range(10))
    first = Process.running(harness)
    batches = first.read(10)
    first.stop()
    second = Process.running(harness)
    again = second.read(10)
    assert [batch.offsets for batch in again] == [batch.offsets for batch in batches]
    second.commit_at_last(again)
    second.stop()
    assert len(harness.outputs()) == 10


def test_a_second_process_of_the_same_identity_never_doubles_an_output(harness: Harness) -> None:
    harness.append(0, *range(10))
    first = Process.running(harness)
    batches = first.read(10)
    if not harness.is_broker:
        with pytest.raises(ConfigError, match="in use by process"):
            Process.start(harness)
        first.commit_at_last(batches)
    else:
        second = Process.running(harness)
        with pytest.raises(Fatal):
            first.commit(batches)
        second.commit_at_last(second.read(10))
        second.stop()
    first.stop(leave=False)
    assert [one.value for one in harness.outputs()] == [harness.value(n) for n in range(10)]


def test_closing_twice_is_harmless(harness: Harness) -> None:
    process = Process.running(harness)
    cluster = process.bus.cluster()
    for _ in range(2):
        cluster.close()
        process.stop()
    if process.bus.reader is not None:
        reader = process.bus.reader()
        reader.close()
        reader.close()
    Process.running(harness).stop()


# Cluster


def test_the_cluster_knows_partitions_and_ends(harness: Harness, running: Running) -> None:
    process = running()
    cluster = process.bus.cluster()
    partitions = [harness.partition(0), harness.partition(1)]
    assert cluster.partition_count(harness.topic) == PARTITIONS
    assert cluster.earliest(partitions) == dict.fromkeys(partitions, 0)
    harness.append(0, 1, 2, 3)
    batches = process.read(3)
    for end in End:
        assert cluster.end(partitions[:1], end) == {partitions[0]: batches[-1].next_offset}
    assert cluster.check_rights(inputs=[harness.topic], outputs=[harness.output]) == []
    other = harness.bus().cluster()
    assert cluster.cluster_id() == other.cluster_id() != ""
    other.close()
    cluster.close()


# Brokers only: files have neither topics nor record times, and their records are lines


def test_records_pass_through_byte_by_byte(broker: Harness, running: Running) -> None:
    records = [
        Out(b"key", None),
        Out(None, b"value"),
        Out(bytes(range(256)), bytes(range(256)), (("h", b"\xff\x00"), ("h", b"again"), ("empty", b""))),
        Out("gr\u00fcn \u2603".encode(), "\U0001f600".encode(), (("n\u00e4me", b"x"),)),
    ]
    for time_ms, one in enumerate(records, start=1000):
        broker.append_raw(0, one.key, one.value, one.headers, time_ms)
    process = running()
    batches = process.read(len(records))
    rows = [row for one in batches for row in zip(one.keys, one.values, map(tuple, one.headers), strict=True)]
    assert rows == records
    assert [time_ms for one in batches for time_ms in one.timestamps] == list(range(1000, 1000 + len(records)))
    process.commit_at_last(batches)
    assert broker.outputs() == records


def test_a_reader_passes_markers(broker: Harness, running: Running) -> None:
    broker.append(0, 1, 2, 3)
    process = running()
    for batch in process.read(3), []:
        if batch:
            process.commit_at_last(batch)
    assert process.bus.reader is not None
    cluster, reader = process.bus.cluster(), process.bus.reader()
    target = TopicPartition(broker.output, 0)
    (end,) = cluster.end([target], End.HIGH).values()
    reader.assign({target: 0})
    batches = []
    while reader.position(target) < end:
        batches += reader.poll(broker.poll_timeout_s)
    assert [value for batch in batches for value in batch.values] == [broker.value(n) for n in (1, 2, 3)]
    reader.assign({target: batches[0].offsets[1]})
    while not (again := reader.poll(broker.poll_timeout_s)):
        pass
    assert again[0].values[0] == broker.value(2)
    reader.close()
    cluster.close()


def test_topics_are_created_once(broker: Harness) -> None:
    cluster = broker.bus().cluster()
    name = f"{broker.output}-new"
    assert cluster.partition_count(name) is None
    assert cluster.create_topics({name: 3, broker.output: 1}, {name: {"cleanup.policy": "compact"}}) == [name]
    assert cluster.create_topics({name: 3}, {}) == []
    assert cluster.partition_count(name) == 3
    assert cluster.topic_config(name)["cleanup.policy"] == "compact"
    cluster.close()


def test_missing_topics_are_told(broker: Harness) -> None:
    cluster = broker.bus().cluster()
    problems = cluster.check_rights(inputs=["no-such-input"], outputs=[broker.output, "no-such-output"])
    assert len(problems) == 2
    assert "no-such-input" in problems[0]
    assert "no-such-output" in problems[1]
    cluster.close()


def test_offsets_are_found_by_time(broker: Harness) -> None:
    for time_ms in (1000, 2000, 3000):
        broker.append_raw(0, b"k", b"v", (), time_ms)
    cluster = broker.bus().cluster()
    partition = broker.partition(0)
    found = [cluster.at_time([partition], time_ms)[partition] for time_ms in (0, 1000, 1001, 3000, 3001)]
    assert found == [0, 0, 1, 2, 3]
    cluster.close()


def test_two_members_share_the_partitions(broker: Harness, running: Running) -> None:
    first = running()
    second = Process.start(broker, "app-1")
    share(first, second)
    assert first.assigned | second.assigned == {broker.partition(0), broker.partition(1)}
    for partition in range(PARTITIONS):
        broker.append(partition, partition)
    for process in (first, second):
        (own,) = process.assigned
        batches = process.read(1)
        assert {batch.partition for batch in batches} == {own}
        process.commit_at_last(batches)
    second.stop(leave=True)
    while len(first.assigned) < PARTITIONS or first.source.membership() is None:
        first.poll()
    assert sorted(one.value or b"" for one in broker.outputs()) == [broker.value(0), broker.value(1)]


def test_work_of_a_partition_that_moved_is_refused(broker: Harness, running: Running) -> None:
    broker.append(0, 1)
    broker.append(1, 2)
    first = running()
    stale = first.source.membership()
    assert stale is not None
    batches = first.read(2)
    second = Process.start(broker, "app-1")
    share(first, second)
    (moved,) = second.assigned
    lost = [batch for batch in batches if batch.partition == moved]
    for membership in (stale, first.source.membership()):
        assert membership is not None
        with pytest.raises(Rejoin):
            first.writer.commit(copies(lost, broker.output), reached(lost), membership, "late", TIMEOUT_S)
    second.commit_at_last(second.read(1))
    second.stop()
    assert len(broker.outputs()) == 1
