"""Names of librdkafka's settings: which client each is for, which are ours, which were meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "metadata.broker.list": "bootstrap.servers",
        "sasl.mechanisms": "sasl.mechanism",
        "delivery.timeout.ms": "message.timeout.ms",
        "max.partition.fetch.bytes": "fetch.message.max.bytes",
        "queue.buffering.max.ms": "linger.ms",
        "compression.codec": "compression.type",
        "request.required.acks": "acks",
        "message.send.max.retries": "retries",
        "auto.commit.enable": "enable.auto.commit",
        "max.in.flight": "max.in.flight.requests.per.connection",
    }
)

ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "bootstrap.servers": "it has its own key, `bus.kafka.bootstrap_servers`",
        "group.id": "it has its own key, `bus.kafka.group_id`",
        "group.instance.id": "it has its own key, `bus.kafka.group_instance_id`",
        "transactional.id": "it is made of `app.id` and the process",
        "isolation.level": "records of aborted transactions must not be read",
        "enable.auto.commit": "positions are committed with the outputs, in one transaction",
        "enable.auto.offset.store": "positions are committed with the outputs, in one transaction",
        "auto.commit.interval.ms": "positions are committed with the outputs; see `commit.interval`",
        "offset.store.method": "positions are committed with the outputs",
        "offset.store.path": "positions are committed with the outputs",
        "offset.store.sync.interval.ms": "positions are committed with the outputs",
        "auto.offset.reset": "use `input.start`",
        "partition.assignment.strategy": "the group always uses cooperative-sticky",
        "group.protocol": "the group always uses the classic protocol with cooperative-sticky",
        "group.remote.assignor": "the group always uses cooperative-sticky",
        "enable.partition.eof": "the worker asks for the ends that it needs",
        "enable.idempotence": "transactions need it",
        "enable.gapless.guarantee": "transactions give it",
        "acks": "transactions need all",
        "retries": "transactions retry until `message.timeout.ms`",
        "allow.auto.create.topics": "topics are made by `kstream-worker topics --create`",
        "partitioner": "outputs go to the partition of their input",
        "delivery.report.only.error": "every delivery is checked by the worker",
        "max.poll.records": "a poll is as large as the worker wants it",
        "statistics.interval.ms": "`/metrics` has what is needed, and the client's own take time",
        "log.queue": "the client's log lines go through the worker's log",
    }
)

OBJECTS = frozenset(
    {
        "background_event_cb",
        "default.topic.config",
        "error_cb",
        "logger",
        "oauth_cb",
        "on_commit",
        "on_delivery",
        "stats_cb",
        "throttle_cb",
        "ssl.certificate.verify_cb",
    }
)

FILES = frozenset(
    {
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.crl.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "sasl.kerberos.keytab",
    }
)

CONSUMER_ONLY = frozenset(
    {
        "check.crcs",
        "coordinator.query.interval.ms",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    }
)
PRODUCER_ONLY = frozenset(
    {
        "batch.num.messages",
        "batch.size",
        "compression.level",
        "compression.type",
        "linger.ms",
        "message.timeout.ms",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queuing.strategy",
        "request.timeout.ms",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
    }
)
OFTEN_SET = frozenset(
    {
        "broker.address.family",
        "client.id",
        "client.rack",
        "debug",
        "enable.ssl.certificate.verification",
        "log_level",
        "message.max.bytes",
        "metadata.max.age.ms",
        "receive.message.max.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "topic.metadata.refresh.interval.ms",
    }
)


def canonical(name: str) -> str:
    """The one name of a setting.

    Environment variables have no dots in their names, so `sasl_password` stands for `sasl.password`.
    """
    if name in OBJECTS or name == "log_level":
        return name
    dotted = name.replace("_", ".")
    return ALIASES.get(dotted, dotted)


def nearest(name: str) -> str:
    """The known name that was most likely meant; empty where none is near."""
    known = OFTEN_SET | CONSUMER_ONLY | PRODUCER_ONLY
    return next(iter(difflib.get_close_matches(name, known, 1)), "")
