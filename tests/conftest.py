"""Real brokers for the tests. No test is skipped for want of one: the last resort needs nothing but Python."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka_support import USERS, MakeTopic, SecureKafka, docker_kafka, login, topics_of
from plugin_support import install

from kstream_worker.bus.broker import LocalKafka, SaslPlain


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two processes run the tests: one those on brokers, which mostly wait, the other the rest, file by file."""
    for item in items:
        on_broker = item.get_closest_marker("kafka") or item.path.parent.name in ("kafka", "conformance")
        item.add_marker(pytest.mark.xdist_group("kafka" if on_broker else item.path.name))


@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package of `tests/plugin` is installed."""
    return install(tmp_path_factory.mktemp("plugin"))


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


@pytest.fixture(scope="session")
def _secure_kafka() -> Iterator[SecureKafka]:
    with LocalKafka(security=SaslPlain(USERS)) as broker:
        admin_client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, **login("admin"))
        with contextlib.closing(admin_client) as admin:
            yield SecureKafka(broker.bootstrap_servers, admin, topics_of(admin))


@pytest.fixture
def secure_kafka(_secure_kafka: SecureKafka) -> SecureKafka:
    """A secure broker on which the user `worker` has no rights yet."""
    _secure_kafka.revoke_all()
    return _secure_kafka
