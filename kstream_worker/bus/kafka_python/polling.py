"""A poll of the client that loses nothing where it raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.common.gc_pause import collector_paused
from kstream_worker.bus.kafka_python.header_names import leave_out_if_unreadable
from kstream_worker.bus.kafka_python.internals import drop_line, held_error, position, seek


def poll(
    consumer: KafkaConsumer, partitions: Iterable[ClientPartition], timeout_s: float
) -> dict[ClientPartition, list[Any]]:
    """Records by partition. What the client took for a poll that raised, it gave to nobody and has passed: these
    partitions go back to where they were before it.
    """
    before = {partition: position(consumer, partition) for partition in partitions}
    try:
        records = _poll(consumer, timeout_s)
    except Exception as error:
        drop_line(consumer)
        assigned = consumer.assignment()
        for partition, reached in before.items():
            if reached is not None and partition in assigned:
                seek(consumer, partition, reached)
        if leave_out_if_unreadable(error):
            return {}
        raise
    return records


def _poll(consumer: KafkaConsumer, timeout_s: float) -> dict[ClientPartition, list[Any]]:
    held = held_error(consumer)
    if held is not None:
        raise held
    with collector_paused():
        records: dict[ClientPartition, list[Any]] = consumer.poll(timeout_ms=timeout_s * 1000)
    return records
