"""The adapter on librdkafka against a real broker: its own traps, each with its guard."""

from __future__ import annotations

import contextlib
import logging
import struct
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import MemberToRemove
from kafka.structs import TopicPartition as OtherPartition
from kafka_member import Member, RdMember, column, commit_at_last, fill, members, outputs, until
from kafka_support import USERS

from kstream_worker.bus.confluent import ConfluentReader, ConfluentSettings, confluent_bus, source
from kstream_worker.bus.confluent.cluster import ConfluentCluster
from kstream_worker.bus.confluent.errors import MEANINGS, meaning_of
from kstream_worker.bus.confluent.membership import MAGIC, ConfluentMembership
from kstream_worker.bus.confluent.properties import ELSEWHERE, OBJECTS
from kstream_worker.errors import ConfigError, Fatal, Rejoin, Retry
from kstream_worker.records import ChangeKind, Committed, End, Outcome, Progress, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

SERVERS = ["127.0.0.1:9092"]


def login(user="worker", password=USERS["worker"]):
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def cluster_of(servers, common=None, group="app", prefix="app."):
    settings = ConfluentSettings([servers], common=common or {})
    return contextlib.closing(ConfluentCluster(settings, group_id=group, transactional_prefix=prefix))


# Source


def test_columns_of_a_batch(kafka, make_topic):
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=kafka)
    producer.send(topic, b"one", b"k", [("h", b"x"), ("h", b"")], 0, 1000)
    producer.send(topic, None, b"k", None, 0, 1001)
    producer.send(topic, b"", None, None, 0, 1002)
    producer.flush()
    producer.close()
    with members(RdMember(kafka, topic)) as member:
        member.join(1, resume=False)
        partition = TopicPartition(topic, 0)
        assert member.source.position(partition) is None
        member.source.resume([partition])
        assert member.poll(resume=False).batches == []  # sought is a condition of its own
        member.source.seek(partition, 0)
        (batch,) = member.read(3)
        assert batch.offsets == [0, 1, 2]
        assert batch.timestamps == [1000, 1001, 1002]
        assert batch.keys == [b"k", b"k", None]
        assert batch.values == [b"one", None, b""]
        assert [list(headers) for headers in batch.headers] == [[("h", b"x"), ("h", b"")], [], []]
        assert (batch.next_offset, batch.leader_epoch) == (3, 0)
        assert member.source.position(partition) == 3


def test_the_position_passes_markers_and_aborted_records_but_not_an_open_transaction(kafka, make_topic):
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    producer = KafkaProducer(bootstrap_servers=kafka, transactional_id=f"tx-{topic}")
    producer.init_transactions()
    for number in range(5):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, None, None, 0)
        producer.flush()
        if number < 4:
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    settings = ConfluentSettings([kafka])
    with members(RdMember(kafka, topic)) as member, contextlib.closing(member.bus.cluster()) as cluster:
        ends = [cluster.end([partition], end)[partition] for end in (End.STABLE, End.HIGH)]
        assert ends == [8, 9]
        batches = member.read(2)
        assert [value for batch in batches for value in batch.values] == [b"0", b"2"]
        until(lambda: member.poll() and member.source.position(partition) == 8)
        with contextlib.closing(ConfluentReader(settings, group_id="r", topic=topic)) as reader:
            reader.assign({partition: 0})
            seen = []
            until(lambda: seen.extend(reader.poll(0.1)) or reader.position(partition) == 8)
            assert [value for batch in seen for value in batch.values] == [b"0", b"2"]
            assert [reader.poll(0.1) for _ in range(3)] == [[], [], []]
            assert reader.position(partition) == 8
            producer.abort_transaction()
            until(lambda: reader.poll(0.1) == [] and reader.position(partition) == 10)
        producer.close()
        until(lambda: member.poll() and member.source.position(partition) == 10)


