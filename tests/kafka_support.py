"""Helpers of the tests on a real broker: topics, a broker in a container, a broker with access-control lists."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

MakeTopic = Callable[..., str]
USERS = {"admin": "adminsecret", "worker": "workersecret"}


def docker_answers() -> bool:
    """Whether a Docker engine listens where its clients would look for it."""
    kind, _, place = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").partition("://")
    with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as probe:
        probe.settimeout(5)
        host, _, port = place.partition(":")
        try:
            probe.connect(place if kind == "unix" else (host, int(port or 2375)))
        except (OSError, ValueError):
            return False
    return True


@contextlib.contextmanager
def docker_kafka() -> Iterator[str | None]:
    """A broker in a container; None where no Docker engine answers or the image cannot be had."""
    if not docker_answers():
        yield None
        return
    from docker.errors import DockerException

    with contextlib.ExitStack() as stack:
        try:
            address = _start_container(stack)
        except (DockerException, OSError):
            address = None
        yield address


def _start_container(stack: contextlib.ExitStack) -> str:
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer().with_kraft()
    for name, value in {
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "3",
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
    }.items():
        container.with_env(name, value)
    address: str = stack.enter_context(container).get_bootstrap_server()
    return address


def topics_of(admin: KafkaAdminClient) -> MakeTopic:
    """A maker of topics on the cluster of `admin`.

    They keep their records, unless told otherwise: many are stamped in 1970, and a broker deletes what is too old for
    the first time half a minute after its start, whatever test is running then.
    """
    run, numbers = secrets.token_hex(3), itertools.count()

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None, name: str = "t") -> str:
        topic = f"{name}-{run}-{next(numbers)}"
        wanted = {topic: {"num_partitions": partitions, "configs": {"retention.ms": "-1", **(configs or {})}}}
        admin.create_topics(wanted, wait_for_metadata=True)
        return topic

    return make


def login(user: str, password: str | None = None) -> dict[str, Any]:
    """Client settings of a user, as a person would write them."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": USERS[user] if password is None else password,
    }


@dataclass
class SecureKafka:
    """A broker with SASL/PLAIN and access-control lists; `worker` may do nothing until it is granted."""

    bootstrap_servers: str
    admin: KafkaAdminClient
    make_topic: MakeTopic

    def login(self, user: str = "worker", password: str | None = None) -> dict[str, Any]:
        """Client settings of a user, as a person would write them."""
        return login(user, password)

    def grant(self, operation: str, resource: str, name: str, *, prefixed: bool = False, user: str = "worker") -> None:
        """Allow one operation on a `TOPIC`, `GROUP` or `TRANSACTIONAL_ID`."""
        pattern = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
        acl = ACL(
            f"User:{user}",
            "*",
            ACLOperation[operation],
            ACLPermissionType.ALLOW,
            ResourcePattern(ResourceType[resource], name, pattern),
        )
        failed = self.admin.create_acls([acl])["failed"]
        assert not failed, failed

    def revoke_all(self, user: str = "worker") -> None:
        """Take all rights of a user away."""
        everything = ACLFilter(
            f"User:{user}",
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        self.admin.delete_acls([everything])
