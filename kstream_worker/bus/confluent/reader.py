"""A reader outside any group, for state and reference topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import run_bounded
from kstream_worker.bus.common.gc_pause import collector_paused
from kstream_worker.bus.confluent.clients import Notes, connect, new_consumer, take
from kstream_worker.bus.confluent.columns import split_errors, to_batches
from kstream_worker.bus.confluent.errors import meaning_of, translate
from kstream_worker.bus.confluent.settings import ConfluentSettings
from kstream_worker.errors import Fatal, KstreamError
from kstream_worker.records import Batch, TopicPartition

log = logging.getLogger(__name__)

CLOSE_S = 5.0


class ConfluentReader:
    """`ports.Reader` on librdkafka, at read_committed.

    Args:
        settings: of all clients.
        group_id: a group that may be read: the client asks for its coordinator. It never joins it.
        topic: any topic that may be seen, to be asked about; the client knows no cheaper sign of life.

    Raises:
        Retry: no broker answers.
        ConfigError: the login, the certificate or a setting is refused.
    """

    def __init__(self, settings: ConfluentSettings, *, group_id: str, topic: str) -> None:
        notes = Notes()
        self._positions: dict[TopicPartition, int] = {}
        self._held_error: KstreamError | None = None
        self._consumer: Consumer | None = None
        consumer = new_consumer({**settings.for_consumer(), "group.id": group_id, "enable.partition.eof": True}, notes)
        doing = f"connecting to {', '.join(settings.bootstrap_servers)}"
        try:
            connect(lambda timeout_s: consumer.list_topics(topic, timeout_s), lambda: consumer.poll(0), notes, doing)
        except BaseException:
            consumer.close()
            raise
        self._consumer = consumer

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets."""
        self._positions = dict(positions)
        self._held_error = None
        with translate("assigning"):
            self._client.assign([ClientPartition(*partition, offset) for partition, offset in positions.items()])

    def poll(self, timeout_s: float) -> list[Batch]:
        """Wait at most `timeout_s` for records.

        Raises:
            Retry: passing; poll again.
            Fatal: a position is out of range.
            ConfigError: a right is missing.
        """
        error, self._held_error = self._held_error, None
        if error is not None:
            raise error
        with translate("reading"), collector_paused():
            messages = self._take(max(0.0, timeout_s))
            records, errors = split_errors(messages)
            batches = [batch for batch in to_batches(records) if batch.partition in self._positions]
        for batch in batches:
            self._positions[batch.partition] = batch.next_offset
        for one in errors:
            self._heed(one)
        return batches

    def _take(self, timeout_s: float) -> list[Message]:
        """What the client took for a call that raised, it gave to nobody and has passed: go back to before it."""
        try:
            return take(self._client, timeout_s)
        except KafkaException:
            self.assign(self._positions)
            raise

    def position(self, partition: TopicPartition) -> int:
        """The offset to be read next; passes markers and aborted records.

        Raises:
            Fatal: the partition is not assigned.
        """
        reached = self._positions.get(partition)
        if reached is None:
            raise Fatal(f"the position of {partition} was asked for, but it is not assigned")
        return reached  # the client's own is for a moment still the old one where it was assigned anew

    def close(self) -> None:
        """Stop."""
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            run_bounded(consumer.close, CLOSE_S, "kafka-close")
        except (KafkaException, RuntimeError) as error:
            log.warning("closing a reader: %s", error)

    @property
    def _client(self) -> Consumer:
        if self._consumer is None:
            raise RuntimeError("the reader is closed")
        return self._consumer

    def _heed(self, message: Message) -> None:
        """An end of a partition moves its position; an error waits for the next poll: records come first."""
        error, partition = message.error(), TopicPartition(message.topic() or "", message.partition() or 0)
        if error is None:
            return
        if error.code() != KafkaError._PARTITION_EOF:
            self._held_error = self._held_error or meaning_of(error, f"reading {partition}")
        elif partition in self._positions:
            self._positions[partition] = max(self._positions[partition], message.offset() or 0)
