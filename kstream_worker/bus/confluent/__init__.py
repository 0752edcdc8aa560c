"""Apache Kafka through librdkafka (confluent-kafka); nothing of the client shows through `ports`."""

from __future__ import annotations

from kstream_worker.errors import ConfigError

try:
    import confluent_kafka  # noqa: F401
except ImportError as error:
    raise ConfigError(
        "`bus.client` confluent needs librdkafka: pip install 'kstream-worker[librdkafka]', or take kafka-python"
    ) from error

from kstream_worker.bus.confluent.cluster import ConfluentCluster
from kstream_worker.bus.confluent.group import ConfluentGroup
from kstream_worker.bus.confluent.reader import ConfluentReader
from kstream_worker.bus.confluent.settings import ConfluentSettings
from kstream_worker.bus.confluent.source import ConfluentSource
from kstream_worker.bus.confluent.writer import ConfluentWriter
from kstream_worker.ports import Bus

__all__ = ["ConfluentReader", "ConfluentSettings", "confluent_bus"]


def confluent_bus(
    settings: ConfluentSettings,
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
        source=lambda: ConfluentSource(settings, topic=topic, group_id=group_id, instance_id=instance_id),
        writer=lambda: ConfluentWriter(settings, group_id=group_id, transactional_id=transactional_id),
        cluster=lambda: ConfluentCluster(
            settings, group_id=group_id, transactional_prefix=prefix, instance_id=instance_id
        ),
        reader=lambda: ConfluentReader(settings, group_id=group_id, topic=topic),
        group=lambda: ConfluentGroup(settings, group_id=group_id),
        transaction_timeout_s=float(settings.for_producer(transactional_id)["transaction.timeout.ms"]) / 1000,
    )