def test_records_of_a_paused_partition_come_later_each_once(kafka, make_topic):
    """The client has fetched them by then; it drops them and fetches them again."""
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    fill(kafka, topic, [b"%d" % n for n in range(30_000)])
    with members(RdMember(kafka, topic)) as member:
        member.join(1)
        offsets = [offset for batch in member.read(1) for offset in batch.offsets]
        for _ in range(2):
            member.source.pause([partition])
            assert [member.poll(0.05).batches for _ in range(3)] == [[], [], []]
            member.source.resume([partition])
            offsets += [offset for batch in member.read(1) for offset in batch.offsets]
        offsets += [offset for batch in member.read(30_000 - len(offsets)) for offset in batch.offsets]
        assert offsets == list(range(30_000))


def test_committed_waits_for_open_transactions(kafka, make_topic):
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    with members(RdMember(kafka, topic)) as member:
        member.join(1)
        member.commit(progress={partition: Progress(3, 0)}, token="first")
        session = member.writer._open()
        session.producer.begin_transaction()
        offsets = [ClientPartition(topic, 0, 5, "second", 0)]
        session.producer.send_offsets_to_transaction(offsets, member.membership().metadata)
        with pytest.raises(Retry, match="in time"):
            member.source.committed([partition], 0.5)
        session.producer.commit_transaction()
        session.close()
        assert member.source.committed([partition], 30) == {partition: Committed(5, "second", 0)}


def test_partitions_move_and_return_paused(kafka, make_topic):
    """A partition that returns is in the state it left in; each assignment sets it anew."""
    topic = make_topic(partitions=2)
    for partition in range(2):
        fill(kafka, topic, [b"a", b"b"], partition)
    first, second = RdMember(kafka, topic), RdMember(kafka, topic, name="m1")
    with members(first) as first:
        first.read(4)
        second.start()
        until(lambda: first.poll() and second.poll() and (len(first.owned), len(second.owned)) == (1, 1))
        (moved,) = second.owned
        assert (ChangeKind.REVOKED, moved) in first.changes
        fill(kafka, topic, [b"c"], moved.partition)
        assert [batch.partition for _ in range(3) for batch in first.poll().batches if batch.partition == moved] == []
        first.source.seek(moved, 0)  # not ours: no effect
        first.source.resume([moved])
        assert first.source.position(moved) is None
        second.close()
        until(lambda: first.poll(resume=False) and moved in first.owned and first.source.membership())
        assert [first.poll(resume=False).batches for _ in range(3)] == [[], [], []]
        first.resume([moved])
        assert [value for batch in first.read(3) for value in batch.values] == [b"a", b"b", b"c"]


def test_a_client_that_does_not_take_an_assignment_is_replaced(kafka, make_topic):
    topic = make_topic(partitions=2)
    first, second = RdMember(kafka, topic), RdMember(kafka, topic, name="m1")
    with members(first):
        first.join(2)
        first.source._client.incremental_unassign([ClientPartition(topic, number) for number in range(2)])
        with members(second), pytest.raises(Rejoin, match="did not take an assignment"):
            until(lambda: second.poll() and first.poll() is None)


def test_a_static_member_leaves_only_when_asked(kafka, make_topic):
    """The client never says good-bye for a static member that closes, only for one that unsubscribes."""
    topic = make_topic()
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    for leave, left in ((False, 1), (True, 0)):
        member = RdMember(kafka, topic, static=True).start()
        member.join(1)
        with contextlib.closing(member.bus.group()) as group:
            assert [one.split(" on ")[0] for one in group.members()] == ["m0"]
        member.close(leave=leave)
        assert len(admin.describe_groups([member.group])[member.group]["members"]) == left
    admin.close()


@pytest.mark.parametrize(
    "error", [RuntimeError("closed"), KafkaException(KafkaError(KafkaError._DESTROY)), SystemError()]
)
def test_a_client_that_fails_as_it_closes_ends_nothing(kafka, make_topic, monkeypatch, error):
    """Seen of a worker that stopped during a rebalance: "exception <class 'str'> is not a BaseException subclass"."""

    def fails(consumer, leaving):
        close(consumer, leaving)
        raise error

    close = source._close
    with members(RdMember(kafka, make_topic())) as member:
        member.join(1)
        monkeypatch.setattr(source, "_close", fails)
        member.source.close(leave=True, timeout_s=10)
        assert member.source.membership() is None


