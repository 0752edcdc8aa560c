"""`KafkaCluster` on the real broker, and what it says when there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import UnknownBrokerIdError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPartition
from kafka_member import until

from kstream_worker.bus.broker import LocalKafka
from kstream_worker.bus.kafka_python import internals
from kstream_worker.bus.kafka_python.cluster import KafkaCluster
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.errors import ConfigError, Retry
from kstream_worker.records import End, TopicPartition

pytestmark = pytest.mark.kafka

QUICK = {"bootstrap_timeout_ms": 1000, "request_timeout_ms": 1000}


def connect(bootstrap: str, **common: object) -> KafkaCluster:
    settings = KafkaSettings(bootstrap.split(","), common=common)
    return KafkaCluster(settings, group_id="app", transactional_prefix="app.")


@pytest.fixture
def cluster(kafka: str) -> Iterator[KafkaCluster]:
    with closing(connect(kafka)) as cluster:
        yield cluster


@contextmanager
def transactional_producer(kafka: str, name: str) -> Iterator[KafkaProducer]:
    with closing(KafkaProducer(bootstrap_servers=kafka, transactional_id=name)) as producer:
        producer.init_transactions()
        yield producer


def test_identity_and_partitions(cluster: KafkaCluster, make_topic) -> None:
    assert cluster.cluster_id() == cluster.cluster_id() != ""
    assert cluster.partition_count(make_topic(3)) == 3


def test_a_client_that_has_lost_a_broker_begins_afresh(
    cluster: KafkaCluster, make_topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was away when it last looked: until it looks again, minutes later, it fails without asking anybody."""

    def lost(*_: object, **__: object) -> None:
        raise UnknownBrokerIdError(1)

    partition = TopicPartition(make_topic(), 0)
    monkeypatch.setattr(cluster._admin, "list_partition_offsets", lost)
    with pytest.raises(Retry, match="UnknownBrokerId"):
        cluster.end([partition], End.HIGH)
    assert cluster.end([partition], End.HIGH) == {partition: 0}


def test_older_brokers_tell_their_identity(kafka: str, cluster: KafkaCluster) -> None:
    """Before 3.7 they do not know the request of the client's public call."""
    with closing(KafkaAdminClient(bootstrap_servers=kafka, api_version=(3, 5))) as admin:
        assert internals.cluster_id(admin) == cluster.cluster_id()


def test_a_topic_that_does_not_exist_has_no_count_and_is_not_made_by_asking(cluster: KafkaCluster) -> None:
    assert cluster.partition_count("no-such-topic") is None
    assert cluster.partition_count("no-such-topic") is None
    assert cluster.topic_config("no-such-topic") == {}


def test_an_illegal_topic_name_is_a_matter_of_configuration(cluster: KafkaCluster) -> None:
    with pytest.raises(ConfigError, match="no/good"):
        cluster.partition_count("no/good")


def test_settings_of_a_topic(cluster: KafkaCluster, make_topic) -> None:
    config = cluster.topic_config(make_topic(configs={"cleanup.policy": "compact", "segment.ms": "3600000"}))
    assert config["cleanup.policy"] == "compact"
    assert config["segment.ms"] == "3600000"
    assert int(config["max.message.bytes"]) > 0


def test_topics_are_created_once_with_their_settings(cluster: KafkaCluster, make_topic) -> None:
    old = make_topic(2)
    new = f"{old}-new"
    assert cluster.create_topics({old: 5, new: 3}, {new: {"retention.ms": "1000"}}) == [new]
    assert cluster.create_topics({old: 5, new: 3}, {}) == []
    assert (cluster.partition_count(old), cluster.partition_count(new)) == (2, 3)
    assert cluster.topic_config(new)["retention.ms"] == "1000"


def test_a_setting_the_broker_refuses_is_named(cluster: KafkaCluster) -> None:
    with pytest.raises(ConfigError, match=r"creating the topic refused: .*cleanup\.policy"):
        cluster.create_topics({"refused": 1}, {"refused": {"cleanup.policy": "nonsense"}})


def test_the_stable_end_is_below_an_open_transaction_and_the_high_one_above(
    kafka: str, kafka_admin: KafkaAdminClient, cluster: KafkaCluster, make_topic
) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    with transactional_producer(kafka, f"{topic}-open") as producer:
        producer.begin_transaction()
        producer.send(topic, b"1", partition=0).get(10)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"2", partition=0).get(10)
        assert cluster.end([partition], End.STABLE) == {partition: 2}  # one record, one marker
        assert cluster.end([partition], End.HIGH) == {partition: 3}
        # What the client gives unasked: an admin's answer is the high watermark, a consumer's follows its isolation.
        client_partition = ClientPartition(topic, 0)
        latest = kafka_admin.list_partition_offsets({client_partition: -1})
        assert latest[client_partition].offset == 3
        for isolation, expected in (("read_committed", 2), ("read_uncommitted", 3)):
            with closing(KafkaConsumer(bootstrap_servers=kafka, isolation_level=isolation)) as consumer:
                assert consumer.end_offsets([client_partition]) == {client_partition: expected}
        producer.abort_transaction()
    until(lambda: cluster.end([partition], End.STABLE) == {partition: 4})  # its marker is written after the answer
    assert cluster.end([partition], End.STABLE) == cluster.end([partition], End.HIGH) == {partition: 4}


