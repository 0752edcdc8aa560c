"""Real brokers for the tests. No test is skipped for want of one: the last resort needs nothing but Python."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from kstream_worker.bus.broker import LocalKafka, SaslPlain

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


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Bootstrap servers: `KSTREAM_TEST_BOOTSTRAP` if set, else Docker if an engine answers, else a local broker."""
    given = os.environ.get("KSTREAM_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with docker_kafka() as address:
        if address is not None:
            yield address
            return
    with LocalKafka() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_admin(kafka: str) -> Iterator[KafkaAdminClient]:
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        yield admin


@pytest.fixture(scope="session")
def topic_maker(kafka_admin: KafkaAdminClient) -> MakeTopic:
    """`make_topic` for fixtures of a wider scope."""
    return topics_of(kafka_admin)


@pytest.fixture
def make_topic(topic_maker: MakeTopic) -> MakeTopic:
    """`make_topic(partitions=1, configs=None, name="t") -> str`: a fresh topic with a unique name."""
    return topic_maker


def topics_of(admin: KafkaAdminClient) -> MakeTopic:
    """A maker of topics on the cluster of `admin`."""
    run, numbers = secrets.token_hex(3), itertools.count()

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None, name: str = "t") -> str:
        topic = f"{name}-{run}-{next(numbers)}"
        admin.create_topics([NewTopic(topic, partitions, -1, topic_configs=dict(configs or {}))])
        return topic

    return make


@pytest.fixture(scope="session")
def _own_kafka() -> Iterator[LocalKafka]:
    with LocalKafka(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}) as broker:
        yield broker


@pytest.fixture
def kafka_process(_own_kafka: LocalKafka) -> Iterator[LocalKafka]:
    """A local broker that a test may freeze or kill; it runs again when the next test wants it."""
    _own_kafka.revive()
    yield _own_kafka
    _own_kafka.thaw_all()


@pytest.fixture
def make_own_topic(_own_kafka: LocalKafka) -> Iterator[MakeTopic]:
    """`make_topic` on the broker of `kafka_process`."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=_own_kafka.bootstrap_servers)) as admin:
        yield topics_of(admin)


@dataclass
class SecureKafka:
    """A broker with SASL/PLAIN and access-control lists; `worker` may do nothing until it is granted."""

    bootstrap_servers: str
    admin: KafkaAdminClient
    make_topic: MakeTopic

    def login(self, user: str = "worker", password: str | None = None) -> dict[str, Any]:
        """Client settings of a user, as a person would write them."""
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": USERS[user] if password is None else password,
        }

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


@pytest.fixture(scope="session")
def _secure_kafka() -> Iterator[SecureKafka]:
    with LocalKafka(security=SaslPlain(USERS)) as broker:
        login = SecureKafka(broker.bootstrap_servers, None, None).login("admin")  # type: ignore[arg-type]
        with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, **login)) as admin:
            yield SecureKafka(broker.bootstrap_servers, admin, topics_of(admin))


@pytest.fixture
def secure_kafka(_secure_kafka: SecureKafka) -> SecureKafka:
    """A secure broker on which the user `worker` has no rights yet."""
    _secure_kafka.revoke_all()
    return _secure_kafka