def test_what_a_closing_client_calls_back_is_left_to_it(kafka, make_topic):
    with members(RdMember(kafka, make_topic())) as member:
        member.join(1)
        captured = member.source._log.captured
        member.source.close(leave=True, timeout_s=10)
        assert member.source._log.captured is captured
        assert not member.source._log.pending()


def test_records_that_retention_took_are_fatal(kafka, kafka_admin, make_topic):
    topic = make_topic()
    fill(kafka, topic, [b"x"] * 3)
    kafka_admin.delete_records({OtherPartition(topic, 0): 2})
    with contextlib.closing(ConfluentReader(ConfluentSettings([kafka]), group_id="r", topic=topic)) as reader:
        reader.assign({TopicPartition(topic, 0): 0})
        with pytest.raises(Fatal, match="retention"):
            until(lambda: reader.poll(0.1) and False)
        with pytest.raises(Fatal, match="not assigned"):
            reader.position(TopicPartition(topic, 1))
    with members(RdMember(kafka, topic)) as member:
        member.join(1, resume=False)  # the placeholder 0 is out of range, too, which is nobody's concern
        assert [member.poll(resume=False).batches for _ in range(3)] == [[], [], []]
        member.source.seek(TopicPartition(topic, 0), 2)
        member.source.resume([TopicPartition(topic, 0)])
        assert member.read(1)[0].offsets == [2]
        member.source.seek(TopicPartition(topic, 0), 1)
        with pytest.raises(Fatal, match="retention"):
            until(lambda: member.poll(resume=False) and False)


# Membership


def test_the_packing_of_a_membership_is_understood(kafka, make_topic):
    topic = make_topic()
    with members(RdMember(kafka, topic)) as member:
        found = member.join(1)
        assert found.metadata.startswith(MAGIC + struct.pack("=i", found.generation) + member.group.encode() + b"\0")
        assert found.member_id.encode() in found.metadata
        assert (found.generation, found.is_member) == (1, True)


def test_a_membership_that_proves_nothing_is_refused(kafka, make_topic):
    topic = make_topic()
    with members(RdMember(kafka, topic)) as member:
        good = member.join(1)
        nobody = MAGIC + (-1).to_bytes(4, sys.byteorder, signed=True) + member.group.encode() + b"\0\0\1"
        for nothing in (
            ConfluentMembership(nobody, "", good.partitions),
            ConfluentMembership(nobody, "x", good.partitions),
        ):
            with pytest.raises(Rejoin, match="no member"):
                member.commit(membership=nothing)
        with pytest.raises(Rejoin, match="does not own"):
            member.commit(progress={TopicPartition(topic, 1): Progress(1)})
        assert member.committed() is None


def test_a_stale_generation_is_refused_and_leaves_no_trace(kafka, make_topic):
    topic = make_topic(partitions=2)
    with members(RdMember(kafka, topic)) as member:
        good = member.join(2)
        start = len(MAGIC)
        packed = good.metadata[:start] + struct.pack("=i", good.generation + 7) + good.metadata[start + 4 :]
        stale = ConfluentMembership(packed, good.member_id, good.partitions)
        with pytest.raises(Rejoin, match="gone on without"):
            member.commit(progress={TopicPartition(topic, 0): Progress(100)}, token="bad", membership=stale)
        assert member.commit(progress={TopicPartition(topic, 1): Progress(1)}, token="good") is Outcome.COMMITTED
        assert [member.committed(0), member.committed(1)] == [None, (1, "good")]


def test_an_evicted_member_cannot_commit_learns_it_and_comes_back(kafka, make_topic):
    topic = make_topic(partitions=4)
    first = RdMember(kafka, topic, name="a", consumer=RdMember.EVICTED_SOON)
    second = RdMember(kafka, topic, name="b", consumer=RdMember.EVICTED_SOON)
    with members(first):
        old = first.join(4)
        second.start()
        until(lambda: second.poll() and len(second.owned) == 4 and second.source.membership())  # first stalls
        assert second.commit(token="owner") is Outcome.COMMITTED
        with pytest.raises(Rejoin):
            first.commit(progress={TopicPartition(topic, 0): Progress(99)}, token="zombie", membership=old)
        assert second.committed() == (1, "owner")
        first.poll()
        until(lambda: first.poll() and second.poll() and (len(first.owned), len(second.owned)) == (2, 2))
        taken = first.changes[4:8]  # a revocation that was on its way when the member was put out is served as one
        assert sorted(partition for _, partition in taken) == [TopicPartition(topic, n) for n in range(4)]
        assert {kind for kind, _ in taken} <= {ChangeKind.REVOKED, ChangeKind.LOST}
        assert not first.owned & second.owned
        second.close()


