"""Settings of the client: our defaults, the user's under the client's names, and those that nobody may change."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from kstream_worker.bus.common.secret import Secret, unreadable
from kstream_worker.bus.common.security import PROTOCOLS, unused
from kstream_worker.bus.common.tables import PATH, Settings, contradictions, unfit
from kstream_worker.bus.kafka_python.connection import WatchfulClient
from kstream_worker.config.redact import is_secret, redact
from kstream_worker.errors import ConfigError

CHAINS = (
    ("request_timeout_ms", "delivery_timeout_ms"),
    ("delivery_timeout_ms", "transaction_timeout_ms"),
)
SESSION = ("session_timeout_ms", "max_poll_interval_ms")
CONSUMER_NAMES = frozenset(KafkaConsumer.DEFAULT_CONFIG)
PRODUCER_NAMES = frozenset(KafkaProducer.DEFAULT_CONFIG)
ADMIN_NAMES = frozenset(KafkaAdminClient.DEFAULT_CONFIG)

COMMON_DEFAULTS: Settings = MappingProxyType(
    {
        "request_timeout_ms": 5_000,
        "retry_backoff_ms": 20,
        "reconnect_backoff_max_ms": 1_000,
        "bootstrap_timeout_ms": 10_000,
        "client_id": "kstream-worker",
    }
)
CONSUMER_DEFAULTS: Settings = MappingProxyType(
    {
        "max_poll_records": 4_000,
        "max_partition_fetch_bytes": 4 << 20,
        "max_poll_interval_ms": 120_000,
        "session_timeout_ms": 30_000,
        "heartbeat_interval_ms": 1_000,  # the others learn of a rebalance by it, and stand still until all have
    }
)
PRODUCER_DEFAULTS: Settings = MappingProxyType(
    {
        "delivery_timeout_ms": 15_000,
        "max_block_ms": 15_000,  # an opening whose answer is lost waits no longer: the next one asks anew
        "transaction_timeout_ms": 30_000,
        "batch_size": 1 << 20,
        "linger_ms": 5,
        "max_request_size": 16 << 20,
    }
)
CONSUMER_FORCED: Settings = MappingProxyType(
    {
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
    }
)
PRODUCER_FORCED: Settings = MappingProxyType(
    {"acks": "all", "enable_idempotence": True, "allow_auto_create_topics": False}
)

ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "bootstrap_servers": "it has its own key, `bus.kafka.bootstrap_servers`",
        "group_id": "it has its own key, `bus.kafka.group_id`",
        "group_instance_id": "it has its own key, `bus.kafka.group_instance_id`",
        "transactional_id": "it is made of `app.id` and the process",
        "isolation_level": "records of aborted transactions must not be read",
        "enable_auto_commit": "positions are committed with the outputs, in one transaction",
        "auto_commit_interval_ms": "positions are committed with the outputs; see `commit.interval`",
        "default_offset_commit_callback": "positions are committed with the outputs",
        "auto_offset_reset": "use `input.start`",
        "partition_assignment_strategy": "the group always uses cooperative-sticky",
        "enable_idempotence": "transactions need it",
        "acks": "transactions need all",
        "retries": "transactions retry until `delivery_timeout_ms`",
        "allow_auto_create_topics": "topics are made by `kstream-worker topics --create`",
        "consumer_timeout_ms": "it only concerns iteration",
        "exclude_internal_topics": "it only concerns topic patterns",
        "partitioner": "outputs go to the partition of their input",
        "metrics_enabled": "`/metrics` has what is needed, and the client's own take time",
    }
)
OBJECTS = frozenset(
    {
        "kafka_client",
        "key_deserializer",
        "key_serializer",
        "metric_group_prefix",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_sample_window_ms",
        "sasl_oauth_token_provider",
        "selector",
        "socket_options",
        "ssl_context",
        "value_deserializer",
        "value_serializer",
    }
)
# The client takes any text as a protocol, and one that it does not know as PLAINTEXT.
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "security_protocol": PROTOCOLS,
        "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "AWS_MSK_IAM"),
    }
)
FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
HIDDEN_TOO = ("proxy_url", "socks5_proxy")  # may hold a password inside


@dataclass(frozen=True)
class KafkaSettings:
    """Checked settings of all clients of one process.

    Args:
        bootstrap_servers: `host:port` of some brokers.
        common: settings of consumer and producer alike, under the client's names.
        consumer: settings of consumers alone.
        producer: settings of the producer alone.

    Raises:
        ConfigError: unknown names (with the nearest right one), names that are not the user's to set, values of the
            wrong type or that contradict one another.
    """

    bootstrap_servers: Sequence[str]
    common: Settings = field(default_factory=dict)
    consumer: Settings = field(default_factory=dict)
    producer: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables = (
            ("common", self.common, CONSUMER_NAMES | PRODUCER_NAMES),
            ("consumer", self.consumer, CONSUMER_NAMES),
            ("producer", self.producer, PRODUCER_NAMES),
        )
        problems = [*unfit(self.bootstrap_servers, tables, _problem), *unused(self.common), *_no_mechanism(self.common)]
        if not problems:
            problems = [*contradictions(self.for_consumer(), self.for_producer(""), CHAINS, SESSION)]
        if problems:
            raise ConfigError("\n".join(problems))

    def for_consumer(self) -> dict[str, Any]:
        """Arguments of `KafkaConsumer`, of any kind; the group's are added by those who join one."""
        chosen = {**COMMON_DEFAULTS, **CONSUMER_DEFAULTS, **self.common, **self.consumer}
        return self._arguments(chosen, CONSUMER_NAMES) | {**CONSUMER_FORCED, "metrics_enabled": False}

    def for_producer(self, transactional_id: str) -> dict[str, Any]:
        """Arguments of `KafkaProducer`."""
        chosen = {**COMMON_DEFAULTS, **PRODUCER_DEFAULTS, **self.common, **self.producer}
        forced = {**PRODUCER_FORCED, "metrics_enabled": False, "transactional_id": transactional_id}
        return self._arguments(chosen, PRODUCER_NAMES) | forced

    def for_admin(self) -> dict[str, Any]:
        """Arguments of `KafkaAdminClient`."""
        return self._arguments({**COMMON_DEFAULTS, **self.common}, ADMIN_NAMES)

    def user(self) -> str | None:
        """Name of the login, where there is one."""
        name = self.common.get("sasl_plain_username")
        return None if name is None else str(name)

    def redacted(self) -> dict[str, object]:
        """All settings for logs, without secrets."""
        shown = {"consumer": self.for_consumer(), "producer": self.for_producer(""), "admin": self.for_admin()}
        return {name: _redact(settings) for name, settings in shown.items()}

    def __repr__(self) -> str:
        return f"KafkaSettings({self.redacted()})"

    def _arguments(self, chosen: Settings, names: frozenset[str]) -> dict[str, Any]:
        arguments = {name: _convert(name, value) for name, value in chosen.items() if name in names}
        return arguments | {"bootstrap_servers": list(self.bootstrap_servers), "kafka_client": WatchfulClient}


