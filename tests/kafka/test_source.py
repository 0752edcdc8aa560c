"""The group member on a real broker."""

from __future__ import annotations

import contextlib

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka_member import Member, client_partition, fill, freeze, members, until

from kstream_worker.bus.common import header_names
from kstream_worker.errors import Retry
from kstream_worker.records import ChangeKind, Committed, End, Progress, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_columns_of_a_batch(kafka, make_topic):
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=kafka)
    producer.send(topic, b"one", b"k", [("h", b"x"), ("h", b"")], 0, 1000)
    producer.send(topic, None, b"k", None, 0, 1001)
    producer.send(topic, b"three", None, None, 0, 1002)
    producer.flush()
    producer.close()
    with members(Member(kafka, topic)) as member:
        member.join(1, resume=False)
        partition = TopicPartition(topic, 0)
        assert member.source.position(partition) is None
        assert [member.poll(resume=False).batches for _ in range(3)] == [[], [], []]  # paused until sought and resumed
        member.source.resume([partition])
        assert member.poll(resume=False).batches == []  # sought is a condition of its own
        member.source.seek(partition, 0)
        (batch,) = member.read(3)
        assert batch.offsets == [0, 1, 2]
        assert batch.timestamps == [1000, 1001, 1002]
        assert batch.keys == [b"k", b"k", None]
        assert batch.values == [b"one", None, b"three"]
        assert [list(headers) for headers in batch.headers] == [[("h", b"x"), ("h", b"")], [], []]
        assert (batch.next_offset, batch.leader_epoch) == (3, 0)
        assert member.source.position(partition) == 3


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "gzip"])
def test_compressed_input(client, kafka, make_topic, codec):
    topic, values = make_topic(), [b"value-%d" % n for n in range(300)]
    fill(kafka, topic, values, compression_type=codec, linger_ms=50)
    with members(client(kafka, topic)) as member:
        assert [value for batch in member.read(300) for value in batch.values] == values


def test_aborted_records_are_skipped_and_markers_passed(kafka, make_topic):
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=kafka, transactional_id=f"tx-{topic}")
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, None, None, 0)
        producer.flush()
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    with members(Member(kafka, topic)) as member:
        batches = member.read(2)
        assert [value for batch in batches for value in batch.values] == [b"0", b"2"]
        assert [offset for batch in batches for offset in batch.offsets] == [0, 4]
        partition = TopicPartition(topic, 0)
        with contextlib.closing(member.bus.cluster()) as cluster:
            (end,) = cluster.end([partition], End.HIGH).values()
        until(lambda: member.poll() and member.source.position(partition) == end)
        assert end == 8
        batches[-1].next_offset = 8
        assert batches[-1].next_offset > batches[-1].offsets[-1]


def test_committed_waits_for_open_transactions(kafka, make_topic):
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    with members(Member(kafka, topic)) as member:
        member.join(1)
        member.commit(progress={partition: Progress(3, 0)}, token="first")
        other = KafkaProducer(bootstrap_servers=kafka, transactional_id=f"tx-{topic}")
        other.init_transactions()
        other.begin_transaction()
        offsets = {client_partition(topic): OffsetAndMetadata(5, "second", 0)}
        other.send_offsets_to_transaction(offsets, member.membership().metadata)
        with pytest.raises(Retry, match="in time"):
            member.source.committed([partition], 0.5)
        other.commit_transaction()
        other.close()
        assert member.source.committed([partition], 30) == {partition: Committed(5, "second", 0)}


def test_many_committed_positions_are_one_question(kafka, make_topic, monkeypatch):
    topic = make_topic(partitions=3)
    wanted = [TopicPartition(topic, number) for number in range(3)]
    with members(Member(kafka, topic)) as member:
        member.join(3)
        member.commit(progress={wanted[1]: Progress(7, 0)}, token="t")
        coordinator = member.source._consumer._coordinator
        asked = []
        send = coordinator._send_offset_fetch_request
        monkeypatch.setattr(coordinator, "_send_offset_fetch_request", lambda some: asked.append(some) or send(some))
        assert member.source.committed(wanted, 30) == {
            wanted[0]: None,
            wanted[1]: Committed(7, "t", 0),
            wanted[2]: None,
        }
        assert {len(some) for some in asked} == {3}


def test_partitions_move_and_return_paused(kafka, make_topic):
    topic = make_topic(partitions=2)
    for partition in range(2):
        fill(kafka, topic, [b"a", b"b"], partition)
    first, second = Member(kafka, topic), Member(kafka, topic, name="m1")
    with members(first) as first:
        assert len(first.read(4)) >= 2
        second.start()
        until(lambda: first.poll() and second.poll() and (len(first.owned), len(second.owned)) == (1, 1))
        (moved,) = second.owned
        assert (ChangeKind.REVOKED, moved) in first.changes
        fill(kafka, topic, [b"c"], moved.partition)
        polls = [first.poll() for _ in range(3) if second.poll() is not None]
        assert all(batch.partition in first.owned for poll in polls for batch in poll.batches)
        first.source.seek(moved, 0)  # not ours: no effect
        first.source.resume([moved])
        assert first.source.position(moved) is None
        second.close()
        until(lambda: first.poll(resume=False) and moved in first.owned and first.source.membership())
        assert [first.poll(resume=False).batches for _ in range(3)] == [[], [], []]
        first.resume([moved])
        assert [value for batch in first.read(3) for value in batch.values] == [b"a", b"b", b"c"]