def test_a_member_put_out_while_it_joins_loses_what_it_had(kafka, make_topic):
    topic = make_topic(partitions=2)
    consumer = {**RdMember.QUICK, "session.timeout.ms": 6_000}  # what the rebalance waits for the member that is gone
    first, second, third = (RdMember(kafka, topic, name=name, consumer=consumer) for name in "abc")
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    with members(first), members(second):
        until(lambda: first.poll() and second.poll() and (len(first.owned), len(second.owned)) == (1, 1))
        pair = (first, second)
        until(lambda: all(one.poll(0.05) for one in pair) and all(one.source.membership() for one in pair))
        old_id, (mine,) = first.membership().member_id, first.owned
        first.changes.clear()
        third.start()
        third.poll(0.5)
        admin.remove_group_members(first.group, [MemberToRemove(member_id=old_id)])
        admin.close()
        everyone = (first, second, third)
        until(lambda: [one.poll(0.05) for one in everyone] and first.changes)  # it may learn of it later than they
        until(lambda: [one.poll(0.05) for one in everyone] and all(one.source.membership() for one in everyone))
        until(lambda: [one.poll(0.05) for one in everyone] and sum(len(one.owned) for one in everyone) == 2)
        assert first.changes[0][1] == mine
        assert first.changes[0][0] is not ChangeKind.ASSIGNED
        assert len(first.owned | second.owned | third.owned) == 2
        third.close()


# Writer


def test_a_second_process_of_one_instance_id_ends_the_first(kafka, make_topic):
    topic = make_topic()
    with members(RdMember(kafka, topic, name="same", static=True)) as first:
        old = first.join(1)
        twin = RdMember(kafka, topic, name="same", group=first.group, static=True)
        twin.source.start()
        twin.join(1)
        with pytest.raises(Fatal, match="instance"):
            first.commit(membership=old)
        with pytest.raises(Fatal, match="instance"):
            until(lambda: first.poll() and False)
        twin.source.close(leave=True, timeout_s=5)


def test_outputs_with_times_and_headers(kafka, make_topic):
    topic, output = make_topic(), make_topic(configs={"retention.ms": "-1"})
    messages = column(output, [b"a", None, b""])
    messages.timestamps[:] = [1000, 2000, 3000]
    messages.headers[1] = [("h", b"x")]
    with members(RdMember(kafka, topic)) as member:
        member.join(1)
        assert member.commit([messages], {TopicPartition(topic, 0): Progress(7, 0)}) is Outcome.COMMITTED
        with contextlib.closing(member.bus.reader()) as reader:
            reader.assign({TopicPartition(output, 0): 0})
            batches = []
            until(lambda: batches.extend(reader.poll(0.1)) or sum(map(len, batches)) == 3)
        (batch,) = batches
        assert (batch.values, batch.timestamps) == ([b"a", None, b""], [1000, 2000, 3000])
        assert [list(each) for each in batch.headers] == [[], [("h", b"x")], []]


def test_what_can_never_be_sent_is_refused_and_leaves_no_trace(kafka, make_topic):
    topic, output = make_topic(), make_topic(configs={"max.message.bytes": "20000"})
    with members(RdMember(kafka, topic, producer={"message.max.bytes": 100_000})) as member:
        member.join(1)
        with pytest.raises(ConfigError, match=r"message\.max\.bytes"):
            member.commit([column(output, [b"x" * 100_000])], token="a")
        with pytest.raises(ConfigError, match=r"max\.message\.bytes"):
            until(lambda: commit_at_last(member, [column(output, [b"ok", b"x" * 50_000])], token="b") and False)
        with pytest.raises(ConfigError, match=r"\[5\] does not exist"):
            member.commit([column(output, [b"x"], 5)], token="c")
        assert member.committed() is None
        assert member.commit([column(output, [b"fits"])], token="d") is Outcome.COMMITTED
        assert outputs(member, output) == [b"fits"]


