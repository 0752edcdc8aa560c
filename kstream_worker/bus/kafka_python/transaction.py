"""One transaction of one producer: begin, send, flush, check every delivery, send offsets, commit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, ProducerFencedError, UnknownError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.common.reasons import NoSuchPartition
from kstream_worker.bus.common.writer import Attempt, Phase
from kstream_worker.bus.kafka_python import internals
from kstream_worker.bus.kafka_python.membership import KafkaMembership
from kstream_worker.records import Messages, Progress, TopicPartition

log = logging.getLogger(__name__)

DISCARD_TIMEOUT_S = 30.0


class Session:
    """A producer after `init_transactions`, with the identity it got. Once anything raised it is never used again.

    Args:
        settings: settings of `KafkaProducer` under their native names, transactional id included.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        producer = KafkaProducer(**settings)
        try:
            producer.init_transactions()
        except BaseException:
            discard(producer)
            raise
        self.producer = producer
        self.producer_id, self.epoch = internals.producer_identity(producer)

    def unchanged(self) -> bool:
        """Whether the client still has its first epoch; it raises it by itself when a transaction was lost."""
        return internals.producer_identity(self.producer) == (self.producer_id, self.epoch)

    def reason(self, error: Exception) -> Exception:
        """The error behind an error: later calls of a failed producer say only that it has failed."""
        behind = internals.last_error(self.producer) if isinstance(error, KafkaError) else None
        return behind or error

    def close(self, timeout_s: float) -> None:
        """Stop a producer without a transaction."""
        with suppress(KafkaError):
            self.producer.close(timeout=timeout_s)
        discard(self.producer)


class Transaction(Attempt):
    """One attempt to commit.

    Args:
        session: the producer to use.
        messages: what to send.
        progress: positions to commit.
        membership: the capture that the broker checks them against.
        token: stored with each position.
    """

    def __init__(
        self,
        session: Session,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        membership: KafkaMembership,
        token: str,
    ) -> None:
        self.session = session
        super().__init__()
        self._messages = messages
        self._metadata = membership.metadata
        self._offsets = {
            ClientPartition(*partition): OffsetAndMetadata(reached.offset, token, reached.leader_epoch)
            for partition, reached in progress.items()
        }

    def run(self, deadline: Deadline) -> None:
        """Do all steps; blocks until it is abandoned, so it belongs into a thread of its own.

        Raises:
            KafkaError: what the client says; nothing is known then from `Phase.ENDING` on.
        """
        producer = self.session.producer
        producer.begin_transaction()
        self._deliver(producer, deadline)
        self._enter(Phase.OFFSETS)
        internals.send_offsets(producer, self._offsets, self._metadata, self._go_on)
        self._enter(Phase.ENDING)
        internals.end_transaction(producer, self._go_on)
        if not self.session.unchanged():
            raise ProducerFencedError("the producer's epoch changed during the transaction")
        self._enter(Phase.DONE)

    def _deliver(self, producer: KafkaProducer, deadline: Deadline) -> None:
        """Send everything and see that every single record arrived: `commit_transaction` would not say so."""
        sent = [(messages.partition, self._send(producer, messages)) for messages in self._messages if len(messages)]
        if not sent:
            return
        with suppress(UnknownError):  # "Future not done": a batch was split, its records wait below
            producer.flush(timeout=deadline.left_s())
        for partition, futures in sent:
            for future in futures:
                if not future.is_done:
                    future.get(timeout=deadline.left_s())
                if future.exception is not None:
                    log.warning("a record for %s was not delivered: %s", partition, future.exception)
                    raise future.exception

    def _send(self, producer: KafkaProducer, messages: Messages) -> list[Any]:
        self._enter(Phase.SENDING)
        topic, partition = messages.partition
        if partition not in producer.partitions_for(topic):
            raise NoSuchPartition(messages.partition)
        return internals.append_records(producer, ClientPartition(topic, partition), messages)


def discard(producer: KafkaProducer) -> None:
    """Throw a producer away at once; a daemon thread sees its threads off."""

    def finish() -> None:
        with suppress(Exception):
            internals.stop_sender(producer, DISCARD_TIMEOUT_S)
        with suppress(Exception):
            producer.close(timeout=0)

    threading.Thread(target=finish, name="kafka-producer-discard", daemon=True).start()
