"""Apache Kafka through kafka-python; nothing of the client shows through `ports`."""

from __future__ import annotations

from kstream_worker.bus.kafka_python.cluster import KafkaCluster
from kstream_worker.bus.kafka_python.group import KafkaGroup
from kstream_worker.bus.kafka_python.reader import KafkaReader
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.bus.kafka_python.source import KafkaSource
from kstream_worker.bus.kafka_python.writer import KafkaWriter
from kstream_worker.ports import Bus

__all__ = ["KafkaReader", "KafkaSettings", "kafka_bus"]


def kafka_bus(
    settings: KafkaSettings,
    *,
    topic: str,
    group_id: str,
    transactional_id: str,
    instance_id: str | None = None,
    transactional_prefix: str | None = None,
) -> Bus:
    """The adapters of one process; nothing connects before a factory is called and its product started.

    Args:
        settings: of all clients.
        topic: the input topic.
        group_id: the consumer group.
        transactional_id: unique to this process, and the same again after a restart.
        instance_id: makes the process a static member of the group; unique to it.
        transactional_prefix: what all transactional ids of the app start with, for the check of rights; by default
            this one.
    """
    prefix = transactional_id if transactional_prefix is None else transactional_prefix
    return Bus(
        source=lambda: KafkaSource(settings, topic=topic, group_id=group_id, instance_id=instance_id),
        writer=lambda: KafkaWriter(settings, group_id=group_id, transactional_id=transactional_id),
        cluster=lambda: KafkaCluster(settings, group_id=group_id, transactional_prefix=prefix, instance_id=instance_id),
        reader=lambda: KafkaReader(settings),
        group=lambda: KafkaGroup(settings, group_id=group_id),
        transaction_timeout_s=float(settings.for_producer(transactional_id)["transaction_timeout_ms"]) / 1000,
    )
