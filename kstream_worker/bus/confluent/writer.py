"""The transactional way out on librdkafka; the state machine around it is `bus.common.writer`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.common.sizes import MAX_OVERHEAD_BYTES, check_sizes, headers_bound
from kstream_worker.bus.common.writer import ABORT_S, TransactionalWriter
from kstream_worker.bus.confluent.clients import Notes, new_consumer
from kstream_worker.bus.confluent.errors import cause_of, classify
from kstream_worker.bus.confluent.membership import ConfluentMembership
from kstream_worker.bus.confluent.offsets import read_committed_offsets
from kstream_worker.bus.confluent.settings import ConfluentSettings
from kstream_worker.bus.confluent.transaction import Session, Transaction, discard
from kstream_worker.errors import KstreamError, Retry
from kstream_worker.ports import Membership
from kstream_worker.records import Committed, Headers, Messages, Progress, TopicPartition

log = logging.getLogger(__name__)

FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
BATCH_SIZE = "batch.size"
DEFAULT_BATCH_BYTES = 1_000_000


class ConfluentWriter(TransactionalWriter[Session, ConfluentMembership]):
    """`ports.Writer` on librdkafka.

    Args:
        settings: of all clients.
        group_id: the consumer group whose offsets are committed.
        transactional_id: unique to this process.
    """

    def __init__(self, settings: ConfluentSettings, *, group_id: str, transactional_id: str) -> None:
        producer = settings.for_producer(transactional_id)
        super().__init__(transactional_id, float(producer["transaction.timeout.ms"]) / 1000)
        self._producer_settings = producer
        self._consumer_settings = {**settings.for_consumer(), "group.id": group_id}
        self._max_message_bytes = int(producer["message.max.bytes"])
        self._batch_bytes = int(producer.get(BATCH_SIZE, DEFAULT_BATCH_BYTES))
        self._longest_bytes = 0  # of a message of the last commit
        self._asked_after_fencing = False
        self._stop = threading.Event()

    def close(self, timeout_s: float) -> None:
        """End what is open, so that nobody waits for it, and stop; within `timeout_s`."""
        super().close(timeout_s)
        self._stop.set()

    def _open(self) -> Session:
        return Session({**self._producer_settings, BATCH_SIZE: self._batch_bytes}, self._stop)

    def _attempt_of(
        self,
        session: Session,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        proof: ConfluentMembership,
        token: str,
    ) -> Transaction:
        return Transaction(session, messages, progress, proof, token)

    def _proof(self, membership: Membership) -> ConfluentMembership:
        if not isinstance(membership, ConfluentMembership):
            raise TypeError(f"a membership of {type(membership).__name__} comes from another bus")
        return membership

    def _check_sendable(self, messages: Sequence[Messages]) -> None:
        self._longest_bytes = check_sizes(messages, self._max_message_bytes, "message.max.bytes", record_size)

    def _abort(self, session: Session) -> None:
        session.producer.abort_transaction(ABORT_S)

    def _discard(self, session: Session) -> None:
        discard(session.producer)

    def _close(self, session: Session, timeout_s: float) -> None:
        del timeout_s  # the caller waits no longer
        session.close()

    def _read_committed(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, Committed | None]:
        consumer = new_consumer(self._consumer_settings, Notes())
        try:
            return read_committed_offsets(consumer, partitions, deadline)
        finally:
            consumer.close()

    def _classify(self, error: Exception, doing: str) -> KstreamError:
        if self._is_too_large(error) and self._cut_batches():
            return Retry(f"{doing}: a batch was larger than the topic allows; the next ones are smaller")
        return classify(error, doing)

    def _is_too_large(self, error: Exception) -> bool:
        return isinstance(error, KafkaException) and cause_of(error).code() == KafkaError.MSG_SIZE_TOO_LARGE

    def _cut_batches(self) -> bool:
        """Make the batches of the next producer smaller, where a single message may yet fit.

        The client does not split a batch that is larger than the topic's `max.message.bytes`.
        """
        if self._batch_bytes <= self._longest_bytes:
            return False
        self._batch_bytes = max(self._batch_bytes // 4, self._longest_bytes)
        log.warning(
            "a batch was larger than an output topic's max.message.bytes: %s is now %d", BATCH_SIZE, self._batch_bytes
        )
        return True

    def _is_fencing(self, error: Exception) -> bool:
        return isinstance(error, KafkaException) and cause_of(error).code() in FENCED

    def _timed_out_by_coordinator(self, session: Session) -> bool:
        """Whether a fencing that came later than the transaction's time-out was the coordinator's.

        This client cannot ask it. So the source is polled once before the id is taken back: if another process took
        our place it is told so there.
        """
        del session
        self._asked_after_fencing = not self._asked_after_fencing
        if self._asked_after_fencing:
            raise Retry("the transaction was open longer than its time-out; what became of it is read back next")
        return True


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Bytes of a batch with this one record, as the client counts them before it refuses one."""
    return len(key or b"") + len(value or b"") + headers_bound(headers) + MAX_OVERHEAD_BYTES
