"""Settings of librdkafka: our defaults, the user's under the client's names, and those that nobody may change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaException, Producer

from kstream_worker.bus.common.secret import Secret, unreadable
from kstream_worker.bus.common.security import unused
from kstream_worker.bus.common.tables import Settings, contradictions, unfit
from kstream_worker.bus.confluent.errors import cause_of
from kstream_worker.bus.confluent.properties import (
    CONSUMER_ONLY,
    ELSEWHERE,
    FILES,
    OBJECTS,
    PRODUCER_ONLY,
    canonical,
    nearest,
)
from kstream_worker.config.redact import is_secret, redact
from kstream_worker.errors import ConfigError

CHAINS = (
    ("request.timeout.ms", "message.timeout.ms"),
    ("message.timeout.ms", "transaction.timeout.ms"),
    ("socket.timeout.ms", "transaction.timeout.ms"),
)
SESSION = ("session.timeout.ms", "max.poll.interval.ms")
PROBE = "kstream.no.such.setting"  # ends a trial of settings before any client is made

COMMON_DEFAULTS: Settings = MappingProxyType(
    {
        "client.id": "kstream-worker",
        "socket.timeout.ms": 5_000,
        "socket.nagle.disable": True,
        "retry.backoff.ms": 20,
        "reconnect.backoff.max.ms": 1_000,
        "log.connection.close": False,
    }
)
CONSUMER_DEFAULTS: Settings = MappingProxyType(
    {
        "fetch.queue.backoff.ms": 1,  # by default a fast consumer stands still for a second at a time
        "fetch.message.max.bytes": 4 << 20,
        "fetch.error.backoff.ms": 100,
        "check.crcs": True,
        "max.poll.interval.ms": 120_000,
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 1_000,  # the others learn of a rebalance by it, and stand still until all have
    }
)
PRODUCER_DEFAULTS: Settings = MappingProxyType(
    {
        "request.timeout.ms": 5_000,
        "message.timeout.ms": 15_000,
        "transaction.timeout.ms": 30_000,
        "batch.num.messages": 100_000,
        "linger.ms": 5,
        "message.max.bytes": 16 << 20,
        "queue.buffering.max.messages": 0,  # no limit: the outbox has one
        "queue.buffering.max.kbytes": (2 << 20) - 1,
    }
)
CONSUMER_FORCED: Settings = MappingProxyType(
    {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
    }
)
PRODUCER_FORCED: Settings = MappingProxyType(
    {"acks": "all", "enable.idempotence": True, "delivery.report.only.error": True}
)


@dataclass(frozen=True)
class ConfluentSettings:
    """Checked settings of all clients of one process.

    Args:
        bootstrap_servers: `host:port` of some brokers.
        common: settings of consumer and producer alike, under librdkafka's names.
        consumer: settings of consumers alone.
        producer: settings of the producer alone.

    Raises:
        ConfigError: unknown names (with the nearest right one), names that are not the user's to set, values that
            librdkafka refuses or that contradict one another.
    """

    bootstrap_servers: Sequence[str]
    common: Settings = field(default_factory=dict)
    consumer: Settings = field(default_factory=dict)
    producer: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in ("common", "consumer", "producer"):
            object.__setattr__(self, table, dict(_flat(getattr(self, table))))
        tables = (
            ("common", self.common, frozenset[str]()),
            ("consumer", self.consumer, PRODUCER_ONLY),
            ("producer", self.producer, CONSUMER_ONLY),
        )
        problems = [*unfit(self.bootstrap_servers, tables, _problem), *unused(self.common)]
        if not problems:
            problems = [*contradictions(self.for_consumer(), self.for_producer(""), CHAINS, SESSION)]
        if problems:
            raise ConfigError("\n".join(problems))

    def for_consumer(self) -> dict[str, Any]:
        """Configuration of a `Consumer`, of any kind; the group's is added by those who join one."""
        chosen = {**COMMON_DEFAULTS, **CONSUMER_DEFAULTS, **self.common, **self.consumer}
        return self._arguments(chosen, PRODUCER_ONLY) | dict(CONSUMER_FORCED)

    def for_producer(self, transactional_id: str) -> dict[str, Any]:
        """Configuration of a transactional `Producer`."""
        chosen = {**COMMON_DEFAULTS, **PRODUCER_DEFAULTS, **self.common, **self.producer}
        return self._arguments(chosen, CONSUMER_ONLY) | {**PRODUCER_FORCED, "transactional.id": transactional_id}

    def for_admin(self) -> dict[str, Any]:
        """Configuration of an `AdminClient`."""
        return self._arguments({**COMMON_DEFAULTS, **self.common}, CONSUMER_ONLY | PRODUCER_ONLY)

    def user(self) -> str | None:
        """Name of the login, where there is one."""
        name = self.common.get("sasl.username")
        return None if name is None else str(name)

    def redacted(self) -> dict[str, object]:
        """All settings for logs, without secrets."""
        shown = {"consumer": self.for_consumer(), "producer": self.for_producer(""), "admin": self.for_admin()}
        return {name: redact(settings) for name, settings in shown.items()}

    def __repr__(self) -> str:
        return f"ConfluentSettings({self.redacted()})"

    def _arguments(self, chosen: Settings, foreign: frozenset[str]) -> dict[str, Any]:
        arguments = {name: _hide(name, value) for name, value in chosen.items() if name not in foreign}
        return arguments | {"bootstrap.servers": ",".join(self.bootstrap_servers)}


def _flat(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their one name. TOML and YAML read `sasl.username = ...` without quotes as a table in a table."""
    for name, value in settings.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")
        else:
            yield canonical(path), value


def _hide(name: str, value: object) -> object:
    return Secret(value) if is_secret(name) and isinstance(value, str) else value


def _problem(name: str, value: object, foreign: frozenset[str]) -> str:
    if name in ELSEWHERE:
        return f"cannot be set here: {ELSEWHERE[name]}"
    if name in OBJECTS:
        return "takes a Python object, which a configuration cannot give"
    if name in foreign:
        return "is no setting of this client; it belongs to the other table"
    if value is None or not isinstance(value, str | int | float):
        return "expected a text, a number, true or false"
    if name in FILES and value:
        return unreadable(Path(str(value)))
    return _refusal(name, value)


def _refusal(name: str, value: str | float) -> str:
    """What librdkafka says to this setting alone; empty when it takes it. It is asked without making a client."""
    try:
        Producer({name: value, PROBE: ""})
    except KafkaException as error:
        said = cause_of(error).str().strip()
    except (TypeError, ValueError) as error:
        said = str(error)
    if PROBE in said:
        return ""
    if "No such configuration property" in said:
        near = nearest(name)
        return "librdkafka knows no such setting" + (f"; did you mean {near}?" if near else "")
    return f"librdkafka refuses it: {said if not is_secret(name) else 'not acceptable'}"
