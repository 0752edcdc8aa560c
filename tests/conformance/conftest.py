"""The buses that the suite runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from bus_harness import ConfluentHarness, FakeHarness, FilesHarness, Harness, KafkaHarness, Process
from kafka import KafkaProducer

from kstream_worker.bus.fake import CommitFault

DOUBTS = (CommitFault.UNKNOWN_COMMITTED, CommitFault.UNKNOWN_ABORTED, CommitFault.UNAVAILABLE)
FAKES = {f"fake-{fault.value}": fault for fault in DOUBTS}
FILES = ("jsonl", "csv")
KAFKA = {"kafka-python": KafkaHarness, "confluent": ConfluentHarness}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test of the suite runs on every bus; those that want a `broker` on brokers alone."""
    if "harness" in metafunc.fixturenames:
        files = () if "broker" in metafunc.fixturenames else FILES
        buses = [*FAKES, *files, *(pytest.param(client, marks=pytest.mark.kafka) for client in KAFKA)]
        metafunc.parametrize("harness", buses, indirect=True)


@pytest.fixture(scope="session")
def plain_producer(kafka: str) -> Iterator[KafkaProducer]:
    """Fills input topics, without transactions."""
    with closing(KafkaProducer(bootstrap_servers=kafka, linger_ms=0)) as producer:
        yield producer


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    """A fresh bus."""
    if request.param in FILES:
        return FilesHarness(tmp_path, request.param)
    if request.param in KAFKA:
        servers, make_topic = request.getfixturevalue("kafka"), request.getfixturevalue("make_topic")
        return KAFKA[request.param](servers, make_topic, request.getfixturevalue("plain_producer"))
    return FakeHarness(FAKES[request.param])


@pytest.fixture
def broker(harness: Harness) -> Harness:
    """A fresh bus that has topics, record times and readers, and takes any bytes as records."""
    assert harness.is_broker
    return harness


@pytest.fixture
def running(harness: Harness) -> Iterator[Callable[..., Process]]:
    """Starts processes that are stopped after the test."""
    processes: list[Process] = []

    def start(identity: str = "app-0", partitions: int = 2) -> Process:
        processes.append(Process.running(harness, identity, partitions))
        return processes[-1]

    yield start
    for process in processes:
        process.stop()
