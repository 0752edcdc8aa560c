"""A reader outside any group, for state and reference topics."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer
from kafka import errors as client
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.kafka_python.columns import to_batch
from kstream_worker.bus.kafka_python.errors import translate
from kstream_worker.bus.kafka_python.internals import position, position_offset
from kstream_worker.bus.kafka_python.polling import poll
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.errors import Fatal
from kstream_worker.records import Batch, TopicPartition


class KafkaReader:
    """`ports.Reader` on kafka-python, at read_committed.

    Args:
        settings: of all clients.

    Raises:
        Retry: no broker answers.
        ConfigError: the login, the certificate or a setting is refused.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        with translate(f"connecting to {', '.join(settings.bootstrap_servers)}"):
            self._consumer: Any = KafkaConsumer(**settings.for_consumer(), group_id=None)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets."""
        self._consumer.assign([ClientPartition(*partition) for partition in positions])
        for partition, offset in positions.items():
            self._consumer.seek(ClientPartition(*partition), offset)

    def poll(self, timeout_s: float) -> list[Batch]:
        """Wait at most `timeout_s` for records.

        Raises:
            Retry: passing; poll again.
            Fatal: a position is out of range.
            ConfigError: a right is missing, or a codec is not installed.
        """
        with translate("reading"):
            found = poll(self._consumer, self._consumer.assignment(), timeout_s)
        return [
            to_batch(TopicPartition(*partition), records, position(self._consumer, partition))
            for partition, records in found.items()
            if records
        ]

    def position(self, partition: TopicPartition) -> int:
        """The offset to be read next; passes markers and aborted records.

        Raises:
            Fatal: the partition is not assigned.
        """
        offset = position_offset(self._consumer, ClientPartition(*partition))
        if offset is None:
            raise Fatal(f"the position of {partition} was asked for, but it is not assigned")
        return offset

    def close(self) -> None:
        """Stop."""
        with contextlib.suppress(client.KafkaError, OSError):
            self._consumer.close(autocommit=False)
