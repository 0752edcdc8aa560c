"""A plain producer for demonstrations: keyed records, acknowledged, no transaction."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from kafka import KafkaProducer

from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.errors import Fatal


def produce(settings: KafkaSettings, topic: str, rows: Iterable[tuple[str, int, bytes]], partitions: int) -> int:
    """Write records and wait until the broker has them.

    Args:
        settings: of the clients.
        topic: where to.
        rows: (key, timestamp in milliseconds, value).
        partitions: how many the topic has; all records of a key go to one.

    Returns:
        how many were written.

    Raises:
        Fatal: a record could not be written.
    """
    producer = KafkaProducer(
        bootstrap_servers=list(settings.bootstrap_servers), linger_ms=20, batch_size=1 << 18, metrics_enabled=False
    )
    try:
        sent = [
            producer.send(
                topic, value, key=key.encode(), partition=crc32(key.encode()) % partitions, timestamp_ms=time_ms
            )
            for key, time_ms, value in rows
        ]
        producer.flush(60.0)
        for future in sent:
            if not future.succeeded():
                raise Fatal(f"a record was not written to {topic}: {future.exception}")
    finally:
        producer.close(5.0)
    return len(sent)