def test_a_batch_larger_than_the_topic_allows_is_cut(kafka, make_topic):
    """The client does not split a batch that the broker refuses; each such commit is aborted until they are small."""
    topic, output = make_topic(), make_topic(configs={"max.message.bytes": "20000"})
    values = [b"%05d" % n + b"x" * 200 for n in range(400)]
    with members(RdMember(kafka, topic)) as member:
        member.join(1)
        until(lambda: member.commit([column(output, values)]) is Outcome.COMMITTED)
        assert outputs(member, output) == values


# Cluster, rights, logins


def test_the_topic_id_is_the_same_text_for_both_clients_and_another_when_made_anew(kafka, kafka_admin, make_topic):
    topic = make_topic()
    with cluster_of(kafka) as cluster, contextlib.closing(Member(kafka, topic).bus.cluster()) as other:
        seen = set()
        for _ in range(4):
            told = cluster.topic_id(topic)
            assert len(told) == 22
            assert told == other.topic_id(topic)
            seen.add(told)
            kafka_admin.delete_topics([topic])
            until(lambda: cluster.topic_id(topic) == other.topic_id(topic) == "")
            cluster.create_topics({topic: 1}, {})
        assert len(seen) == 4


def test_a_name_or_setting_that_kafka_refuses_is_a_matter_of_configuration(kafka):
    with cluster_of(kafka) as cluster:
        with pytest.raises(ConfigError, match="no/good"):
            cluster.partition_count("no/good")
        with pytest.raises(ConfigError, match=r"creating the topic refused: .*cleanup\.policy"):
            cluster.create_topics({"refused": 1}, {"refused": {"cleanup.policy": "nonsense"}})
        assert cluster.topic_config("no-such-topic") == {}
        with pytest.raises(Retry, match=r"offsets of no-such-topic: the topic or partition is not there"):
            cluster.end([TopicPartition("no-such-topic", 0)], End.HIGH)


@pytest.mark.parametrize("make", ["cluster", "reader", "source", "writer", "group"])
def test_nothing_listens_there(monkeypatch, make):
    monkeypatch.setattr("kstream_worker.bus.confluent.clients.CONNECT_S", 0.6)
    bus = confluent_bus(ConfluentSettings(["127.0.0.1:1"]), topic="t", group_id="g", transactional_id="x")
    starts = {
        "source": lambda: bus.source().start(),
        "writer": lambda: bus.writer().start(0.6),
        **{name: getattr(bus, name) for name in ("cluster", "reader", "group")},
    }
    with pytest.raises(Retry, match=r"127\.0\.0\.1:1|no transactional producer"):
        starts[make]()


def test_tls_where_the_broker_speaks_none(kafka, monkeypatch):
    monkeypatch.setattr("kstream_worker.bus.confluent.clients.CONNECT_S", 1.0)
    with pytest.raises(ConfigError, match="no TLS connection"), cluster_of(kafka, {"security.protocol": "SSL"}):
        pass


@pytest.mark.parametrize(
    "wrong", [login(password="wrongsecret"), login(user="stranger"), {**login(), "sasl.mechanism": "SCRAM-SHA-256"}]
)
def test_a_wrong_login_is_refused_at_once(secure_kafka, wrong):
    names = {"topic": "t", "group_id": "g", "transactional_id": "x"}
    bus = confluent_bus(ConfluentSettings([secure_kafka.bootstrap_servers], common=login() | wrong), **names)
    for connect in (bus.cluster, bus.reader, lambda: bus.source().start(), lambda: bus.writer().start(30)):
        with pytest.raises(ConfigError, match="does not accept the login") as caught:
            connect()
        assert "secret" not in str(caught.value)


def test_no_login_where_one_is_wanted(secure_kafka, monkeypatch):
    monkeypatch.setattr("kstream_worker.bus.confluent.clients.CONNECT_S", 1.0)
    with pytest.raises(Retry, match="the last attempt ended with"), cluster_of(secure_kafka.bootstrap_servers):
        pass