def test_first_offsets_and_offsets_at_a_time(kafka: str, kafka_admin, cluster: KafkaCluster, make_topic) -> None:
    topic = make_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
        for time_ms in (1000, 2000, 3000):
            producer.send(topic, b"x", partition=0, timestamp_ms=time_ms).get(10)
    assert cluster.at_time([first, second], 1500) == {first: 1, second: 0}
    assert cluster.at_time([first], 3000) == {first: 2}
    assert cluster.at_time([first], 3001) == {first: 3}
    assert cluster.earliest([first, second]) == {first: 0, second: 0}
    kafka_admin.delete_records({ClientPartition(topic, 0): 2})
    assert cluster.earliest([first]) == {first: 2}
    assert cluster.earliest([]) == {}


def test_offsets_of_a_partition_that_is_not_there(cluster: KafkaCluster, make_topic) -> None:
    topic = make_topic()
    with pytest.raises(Retry, match=f"offsets of {topic}: the topic or partition is not there"):
        cluster.end([TopicPartition(topic, 9)], End.HIGH)


def test_an_admins_committed_offset_is_not_stable(kafka: str, kafka_admin: KafkaAdminClient, make_topic) -> None:
    """Why committed offsets are read through a read_committed consumer: it waits, an admin gives what was before."""
    topic = make_topic()
    group, partition = f"{topic}-group", ClientPartition(topic, 0)
    settings = {"bootstrap_servers": kafka, "group_id": group, "isolation_level": "read_committed"}
    with (
        closing(KafkaConsumer(**settings)) as consumer,
        transactional_producer(kafka, f"{topic}-writer") as producer,
    ):
        commit(producer, consumer, partition, 1)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(2, "token", -1)}, consumer.group_metadata())
        assert kafka_admin.list_group_offsets([group])[group][partition].offset == 1
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(consumer.committed(partition, timeout_ms=20_000)))
        asking.start()
        time.sleep(0.5)
        assert answers == []
        producer.commit_transaction()
        asking.join(20)
    assert answers == [2]


def commit(producer: KafkaProducer, consumer: KafkaConsumer, partition: ClientPartition, offset: int) -> None:
    producer.begin_transaction()
    producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset, "", -1)}, consumer.group_metadata())
    producer.commit_transaction()


def test_nothing_listens_there() -> None:
    threads = threading.active_count()
    with pytest.raises(Retry, match=r"connecting to 127\.0\.0\.1:1: .*ECONNREFUSED"):
        connect("127.0.0.1:1", **QUICK)
    assert threading.active_count() == threads


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(Retry, match=r"nowhere\.invalid:9092.*DNS"):
        connect("nowhere.invalid:9092", **QUICK)


def test_tls_where_the_broker_speaks_none(kafka: str) -> None:
    with pytest.raises(ConfigError, match="no TLS connection"):
        connect(kafka, security_protocol="SSL", **QUICK)


def test_a_login_where_the_broker_wants_none(kafka: str) -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u"}
    with pytest.raises(ConfigError, match="does not accept the login"):
        connect(kafka, **login, sasl_plain_password="p", **QUICK)


def test_a_frozen_broker_is_given_up_in_time_and_the_client_works_on_afterwards(
    kafka_process: LocalKafka, make_own_topic
) -> None:
    topic = make_own_topic()
    with closing(connect(kafka_process.bootstrap_servers, **QUICK)) as cluster:
        assert cluster.partition_count(topic) == 1
        kafka_process.freeze()
        with pytest.raises(Retry):
            cluster.partition_count(topic)
        with pytest.raises(Retry):
            connect(kafka_process.bootstrap_servers, **QUICK)
        kafka_process.thaw()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                assert cluster.partition_count(topic) == 1
            except Retry:
                continue
            return
    raise AssertionError("the client did not recover")


def test_offset_metadata_beyond_the_limit_is_no_retry(kafka: str, make_topic) -> None:
    topic = make_topic()
    partition = ClientPartition(topic, 0)
    settings = KafkaSettings([kafka])
    with (
        closing(KafkaConsumer(**settings.for_consumer(), group_id=f"{topic}-g")) as consumer,
        transactional_producer(kafka, f"{topic}-w") as producer,
    ):
        producer.begin_transaction()
        offsets = {partition: OffsetAndMetadata(1, "x" * 4097, -1)}
        with pytest.raises(ConfigError, match="OffsetMetadataTooLarge"):
            send_offsets(producer, offsets, consumer)


def send_offsets(producer: KafkaProducer, offsets: object, consumer: KafkaConsumer) -> None:
    from kstream_worker.bus.kafka_python.errors import translate

    with translate("committing"):
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
