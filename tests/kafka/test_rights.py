"""Each right of a worker, on a broker with logins and access-control lists."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPartition
from kafka_support import SecureKafka

from kstream_worker.bus.kafka_python.cluster import KafkaCluster
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.errors import ConfigError

pytestmark = pytest.mark.kafka

Right = tuple[str, str, str]


class Application:
    """Topics, group and rights of one application of the user `worker`."""

    def __init__(self, broker: SecureKafka) -> None:
        self.broker = broker
        self.input = broker.make_topic(name="input")
        self.outputs = [broker.make_topic(name=name) for name in ("estimates", "alarms", "dead-letters")]
        self.group, self.prefix = f"{self.input}-app", f"{self.input}-app."
        self.rights: list[Right] = [
            ("READ", "TOPIC", self.input),
            *(("WRITE", "TOPIC", topic) for topic in self.outputs),
            ("READ", "GROUP", self.group),
            ("WRITE", "TRANSACTIONAL_ID", self.prefix),
        ]

    def settings(self) -> KafkaSettings:
        return KafkaSettings([self.broker.bootstrap_servers], common=self.broker.login())

    def grant(self, *rights: Right) -> None:
        for operation, resource, name in rights:
            self.broker.grant(operation, resource, name, prefixed=resource == "TRANSACTIONAL_ID")

    def check(self) -> list[str]:
        cluster = KafkaCluster(self.settings(), group_id=self.group, transactional_prefix=self.prefix)
        with closing(cluster):
            return cluster.check_rights(inputs=[self.input], outputs=self.outputs)


@pytest.fixture
def app(secure_kafka: SecureKafka) -> Iterator[Application]:
    return Application(secure_kafka)


def test_without_any_right_each_is_named_with_what_to_grant(app: Application) -> None:
    problems = app.check()
    assert len(problems) == len(app.rights) == 6
    flags = {"TOPIC": "--topic", "GROUP": "--group", "TRANSACTIONAL_ID": "--transactional-id"}
    for problem, (operation, resource, name) in zip(problems, app.rights, strict=True):
        assert problem.startswith(operation)
        remedy = f"--allow-principal User:worker --operation {operation.title()} {flags[resource]} {name}"
        assert f"kafka-acls --add {remedy}" in problem


@pytest.mark.parametrize("taken", range(6))
def test_each_right_is_needed(app: Application, taken: int) -> None:
    app.grant(*(right for number, right in enumerate(app.rights) if number != taken))
    (problem,) = app.check()
    assert app.rights[taken][2] in problem


def test_seeing_is_not_reading_nor_writing(app: Application) -> None:
    app.grant(*(("DESCRIBE", resource, name) for _, resource, name in app.rights))
    assert len(app.check()) == len(app.rights)


def test_all_rights_are_enough_for_a_transaction_from_input_to_outputs(app: Application) -> None:
    app.grant(*app.rights)
    assert app.check() == []
    fill(app, b"reading")
    settings, partition = app.settings(), ClientPartition(app.input, 0)
    consumer_settings = settings.for_consumer() | {"auto_offset_reset": "earliest"}
    with (
        closing(KafkaConsumer(app.input, **consumer_settings, group_id=app.group)) as consumer,
        closing(KafkaProducer(**settings.for_producer(f"{app.prefix}0"))) as producer,
    ):
        assert [record.value for record in poll(consumer, 30_000)] == [b"reading"]
        producer.init_transactions()
        producer.begin_transaction()
        for topic in app.outputs:
            producer.send(topic, b"result").get(10)
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(1, "", -1)}, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed(partition) == 1


def test_a_missing_right_to_read_is_silent_in_the_client(app: Application) -> None:
    """Why rights are tried at the start."""
    app.grant(*(right for right in app.rights if right[:2] != ("READ", "TOPIC")))
    fill(app, b"reading")
    with closing(KafkaConsumer(app.input, **app.settings().for_consumer(), group_id=app.group)) as consumer:
        assert poll(consumer, 2_000) == []
    (problem,) = app.check()
    assert problem.startswith(f"READ on the input topic {app.input}")


def fill(app: Application, value: bytes) -> None:
    admin = app.broker.login("admin")
    with closing(KafkaProducer(bootstrap_servers=app.broker.bootstrap_servers, **admin)) as producer:
        producer.send(app.input, value, partition=0).get(10)


def poll(consumer: KafkaConsumer, timeout_ms: int) -> list:
    return [record for records in consumer.poll(timeout_ms=timeout_ms).values() for record in records]


def test_topics_that_do_not_exist_are_named(secure_kafka: SecureKafka) -> None:
    settings = KafkaSettings([secure_kafka.bootstrap_servers], common=secure_kafka.login("admin"))
    with closing(KafkaCluster(settings, group_id="a", transactional_prefix="a.")) as cluster:
        problems = cluster.check_rights(inputs=["sensor"], outputs=["est", "a/b"])
        assert [problem.split(". ")[0] for problem in problems] == [
            "the input topic sensor does not exist",
            "the output topic est does not exist",
            "the output topic a/b has a name that Kafka does not allow",
        ]


def test_a_topic_that_may_not_be_seen_or_made(app: Application) -> None:
    with closing(KafkaCluster(app.settings(), group_id="a", transactional_prefix="a.")) as cluster:
        with pytest.raises(ConfigError, match=rf"no right on the topic {app.input}.*--operation Read"):
            cluster.partition_count(app.input)
        with pytest.raises(ConfigError, match=r"topic brand-new may not be created.*--operation Create"):
            cluster.create_topics({"brand-new": 1}, {})
        assert cluster.topic_config(app.input) == {}


@pytest.mark.parametrize(
    "wrong",
    [{"sasl_plain_password": "wrongsecret"}, {"sasl_plain_username": "stranger"}, {"sasl_mechanism": "SCRAM-SHA-256"}],
)
def test_a_wrong_login_is_refused_at_once(secure_kafka: SecureKafka, wrong: dict[str, str]) -> None:
    settings = KafkaSettings([secure_kafka.bootstrap_servers], common=secure_kafka.login() | wrong)
    for connect in (
        lambda: KafkaCluster(settings, group_id="a", transactional_prefix="a."),
        lambda: translated(lambda: KafkaConsumer(**settings.for_consumer())),
        lambda: translated(lambda: KafkaProducer(**settings.for_producer("a.0"))),
    ):
        with pytest.raises(ConfigError, match="does not accept the login") as caught:
            connect()
        assert "secret" not in str(caught.value)


def translated(call) -> None:
    from kstream_worker.bus.kafka_python.errors import translate

    with translate("connecting"):
        call()


def test_no_login_where_one_is_wanted(secure_kafka: SecureKafka) -> None:
    from kstream_worker.errors import Retry

    settings = KafkaSettings([secure_kafka.bootstrap_servers], common={"bootstrap_timeout_ms": 1000})
    with pytest.raises(Retry, match="another security_protocol"):
        KafkaCluster(settings, group_id="a", transactional_prefix="a.")


def test_a_login_without_its_password_is_a_matter_of_configuration(secure_kafka: SecureKafka) -> None:
    common = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "worker"}
    settings = KafkaSettings([secure_kafka.bootstrap_servers], common=common)
    with pytest.raises(ConfigError, match="sasl_plain_password is missing"):
        KafkaCluster(settings, group_id="a", transactional_prefix="a.")


def test_no_log_line_holds_the_password(app: Application, caplog: pytest.LogCaptureFixture) -> None:
    app.grant(*app.rights)
    with caplog.at_level(logging.DEBUG):
        assert app.check() == []
        settings = app.settings()
        with closing(KafkaProducer(**settings.for_producer(f"{app.prefix}0"))) as producer:
            producer.init_transactions()
        KafkaConsumer(**settings.for_consumer()).close()
    assert any(record.levelno == logging.DEBUG and record.name.startswith("kafka.") for record in caplog.records)
    assert "workersecret" not in caplog.text