def test_each_right_is_named_with_what_to_grant_and_all_are_enough(secure_kafka, caplog):
    topic, output = secure_kafka.make_topic(name="input"), secure_kafka.make_topic(name="output")
    member = RdMember(secure_kafka.bootstrap_servers, topic, common=login())
    prefix = f"{member.group}."
    rights = [
        ("READ", "TOPIC", topic),
        ("WRITE", "TOPIC", output),
        ("READ", "GROUP", member.group),
        ("WRITE", "TRANSACTIONAL_ID", prefix),
    ]
    for _, resource, name in rights:
        secure_kafka.grant("DESCRIBE", resource, name, prefixed=resource == "TRANSACTIONAL_ID")
    with cluster_of(secure_kafka.bootstrap_servers, login(), member.group, prefix) as cluster:
        while rights:
            problems = cluster.check_rights(inputs=[topic], outputs=[output])
            assert len(problems) == len(rights)
            for problem, (operation, _, name) in zip(problems, rights, strict=True):
                assert problem.startswith(operation)
                assert f"--allow-principal User:worker --operation {operation.title()}" in problem
                assert name in problem
            operation, resource, name = rights.pop(0)
            secure_kafka.grant(operation, resource, name, prefixed=resource == "TRANSACTIONAL_ID")
        assert cluster.check_rights(inputs=[topic], outputs=[output]) == []
    with caplog.at_level(logging.DEBUG), members(member):
        member.join(1)
        assert member.commit([column(output, [b"x"])]) is Outcome.COMMITTED
    assert "workersecret" not in caplog.text


def test_missing_rights_are_told(secure_kafka):
    topic, output = secure_kafka.make_topic(), secure_kafka.make_topic()
    member = RdMember(secure_kafka.bootstrap_servers, topic, common=login())
    with cluster_of(secure_kafka.bootstrap_servers, login()) as cluster:
        with pytest.raises(ConfigError, match=rf"no right on the topic {topic}.*--operation Read"):
            cluster.partition_count(topic)
        with pytest.raises(ConfigError, match=r"topic brand-new may not be created.*--operation Create"):
            cluster.create_topics({"brand-new": 1}, {})
        assert cluster.topic_config(topic) == {}
    with pytest.raises(ConfigError, match="transactional id"):
        member.writer.start(30)
    secure_kafka.grant("WRITE", "TRANSACTIONAL_ID", member.group, prefixed=True)
    secure_kafka.grant("READ", "TOPIC", topic)
    member.source.start()
    with pytest.raises(ConfigError, match="group"):
        until(lambda: member.poll() and False)
    member.source.close(leave=True, timeout_s=5)
    secure_kafka.grant("READ", "GROUP", member.group)
    with members(member):
        member.join(1)
        with pytest.raises(ConfigError, match="topic"):
            member.commit([column(output, [b"x"])])
        assert member.commit(token="alone") is Outcome.COMMITTED


# Settings and errors, without a broker


def test_settings_reach_the_clients_that_know_them():
    settings = ConfluentSettings(
        SERVERS,
        common={
            "socket.timeout.ms": "4000",
            "security.protocol": "SASL_SSL",
            "sasl": {"username": "worker"},
            "sasl_password": "hunter2",
        },
        consumer={"fetch.min.bytes": 3, "max.partition.fetch.bytes": 99_999},
        producer={"linger.ms": 0, "compression.codec": "zstd", "delivery.timeout.ms": 14_000},
    )
    consumer, producer, admin = settings.for_consumer(), settings.for_producer("app.0"), settings.for_admin()
    for made in (consumer, producer, admin):
        assert made["socket.timeout.ms"] == "4000"
        assert (made["sasl.username"], made["sasl.password"]) == ("worker", "hunter2")
        assert made["bootstrap.servers"] == "127.0.0.1:9092"
    assert (consumer["fetch.min.bytes"], consumer["fetch.message.max.bytes"]) == (3, 99_999)
    assert (producer["linger.ms"], producer["compression.type"], producer["message.timeout.ms"]) == (0, "zstd", 14_000)
    assert "linger.ms" not in consumer
    assert "fetch.min.bytes" not in producer
    assert settings.user() == "worker"
    for text in (repr(settings), str(settings.redacted()), f"{consumer} {producer} {admin}"):
        assert "hunter2" not in text
        assert "worker" in text