def test_a_static_member_leaves_only_when_asked(kafka, make_topic):
    topic = make_topic()
    admin = KafkaAdminClient(bootstrap_servers=kafka)

    def remaining(group):
        return len(admin.describe_groups([group])[group]["members"])

    for leave, left in ((False, 1), (True, 0)):
        member = Member(kafka, topic, static=True).start()
        member.join(1)
        member.close(leave=leave)
        assert remaining(member.group) == left
    dynamic = Member(kafka, topic, group=f"d-{topic}").start()
    dynamic.join(1)
    dynamic.close(leave=False)
    assert remaining(dynamic.group) == 0
    admin.close()


def test_close_ends_with_the_broker_frozen(client, kafka_process, make_own_topic):
    topic = make_own_topic()
    member = client(kafka_process.bootstrap_servers, topic).start()
    member.join(1)
    freeze(kafka_process)
    member.source.close(leave=True, timeout_s=1.0)
    member.writer.close(1.0)
    assert member.source.membership() is None
    kafka_process.thaw()


def test_an_answer_that_came_too_late_is_not_taken_for_a_new_one(kafka_process, make_own_topic):
    """The client keeps a timed-out read of committed offsets and gives its old answer to the next call."""
    topic = make_own_topic()
    partition = TopicPartition(topic, 0)
    with members(Member(kafka_process.bootstrap_servers, topic)) as member:
        member.join(1)
        member.commit(progress={partition: Progress(1)}, token="old")
        assert member.committed() == (1, "old")
        freeze(kafka_process)
        with pytest.raises(Retry):
            member.source.committed([partition], 0.3)
        kafka_process.thaw()
        until(lambda: member.commit(progress={partition: Progress(2)}, token="new").value == "committed")
        assert member.committed() == (2, "new")


def test_what_the_client_parked_comes_back_while_another_partition_is_read(kafka, make_topic):
    """It parks what it holds of a paused partition, and left to itself never takes it back while there are others."""
    topic = make_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with KafkaProducer(bootstrap_servers=kafka) as producer:
        for partition in (first, second):
            for n in range(50):
                producer.send(topic, b"%d" % n, partition=partition.partition)
    with members(Member(kafka, topic, consumer={**Member.QUICK, "max_poll_records": 10})) as member:
        member.join(2, resume=False)
        member.resume([first])
        member.read(10)  # forty are left in line
        member.source.pause([first])
        assert not member.poll(resume=False).batches
        member.resume([second])
        assert sum(map(len, member.read(50))) == 50
        member.source.resume([first])
        assert [offset for batch in member.read(40) for offset in batch.offsets] == list(range(10, 50))


class NoText(str):
    """A header's name that this producer does not encode as it should."""

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


def test_a_header_whose_name_is_no_text_stops_no_partition(client, kafka, make_topic, caplog):
    """Brokers do not look at headers, so any producer can write one; clients raise, some at each poll anew."""
    topic = make_topic(configs={"retention.ms": "-1"})
    caplog.set_level("WARNING", header_names.__name__)
    with contextlib.closing(KafkaProducer(bootstrap_servers=kafka, metrics_enabled=False)) as producer:
        for name in ("before", NoText("x"), "behind"):
            producer.send(topic, b"v", b"key", [(name, b"1")], 0, 1000)
        producer.flush(10)
    with members(client(kafka, topic)) as member:
        member.join(1)
        batches = member.read(3)
        headers = [list(pairs) for batch in batches for pairs in batch.headers]
        assert headers == [[("before", b"1")], [("__kstream.original.headers", b"unreadable")], [("behind", b"1")]]
        assert [value for batch in batches for value in batch.values] == [b"v"] * 3
        assert "header of the record at offset 1 is not UTF-8" in caplog.text


def test_records_that_a_poll_took_before_it_failed_come_again(client, kafka, make_topic, monkeypatch):
    topic = make_topic(partitions=2)
    with members(client(kafka, topic)) as member:
        member.join(2)
        until(lambda: member.poll().batches == [] and member.source.membership())
        taken = []

        def fail_with(take):
            def failing(*arguments, **more):
                found = take(*arguments, **more)
                if not found:
                    return found
                taken.append(found)
                monkeypatch.undo()
                raise member.PASSING

            return failing

        place, name = member.taking()
        monkeypatch.setattr(place, name, fail_with(getattr(place, name)))
        for partition in range(2):
            fill(kafka, topic, [b"a", b"b", b"c"], partition)
        with pytest.raises(Retry):
            until(lambda: member.poll() is None)
        assert taken
        batches = member.read(6)
        for partition in range(2):
            got = [o for batch in batches if batch.partition.partition == partition for o in batch.offsets]
            assert got == [0, 1, 2]
