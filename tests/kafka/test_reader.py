"""Readers on the real broker: what they return, and how far its position goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.structs import TopicPartition as ClientPartition
from kafka_member import fill, until

from kstream_worker.bus.kafka_python.cluster import KafkaCluster
from kstream_worker.bus.kafka_python.reader import KafkaReader
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.errors import Fatal, Retry
from kstream_worker.records import Batch, End, TopicPartition

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(kafka: str) -> KafkaSettings:
    return KafkaSettings(kafka.split(","))


@pytest.fixture
def reader(settings: KafkaSettings) -> Iterator[KafkaReader]:
    with closing(KafkaReader(settings)) as reader:
        yield reader


def read_until(reader: KafkaReader, ends: dict[TopicPartition, int]) -> list[Batch]:
    """All batches until each position has reached its end."""
    batches: list[Batch] = []
    deadline = time.monotonic() + 30
    while any(reader.position(partition) < end for partition, end in ends.items()):
        assert time.monotonic() < deadline, {partition: reader.position(partition) for partition in ends}
        batches += reader.poll(0.1)
    return batches


def test_columns_of_several_partitions_in_order(kafka: str, reader: KafkaReader, make_topic) -> None:
    topic = make_topic(2)
    headers = [("a", b"1"), ("a", b"2")]
    with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
        for number in range(6):
            producer.send(topic, str(number).encode(), b"key", headers, partition=number % 2, timestamp_ms=number)
        producer.send(topic, None, b"gone", partition=0, timestamp_ms=9)
        producer.send(topic, b"no key", partition=0, timestamp_ms=10)
        producer.flush()
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader.assign({first: 1, second: 0})
    assert (reader.position(first), reader.position(second)) == (1, 0)
    batches = read_until(reader, {first: 5, second: 3})
    rows = {partition: [] for partition in (first, second)}
    for batch in batches:
        rows[batch.partition] += zip(
            batch.offsets, batch.timestamps, batch.keys, batch.values, map(list, batch.headers), strict=True
        )
        assert batch.next_offset == batch.offsets[-1] + 1
        assert batch.leader_epoch >= 0
    assert rows[first] == [
        (1, 2, b"key", b"2", headers),
        (2, 4, b"key", b"4", headers),
        (3, 9, b"gone", None, []),
        (4, 10, None, b"no key", []),
    ]
    assert rows[second] == [(n, 2 * n + 1, b"key", str(2 * n + 1).encode(), headers) for n in range(3)]


def test_the_position_passes_markers_and_aborted_records_but_not_an_open_transaction(
    kafka: str, settings: KafkaSettings, reader: KafkaReader, make_topic
) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    with (
        closing(KafkaCluster(settings, group_id="g", transactional_prefix="g.")) as cluster,
        closing(KafkaProducer(bootstrap_servers=kafka, transactional_id=f"{topic}-w")) as producer,
    ):
        producer.init_transactions()
        transact(producer, topic, b"kept", end=producer.commit_transaction)
        transact(producer, topic, b"aborted", end=producer.abort_transaction)
        transact(producer, topic, b"open", end=lambda: None)
        reader.assign({partition: 0})
        stable, high = (cluster.end([partition], end)[partition] for end in (End.STABLE, End.HIGH))
        assert (stable, high) == (4, 5)
        batches = read_until(reader, {partition: stable})
        assert [value for batch in batches for value in batch.values] == [b"kept"]
        for _ in range(5):
            assert reader.poll(0.1) == []
        assert reader.position(partition) == stable
        producer.abort_transaction()
        assert read_until(reader, {partition: high + 1}) == []


def transact(producer: KafkaProducer, topic: str, value: bytes, end) -> None:
    producer.begin_transaction()
    producer.send(topic, value, partition=0).get(10)
    end()


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_compressed_topics_are_readable(kafka: str, reader: KafkaReader, make_topic, codec: str) -> None:
    topic = make_topic()
    values = [f"value {number} ".encode() * 50 for number in range(100)]
    with closing(KafkaProducer(bootstrap_servers=kafka, compression_type=codec, linger_ms=50)) as producer:
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush()
    partition = TopicPartition(topic, 0)
    reader.assign({partition: 0})
    batches = read_until(reader, {partition: 100})
    assert [value for batch in batches for value in batch.values] == values


def test_records_that_retention_took_are_fatal(
    kafka: str, kafka_admin: KafkaAdminClient, reader: KafkaReader, make_topic
) -> None:
    topic = make_topic()
    with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
        for _ in range(3):
            producer.send(topic, b"x", partition=0).get(10)
    kafka_admin.delete_records({ClientPartition(topic, 0): 2})
    reader.assign({TopicPartition(topic, 0): 0})
    with pytest.raises(Fatal, match="retention"):
        read_until(reader, {TopicPartition(topic, 0): 3})


class FailsOnce:
    """A client whose first call that finds records raises, after it has taken them."""

    def __init__(self, inner: Any, name: str, error: Exception) -> None:
        self._inner, self._name, self._error = inner, name, error
        self.taken: Any = None

    def __getattr__(self, name: str) -> Any:
        return self._call if name == self._name and not self.taken else getattr(self._inner, name)

    def _call(self, *arguments: Any, **more: Any) -> Any:
        self.taken = getattr(self._inner, self._name)(*arguments, **more)
        if self.taken:
            raise self._error
        return self.taken


def test_records_that_a_poll_took_before_it_failed_come_again(client, kafka, make_topic) -> None:
    """Left out of a restore, they would be models that are older than the header says, or missing."""
    topic = make_topic(configs={"retention.ms": "-1"})
    fill(kafka, topic, [b"a", b"b", b"c"])
    partition = TopicPartition(topic, 0)
    with closing(client(kafka, topic).bus.reader()) as reader:
        reader.assign({partition: 0})
        method = "poll" if isinstance(reader, KafkaReader) else "consume"
        reader._consumer = failing = FailsOnce(reader._consumer, method, client.PASSING)
        with pytest.raises(Retry):
            until(lambda: reader.poll(0.1) is None)
        assert failing.taken
        assert reader.position(partition) == 0
        batches = read_until(reader, {partition: 3})
    assert [offset for batch in batches for offset in batch.offsets] == [0, 1, 2]


def test_the_position_of_a_stranger_is_fatal(reader: KafkaReader) -> None:
    with pytest.raises(Fatal, match=r"strange\[3\].*not assigned"):
        reader.position(TopicPartition("strange", 3))


def test_no_broker_at_the_start() -> None:
    settings = KafkaSettings(["127.0.0.1:1"], common={"bootstrap_timeout_ms": 500})
    with pytest.raises(Retry, match=r"127\.0\.0\.1:1"):
        KafkaReader(settings)