def test_correctness_is_not_configurable():
    settings = ConfluentSettings(SERVERS)
    consumer, producer = settings.for_consumer(), settings.for_producer("app.0")
    assert consumer["isolation.level"] == "read_committed"
    assert (consumer["enable.auto.commit"], consumer["auto.offset.reset"]) == (False, "error")
    assert consumer["partition.assignment.strategy"] == "cooperative-sticky"
    assert (producer["acks"], producer["enable.idempotence"], producer["transactional.id"]) == ("all", True, "app.0")


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_not_the_users_to_set_is_refused_with_the_reason(name):
    with pytest.raises(ConfigError, match=rf"`bus\.kafka\.common\.{name}`: cannot be set here: .+"):
        ConfluentSettings(SERVERS, common={name: "x"})


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_python_objects_are_refused(name):
    with pytest.raises(ConfigError, match="takes a Python object"):
        ConfluentSettings(SERVERS, common={name: "x"})


@pytest.mark.parametrize(
    ("table", "given", "words"),
    [
        ("common", {"sasl.pasword": "x"}, r"no such setting; did you mean sasl\.password\?"),
        ("consumer", {"fetch.min.byte": 1}, r"did you mean fetch\.min\.bytes\?"),
        ("common", {"zzz": 1}, "librdkafka knows no such setting$"),
        ("consumer", {"linger.ms": 5}, "belongs to the other table"),
        ("producer", {"session.timeout.ms": 5}, "belongs to the other table"),
        ("common", {"socket.timeout.ms": "soon"}, "librdkafka refuses it: .*socket.timeout.ms"),
        ("common", {"security.protocol": "TLS"}, "librdkafka refuses it"),
        ("common", {"sasl": {"username": "u"}}, r"sasl\.username` is set, but security\.protocol is PLAINTEXT"),
        ("common", {"ssl_ca_location": __file__}, r"set `bus\.kafka\.common\.security\.protocol` to SSL or SASL_SSL"),
        ("common", {"client.rack": ["a"]}, "expected a text"),
        ("common", {"ssl.ca.location": "/no/such/file"}, "cannot read /no/such/file"),
        ("common", {"request_timeout_ms": 15_000}, r"request\.timeout\.ms .15000. must be shorter"),
        ("producer", {"message.timeout.ms": 40_000}, r"must be shorter than transaction\.timeout\.ms"),
        ("common", {"socket.timeout.ms": 40_000}, r"socket\.timeout\.ms .40000. must be shorter"),
        ("consumer", {"session.timeout.ms": 130_000}, r"max\.poll\.interval\.ms"),
    ],
)
def test_what_does_not_fit_is_refused(table, given, words):
    with pytest.raises(ConfigError, match=words):
        ConfluentSettings(SERVERS, **{table: given})


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        ConfluentSettings([], common={"acks": 1}, consumer={"nonsense": 1})
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (KafkaError.ILLEGAL_GENERATION, Rejoin, "gone on without"),
        (KafkaError.UNKNOWN_MEMBER_ID, Rejoin, "gone on without"),
        (KafkaError.FENCED_INSTANCE_ID, Fatal, r"group\.instance\.id"),
        (KafkaError._FENCED, Fatal, "transactional id"),
        (KafkaError._AUTO_OFFSET_RESET, Fatal, "retention"),
        (KafkaError._AUTHENTICATION, ConfigError, "password"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, ConfigError, "READ on the consumer group"),
        (KafkaError.MSG_SIZE_TOO_LARGE, ConfigError, r"max\.message\.bytes"),
        (KafkaError.INVALID_PRODUCER_EPOCH, Retry, "committed offsets"),
        (KafkaError._TRANSPORT, Retry, "reached"),
        (KafkaError._TIMED_OUT, Retry, "in time"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Retry, "passing"),
    ],
)
def test_each_error_has_its_meaning(code, kind, words):
    made = meaning_of(KafkaError(code), "doing this")
    assert type(made) is kind
    with pytest.raises(kind, match=f"doing this: .*{words}"):
        raise made
    assert (kind is Retry) or code in MEANINGS