def _redact(settings: Settings) -> dict[str, object]:
    kept = {name: value for name, value in settings.items() if name != "kafka_client"}
    hidden = {name: "***" for name in HIDDEN_TOO if kept.get(name)}
    redacted = redact(kept | hidden)
    return dict(redacted) if isinstance(redacted, Mapping) else {}


def _default(name: str) -> object:
    for client in (KafkaConsumer, KafkaProducer, KafkaAdminClient):
        if name in client.DEFAULT_CONFIG:
            return client.DEFAULT_CONFIG[name]
    return None


def _problem(name: str, value: object, names: frozenset[str]) -> str:
    if name in ELSEWHERE:
        return f"cannot be set here: {ELSEWHERE[name]}"
    if name not in names:
        near = difflib.get_close_matches(name.replace(".", "_"), names - OBJECTS - ELSEWHERE.keys(), 1)
        return "kafka-python knows no such setting" + (f"; did you mean {near[0]}?" if near else "")
    if name in OBJECTS:
        return "takes a Python object, which a configuration cannot give"
    try:
        _convert(name, value)
    except (TypeError, ValueError):
        return f"expected {_kind(name)}"
    if name in FILES and value:
        return unreadable(Path(str(value)))
    return ""


def _no_mechanism(common: Settings) -> Iterator[str]:
    """The client itself would fail inside each connection, which looks like a broker that is away."""
    protocol = str(common.get("security_protocol"))
    if protocol in PROTOCOLS and "SASL" in protocol and not common.get("sasl_mechanism"):
        choices = ", ".join(CHOICES["sasl_mechanism"])
        yield f"`{PATH}.common.sasl_mechanism` is missing: {protocol} logs in by one of {choices}"


def _kind(name: str) -> str:
    default = _default(name)
    if name in CHOICES:
        return f"one of {', '.join(CHOICES[name])}"
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, int) or name.endswith("_bytes"):
        return "a whole number"
    return "a version such as 3.9" if name == "api_version" else "a text"


def _convert(name: str, value: object) -> object:
    """A value as the client wants it; configuration files and environment variables know fewer types.

    Raises:
        ValueError: not convertible.
        TypeError: not convertible.
    """
    default = _default(name)
    if value is None:
        return None
    convert: Callable[[Any], object]
    if name == "api_version":
        convert = _version
    elif isinstance(default, bool):
        convert = _bool
    elif isinstance(default, int) or name.endswith("_bytes"):
        convert = _int
    else:
        convert = _text
    converted = convert(value)
    if name in CHOICES and converted not in CHOICES[name]:
        raise ValueError
    return Secret(converted) if _hidden(name) else converted


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in ("true", "false"):
        raise ValueError
    return value.lower() == "true"


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return str(value)


def _hidden(name: str) -> bool:
    return is_secret(name) or name in HIDDEN_TOO


def _version(value: object) -> tuple[int, ...]:
    parts = value if isinstance(value, list | tuple) else str(value).split(".")
    return tuple(int(part) for part in parts)
