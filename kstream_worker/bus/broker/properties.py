"""`server.properties` of a small local broker: quick to start, on 127.0.0.1 alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kstream_worker.errors import ConfigError

HOST = "127.0.0.1"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Ports(NamedTuple):
    """Ports of one broker."""

    client: int
    controller: int


@dataclass(frozen=True, slots=True)
class SaslPlain:
    """Clients log in with SASL/PLAIN, and may do only what access-control lists allow them.

    Attributes:
        users: names and passwords; letters and digits only.
        admin: the one of them who may do everything; brokers talk to each other under this name.
    """

    users: Mapping[str, str]
    admin: str = "admin"

    def __post_init__(self) -> None:
        if self.admin not in self.users:
            raise ConfigError(f"the users of a local broker must include its admin, {self.admin!r}")
        if not all(word.isalnum() for pair in self.users.items() for word in pair):
            raise ConfigError("names and passwords of a local broker's users are letters and digits only")


def server_properties(
    node: int,
    ports: Sequence[Ports],
    folder: Path,
    security: SaslPlain | None,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """All settings of broker `node` (counted from 0) of a cluster of `len(ports)`; `settings` win."""
    protocol = "SASL_PLAINTEXT" if security else "PLAINTEXT"
    mine = ports[node]
    voters = ",".join(f"{i + 1}@{HOST}:{p.controller}" for i, p in enumerate(ports))
    properties = {
        "node.id": str(node + 1),
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "listeners": f"CLIENT://{HOST}:{mine.client},CONTROLLER://{HOST}:{mine.controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{mine.client}",
        "listener.security.protocol.map": f"CLIENT:{protocol},CONTROLLER:{protocol}",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder),
        **_small_and_quick(len(ports)),
    }
    if security:
        properties |= _sasl(security)
    return {**properties, **settings}


def _small_and_quick(brokers: int) -> dict[str, str]:
    replicas = str(min(brokers, 3))
    in_sync = "2" if brokers >= 3 else "1"
    return {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": "3",  # 50 by default, each a folder with four files
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        "log.index.size.max.bytes": str(1 << 20),  # preallocated per segment, 10 MiB by default
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
    }


def _sasl(security: SaslPlain) -> dict[str, str]:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = " ".join(f'user_{name}="{password}"' for name, password in security.users.items())
    jaas = f'{login} username="{security.admin}" password="{security.users[security.admin]}" {users};'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": jaas,
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{security.admin}",
        "allow.everyone.if.no.acl.found": "false",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file that only this user can read: it may hold passwords."""
    path.touch(mode=0o600)
    lines = (f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
