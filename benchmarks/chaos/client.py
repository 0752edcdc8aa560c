"""What the harness asks of the cluster, with another client library than the default worker's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

_ANSWER_S = 5.0
_READ_S = 180.0


class Record(NamedTuple):
    """A record as a read_committed consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def consumer(bootstrap: str, group: str = "chaos-harness", **settings: object) -> Consumer:
    """A consumer that never joins a group."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            **settings,
        }
    )


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def read_partition(bootstrap: str, topic: str, partition: int) -> Iterator[Record]:
    """All committed records of a partition up to its present end.

    Raises:
        RuntimeError: the end was not reached in time.
    """
    reader = consumer(bootstrap)
    try:
        low, _ = watermarks(reader, topic, partition)
        reader.assign([TopicPartition(topic, partition, low)])
        deadline = time.monotonic() + _READ_S
        while time.monotonic() < deadline:
            for message in reader.consume(5000, 0.1):
                error = message.error()
                if error is None:
                    yield Record(
                        message.offset() or 0,
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),  # type: ignore[arg-type]
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
        raise RuntimeError(f"{topic}[{partition}] could not be read to its end in {_READ_S:.0f} s")
    finally:
        reader.close()


def watermarks(reader: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """(first offset, high watermark)."""
    found = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
    if found is None:
        raise RuntimeError(f"{topic}[{partition}]: no watermarks in time")
    return found


def ends(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """High watermarks by partition."""
    reader = consumer(bootstrap)
    try:
        return {p: watermarks(reader, topic, p)[1] for p in range(partitions)}
    finally:
        reader.close()


def beginnings(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """First offsets by partition."""
    reader = consumer(bootstrap)
    try:
        return {p: watermarks(reader, topic, p)[0] for p in range(partitions)}
    finally:
        reader.close()


def committed(reader: Consumer, topic: str, partitions: int, timeout_s: float = 2.0) -> dict[int, int]:
    """Committed positions of the reader's group; partitions without one are left out.

    Raises:
        KafkaException: the coordinator does not answer.
    """
    found = reader.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=timeout_s)
    for each in found:
        if each.error:
            raise KafkaException(each.error)
    return {each.partition: each.offset for each in found if each.offset >= 0}


def delete_records(bootstrap: str, topic: str, before: dict[int, int]) -> None:
    """Delete the records below these offsets, as retention would."""
    client = admin(bootstrap)  # held: its futures end with it
    wanted = [TopicPartition(topic, p, offset) for p, offset in before.items()]
    for future in client.delete_records(wanted).values():
        future.result(30.0)


def set_policy(bootstrap: str, topic: str, policy: str) -> None:
    """Set a topic's `cleanup.policy`."""
    client = admin(bootstrap)
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in client.incremental_alter_configs([resource]).values():
        future.result(30.0)


def create_topic(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str], replicas: int) -> None:
    """Create a topic and wait until it is there."""
    client = admin(bootstrap)
    new = NewTopic(topic, partitions, replicas, config=dict(config))
    for future in client.create_topics([new], operation_timeout=30.0).values():
        future.result(40.0)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    client = admin(bootstrap)
    for future in client.delete_topics([topic], operation_timeout=30.0).values():
        future.result(40.0)
    deadline = time.monotonic() + 30.0
    while topic in client.list_topics(timeout=_ANSWER_S).topics:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} is still there 30 s after it was deleted")
        time.sleep(0.2)


def replication(bootstrap: str) -> dict[str, tuple[int, int]]:
    """(fewest replicas, fewest replicas in sync) over the partitions of each topic, internal ones included."""
    topics = admin(bootstrap).list_topics(timeout=_ANSWER_S).topics
    return {
        name: (
            min(len(p.replicas) for p in topic.partitions.values()),
            min(len(p.isrs) for p in topic.partitions.values()),
        )
        for name, topic in topics.items()
        if topic.partitions
    }


def in_sync(bootstrap: str) -> bool:
    """Whether every replica of every partition is in sync; False when nobody answers."""
    try:
        return all(isr >= replicas for replicas, isr in replication(bootstrap).values())
    except KafkaException:
        return False
