"""Settings of the client: what passes through, what is refused, what is never shown. And what each error means."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import errors as client

from kstream_worker.bus.kafka_python.errors import broker_error, classify, translate
from kstream_worker.bus.kafka_python.settings import ELSEWHERE, OBJECTS, KafkaSettings
from kstream_worker.errors import ConfigError, Fatal, Rejoin, Retry

SERVERS = ["127.0.0.1:9092"]


def test_settings_reach_the_clients_that_know_them_converted_to_their_types() -> None:
    settings = KafkaSettings(
        SERVERS,
        common={"request_timeout_ms": "4000", "ssl_check_hostname": "false", "receive_buffer_bytes": "1024"},
        consumer={"max_poll_records": "7", "fetch_min_bytes": 3},
        producer={"linger_ms": 0, "compression_type": "zstd"},
    )
    consumer, producer, admin = settings.for_consumer(), settings.for_producer("app.0"), settings.for_admin()
    for made in (consumer, producer, admin):
        assert made["request_timeout_ms"] == 4000
        assert made["ssl_check_hostname"] is False
        assert made["receive_buffer_bytes"] == 1024
        assert made["bootstrap_servers"] == SERVERS
    assert (consumer["max_poll_records"], consumer["fetch_min_bytes"]) == (7, 3)
    assert (producer["linger_ms"], producer["compression_type"], producer["transactional_id"]) == (0, "zstd", "app.0")
    assert "linger_ms" not in consumer
    assert consumer.keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()
    assert producer.keys() <= KafkaProducer.DEFAULT_CONFIG.keys()
    assert admin.keys() <= KafkaAdminClient.DEFAULT_CONFIG.keys()


def test_correctness_is_not_configurable() -> None:
    settings = KafkaSettings(SERVERS)
    consumer, producer = settings.for_consumer(), settings.for_producer("app.0")
    assert consumer["isolation_level"] == "read_committed"
    assert consumer["enable_auto_commit"] is False
    assert consumer["auto_offset_reset"] == "none"
    assert (producer["acks"], producer["enable_idempotence"]) == ("all", True)
    chain = [producer[f"{name}_timeout_ms"] for name in ("request", "delivery", "transaction")]
    assert chain == sorted(set(chain))


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_not_the_users_to_set_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"`bus\.kafka\.common\.{name}`: cannot be set here: .+"):
        KafkaSettings(SERVERS, common={name: "x"})


@pytest.mark.parametrize("name", sorted(OBJECTS & KafkaConsumer.DEFAULT_CONFIG.keys()))
def test_python_objects_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="takes a Python object"):
        KafkaSettings(SERVERS, consumer={name: "x"})


@pytest.mark.parametrize(
    ("table", "name", "near"),
    [
        ("consumer", "max_poll_record", "max_poll_records"),
        ("consumer", "max.poll.records", "max_poll_records"),
        ("producer", "lingerms", "linger_ms"),
        ("common", "sasl_plain_pasword", "sasl_plain_password"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_right_one(table: str, name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"{table}\.{name}.*did you mean {near}\?"):
        KafkaSettings(SERVERS, **{table: {name: 1}})


def test_a_name_of_the_other_client_is_refused() -> None:
    with pytest.raises(ConfigError, match="knows no such setting"):
        KafkaSettings(SERVERS, consumer={"linger_ms": 5})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("request_timeout_ms", "soon", "a whole number"),
        ("request_timeout_ms", True, "a whole number"),
        ("request_timeout_ms", 1.5, "a whole number"),
        ("ssl_check_hostname", "maybe", "true or false"),
        ("ssl_check_hostname", 1, "true or false"),
        ("security_protocol", True, "one of PLAINTEXT"),
        ("client_id", ["SSL"], "a text"),
        ("api_version", "new", "a version"),
    ],
)
def test_values_of_the_wrong_type_are_refused(name: str, value: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}`: expected {expected}"):
        KafkaSettings(SERVERS, common={name: value})


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    tls = {"security_protocol": "SSL", "ssl_cafile": str(missing)}
    with pytest.raises(ConfigError) as caught:
        KafkaSettings([], common={**tls, "acks": 1}, consumer={"nonsense_xyz": 1})
    message = str(caught.value)
    assert len(message.splitlines()) == 4
    assert "`bus.kafka.bootstrap_servers` is missing" in message
    assert f"cannot read {missing}: No such file" in message


@pytest.mark.parametrize(
    ("common", "words"),
    [
        (
            {"security_protocol": "SASL"},
            "security_protocol`: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL$",
        ),
        ({"security_protocol": "sasl_ssl"}, "security_protocol`: expected one of"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism` is missing: SASL_SSL logs in by one of PLAIN, "),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM"}, "sasl_mechanism`: expected one of PLAIN, SCRAM"),
        ({"sasl_plain_username": "u"}, "sasl_plain_username` is set, but security_protocol is PLAINTEXT, .* log in"),
        ({"security_protocol": "SSL", "sasl_mechanism": "PLAIN"}, "to SASL_PLAINTEXT or SASL_SSL, or leave"),
        (
            {"ssl_cafile": __file__},
            "ssl_cafile` is set, .* does not use TLS: set .*security_protocol` to SSL or SASL_SSL",
        ),
    ],
)
def test_nobody_talks_in_the_clear_by_a_slip(common: dict[str, str], words: str) -> None:
    """The client takes an unknown protocol as PLAINTEXT, and leaves a login that is not switched on unused."""
    with pytest.raises(ConfigError, match=words):
        KafkaSettings(SERVERS, common=common)


@pytest.mark.parametrize(
    "common",
    [
        {"security_protocol": "SSL", "ssl_cafile": __file__, "ssl_certfile": __file__, "ssl_keyfile": __file__},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "u"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"},
        {"ssl_check_hostname": False},
    ],
)
def test_securities_that_are_switched_on_are_taken(common: dict[str, object]) -> None:
    assert KafkaSettings(SERVERS, common=common).for_admin().items() >= common.items()


def test_a_transaction_must_outlive_its_deliveries() -> None:
    with pytest.raises(ConfigError, match=r"delivery_timeout_ms .40000. must be shorter than transaction_timeout_ms"):
        KafkaSettings(SERVERS, producer={"delivery_timeout_ms": 40_000})
    with pytest.raises(ConfigError, match="request_timeout_ms"):
        KafkaSettings(SERVERS, common={"request_timeout_ms": 15_000})
    with pytest.raises(ConfigError, match="max_poll_interval_ms"):
        KafkaSettings(SERVERS, consumer={"session_timeout_ms": 130_000})


def test_readers_wait_longer_than_the_longest_transaction(client) -> None:
    member = client(SERVERS[0], "t", producer={client.TRANSACTION_TIMEOUT: 120_000})
    assert member.bus.transaction_timeout_s == 120.0
    assert member.bus.stall_s == 260.0
    assert client(SERVERS[0], "t").bus.stall_s == 80.0


def test_secrets_do_not_show() -> None:
    secrets = {"sasl_plain_password": "hunter2", "ssl_password": "hunter3", "proxy_url": "http://u:hunter4@proxy"}
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "worker"}
    settings = KafkaSettings(SERVERS, common={**secrets, **login})
    shown = [repr(settings), str(settings.redacted()), f"{settings.for_consumer()} {settings.for_admin()}"]
    for text in shown:
        assert "hunter" not in text
        assert "worker" in text
    assert settings.for_consumer()["sasl_plain_password"] == "hunter2"
    assert settings.for_producer("")["sasl_plain_password"].encode() == b"hunter2"
    assert "hunter" in "".join(str(settings.for_admin()[name]) for name in secrets)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (client.IllegalGenerationError(), Rejoin, "gone on without"),
        (client.UnknownMemberIdError(), Rejoin, "gone on without"),
        (client.CommitFailedError(), Rejoin, "gone on without"),
        (client.FencedInstanceIdError(), Fatal, r"group\.instance\.id"),
        (client.ProducerFencedError(), Fatal, "transactional id"),
        (client.OffsetOutOfRangeError(), Fatal, "retention"),
        (client.SaslAuthenticationFailedError(), ConfigError, "password"),
        (client.TopicAuthorizationFailedError(), ConfigError, "right on a topic"),
        (client.GroupAuthorizationFailedError(), ConfigError, "READ on the consumer group"),
        (client.TransactionalIdAuthorizationFailedError(), ConfigError, "WRITE on the transactional id"),
        (client.UnsupportedCodecError(), ConfigError, "lz4,snappy,zstd"),
        (client.MessageSizeTooLargeError(), ConfigError, r"max\.message\.bytes"),
        (client.OffsetMetadataTooLargeError(), ConfigError, "not acceptable"),
        (ssl.SSLCertVerificationError("self-signed"), ConfigError, "certificate"),
        (FileNotFoundError("ca.pem"), ConfigError, r"cannot be read .*ca\.pem"),
        (client.InvalidProducerEpochError(), Retry, "committed offsets"),
        (client.UnknownTopicOrPartitionError(), Retry, "not there"),
        (client.KafkaConnectionError("refused"), Retry, "refused"),
        (client.KafkaTimeoutError(), Retry, "in time"),
        (ConnectionResetError(), Retry, "reached"),
        (client.NotLeaderForPartitionError(), Retry, "passing"),
        (client.KafkaError("Unexpected error in TxnOffsetCommitResponse: [Error 12] X"), ConfigError, "not acceptable"),
        (ZeroDivisionError("x"), Fatal, "unexpected ZeroDivisionError: x"),
    ],
)
def test_each_error_has_its_meaning(error: Exception, kind: type[Exception], words: str) -> None:
    made = classify(error, "doing this")
    assert type(made) is kind
    with pytest.raises(kind, match=f"doing this: .*{words}"):
        raise made


def test_every_error_of_a_broker_has_a_meaning_and_retries_only_what_may_pass() -> None:
    kinds = {code: type(classify(broker_error(code)(), "x")) for code in client.kafka_errors}
    assert set(kinds.values()) == {Rejoin, Retry, Fatal, ConfigError}
    for code, kind in kinds.items():
        if broker_error(code).retriable:
            assert kind is Retry, code
        if issubclass(broker_error(code), client.AuthorizationError):
            assert kind is ConfigError, code


def test_our_own_errors_pass_as_they_are() -> None:
    mine = Retry("later")
    assert classify(mine, "x") is mine
    with pytest.raises(Retry, match="later"), translate("x"):
        raise mine
    with pytest.raises(Retry, match="reading: no answer in time") as caught, translate("reading"):
        raise client.KafkaTimeoutError
    assert isinstance(caught.value.__cause__, client.KafkaTimeoutError)
