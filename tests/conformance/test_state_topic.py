"""State beside the outputs: committed with them, read back by a reader up to the high watermark, on every bus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import pytest
from bus_harness import PARTITIONS, TIMEOUT_S, Harness, Process, copies, reached

from kstream_worker.errors import Retry
from kstream_worker.ports import Reader
from kstream_worker.records import Batch, End, Headers, Messages, Outcome, TopicPartition

Running = Callable[..., Process]
Rows = Mapping[bytes, bytes | None]

pytestmark = pytest.mark.timeout(120)
HEADER = b"\x00"
HEADERS: Headers = (("input_offset", b"\x00\xff"),)


def state_of(harness: Harness, number: int = 0) -> TopicPartition:
    return TopicPartition(harness.state, number)


def commit(
    process: Process,
    batches: Sequence[Batch],
    rows: Rows,
    token: str,
    *,
    number: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Outcome:
    """Commit copies of the input, and rows for one partition of the state topic."""
    harness = process.harness
    membership = process.source.membership()
    assert membership is not None
    column = Messages(state_of(harness, number))
    column.extend(rows.keys(), rows.values(), [7] * len(rows), [HEADERS] * len(rows))
    return process.writer.commit(
        [*copies(batches, harness.output), column], reached(batches), membership, token, timeout_s
    )


def feed(process: Process, number: int, rows: Rows) -> None:
    """Commit rows together with one more input record."""
    process.harness.append(0, number)
    assert commit(process, process.read(1), rows, f"token-{number}") is Outcome.COMMITTED


def high(process: Process, partition: TopicPartition) -> int:
    with closing(process.bus.cluster()) as cluster:
        return cluster.end([partition], End.HIGH)[partition]


def poll_to(process: Process, reader: Reader, partition: TopicPartition, end: int) -> list[Batch]:
    batches = []
    while reader.position(partition) < end:
        batches += reader.poll(process.harness.poll_timeout_s)
    return batches


def restore(process: Process, number: int = 0) -> list[Batch]:
    """Read one state partition as a worker does at its start."""
    partition = state_of(process.harness, number)
    end = high(process, partition)
    assert process.bus.reader is not None
    with closing(process.bus.cluster()) as cluster, closing(process.bus.reader()) as reader:
        reader.assign(cluster.earliest([partition]))
        return poll_to(process, reader, partition, end)


def latest(batches: Sequence[Batch]) -> dict[bytes | None, bytes]:
    """The last value of each key that is not gone."""
    found = {key: value for batch in batches for key, value in zip(batch.keys, batch.values, strict=True)}
    return {key: value for key, value in found.items() if value is not None}


def test_state_is_read_back_up_to_the_high_watermark(harness: Harness, running: Running) -> None:
    process = running()
    feed(process, 0, {HEADER: b"first", b"\x01a": bytes(range(256)), b"\x01" + bytes(range(256)): b""})
    feed(process, 1, {HEADER: b"second", b"\x01a": b"newer"})
    batches = restore(process)
    assert latest(batches) == {HEADER: b"second", b"\x01a": b"newer", b"\x01" + bytes(range(256)): b""}
    for batch in batches:
        assert batch.partition == state_of(harness)
        assert batch.offsets == sorted(set(batch.offsets))
        assert batch.next_offset > batch.offsets[-1]
        assert batch.timestamps == [7] * len(batch)
        assert [tuple(one) for one in batch.headers] == [HEADERS] * len(batch)
    assert len(harness.outputs()) == 2


def test_state_partitions_are_apart_and_an_empty_one_is_read_at_once(harness: Harness, running: Running) -> None:
    process = running()
    assert restore(process) == restore(process, 1) == []
    feed(process, 0, {b"\x01a": b"zero"})
    assert latest(restore(process)) == {b"\x01a": b"zero"}
    assert restore(process, 1) == []
    harness.append(1, 1)
    assert commit(process, process.read(1), {b"\x01a": b"one"}, "one", number=1) is Outcome.COMMITTED
    assert latest(restore(process)) == {b"\x01a": b"zero"}
    assert latest(restore(process, 1)) == {b"\x01a": b"one"}


def test_a_key_that_is_gone_stays_gone_and_may_return(harness: Harness, running: Running) -> None:
    process = running()
    feed(process, 0, {b"\x01a": b"1", b"\x01b": b"1", b"\x01c": b"1"})
    before = high(process, state_of(harness))
    feed(process, 1, {b"\x01c": None, b"\x01never": None})
    feed(process, 2, {b"\x01b": None, HEADER: b"h"})
    assert latest(restore(process)) == {b"\x01a": b"1", HEADER: b"h"}
    feed(process, 3, {b"\x01c": b"back"})
    feed(process, 4, {b"\x01c": None})
    assert latest(restore(process)) == {b"\x01a": b"1", HEADER: b"h"}
    assert high(process, state_of(harness)) > before


def test_a_reader_goes_on_where_it_was(harness: Harness, running: Running) -> None:
    process = running()
    partition = state_of(harness)
    feed(process, 0, {b"\x01a": b"1", b"\x01b": b"1"})
    assert process.bus.reader is not None
    with closing(process.bus.reader()) as reader:
        reader.assign({partition: 0})
        first = poll_to(process, reader, partition, high(process, partition))
        assert reader.poll(0.01) == []
        feed(process, 1, {b"\x01a": b"2", b"\x01b": None})
        second = poll_to(process, reader, partition, high(process, partition))
    assert latest(first) == {b"\x01a": b"1", b"\x01b": b"1"}
    assert latest(second) == {b"\x01a": b"2"}
    assert second[0].offsets[0] >= first[-1].next_offset


def test_state_survives_the_process(harness: Harness) -> None:
    process = Process.running(harness)
    feed(process, 0, {b"\x01a": b"1", HEADER: b"h"})
    process.stop()
    process = Process.running(harness)
    assert latest(restore(process)) == {b"\x01a": b"1", HEADER: b"h"}
    process.stop()


def test_many_rows_are_read_in_several_polls(harness: Harness, running: Running) -> None:
    process = running()
    rows = {b"\x01%d" % number: b"%d" % number * 3000 for number in range(1500)}
    feed(process, 0, rows)
    assert latest(restore(process)) == rows


def test_state_and_outputs_are_committed_together_or_not_at_all(harness: Harness, running: Running) -> None:
    process = running()
    feed(process, 0, {HEADER: b"before"})
    harness.append(0, 1)
    batches = process.read(1)
    end = harness.disturb()
    with pytest.raises(Retry):
        commit(process, batches, {HEADER: b"doubtful"}, "doubtful", timeout_s=harness.doubtful_timeout_s)
    end()
    outcome = None
    while outcome is None:
        try:
            outcome = commit(process, batches, {HEADER: b"doubtful"}, "doubtful")
        except Retry:
            process.poll()
    committed = process.source.committed([harness.partition(0)], TIMEOUT_S)[harness.partition(0)]
    assert committed is not None
    if outcome is Outcome.COMMITTED:
        assert (committed.metadata, latest(restore(process))) == ("doubtful", {HEADER: b"doubtful"})
        assert [one.value for one in harness.outputs()] == [harness.value(0), harness.value(1)]
    else:
        # The call that resolves a doubt writes nothing itself.
        assert (committed.metadata, latest(restore(process))) == ("token-0", {HEADER: b"before"})
        assert [one.value for one in harness.outputs()] == [harness.value(0)]
        assert commit(process, batches, {HEADER: b"again"}, "again") is Outcome.COMMITTED
        assert latest(restore(process)) == {HEADER: b"again"}


# Brokers only: with files there is one writer, and no transaction stays open


@pytest.mark.parametrize("committed", [False, True])
def test_an_open_transaction_above_is_waited_for(broker: Harness, running: Running, committed: bool) -> None:
    process = running()
    partition = state_of(broker)
    feed(process, 0, {b"\x01a": b"1", HEADER: b"h"})
    finish = broker.open_transaction(partition, b"\x01foreign", b"x")
    feed(process, 1, {b"\x01a": b"2"})
    end = high(process, partition)
    assert process.bus.reader is not None
    with closing(process.bus.reader()) as reader:
        reader.assign({partition: 0})
        batches = [batch for _ in range(5) for batch in reader.poll(broker.poll_timeout_s)]
        assert latest(batches) == {b"\x01a": b"1", HEADER: b"h"}
        assert reader.position(partition) < end
        finish(committed)
        batches += poll_to(process, reader, partition, end)
        foreign = {b"\x01foreign": b"x"} if committed else {}
        assert latest(batches) == {b"\x01a": b"2", HEADER: b"h", **foreign}


def test_a_position_passes_what_was_aborted_and_markers(broker: Harness, running: Running) -> None:
    process = running()
    partition = state_of(broker)
    broker.open_transaction(partition, b"\x01never", b"x")(False)
    assert restore(process) == []
    assert high(process, partition) == 2
    feed(process, 0, {b"\x01a": b"1"})
    (batch,) = restore(process)
    assert (batch.offsets, batch.keys) == ([2], [b"\x01a"])
    assert high(process, partition) == 4


def test_the_state_topic_has_the_partitions_of_the_input(harness: Harness) -> None:
    with closing(harness.bus().cluster()) as cluster:
        assert cluster.partition_count(harness.state) == PARTITIONS
        assert cluster.topic_config(harness.state)["cleanup.policy"] == "compact"
        assert cluster.topic_id(harness.topic) == cluster.topic_id(harness.topic)
