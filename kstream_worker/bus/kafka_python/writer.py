"""The transactional way out on kafka-python; the state machine around it is `bus.common.writer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka import KafkaConsumer

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.common.sizes import check_sizes
from kstream_worker.bus.common.writer import TransactionalWriter
from kstream_worker.bus.kafka_python import internals
from kstream_worker.bus.kafka_python.errors import classify
from kstream_worker.bus.kafka_python.fencing import is_fencing, timed_out_by_coordinator
from kstream_worker.bus.kafka_python.membership import KafkaMembership
from kstream_worker.bus.kafka_python.offsets import read_committed_offsets
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.bus.kafka_python.transaction import Session, Transaction, discard
from kstream_worker.errors import KstreamError
from kstream_worker.ports import Membership
from kstream_worker.records import Committed, Messages, Progress, TopicPartition


class KafkaWriter(TransactionalWriter[Session, KafkaMembership]):
    """`ports.Writer` on kafka-python.

    Args:
        settings: of all clients.
        group_id: the consumer group whose offsets are committed.
        transactional_id: unique to this process.
    """

    def __init__(self, settings: KafkaSettings, *, group_id: str, transactional_id: str) -> None:
        producer = settings.for_producer(transactional_id)
        super().__init__(transactional_id, float(producer["transaction_timeout_ms"]) / 1000)
        self._producer_settings = producer
        self._consumer_settings = {**settings.for_consumer(), "group_id": group_id}
        self._admin_settings = settings.for_admin()
        self._max_request_size = int(producer["max_request_size"])

    def _open(self) -> Session:
        return Session(self._producer_settings)

    def _attempt_of(
        self,
        session: Session,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        proof: KafkaMembership,
        token: str,
    ) -> Transaction:
        return Transaction(session, messages, progress, proof, token)

    def _proof(self, membership: Membership) -> KafkaMembership:
        if not isinstance(membership, KafkaMembership):
            raise TypeError(f"a membership of {type(membership).__name__} comes from another bus")
        return membership

    def _check_sendable(self, messages: Sequence[Messages]) -> None:
        check_sizes(messages, self._max_request_size, "max_request_size", internals.record_size)

    def _abort(self, session: Session) -> None:
        session.producer.abort_transaction()

    def _discard(self, session: Session) -> None:
        discard(session.producer)

    def _close(self, session: Session, timeout_s: float) -> None:
        session.close(timeout_s)

    def _read_committed(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, Committed | None]:
        consumer = KafkaConsumer(**self._consumer_settings)
        try:
            return read_committed_offsets(consumer, partitions, deadline)
        finally:
            consumer.close(autocommit=False)

    def _classify(self, error: Exception, doing: str) -> KstreamError:
        return classify(error, doing)

    def _is_fencing(self, error: Exception) -> bool:
        return is_fencing(error)

    def _timed_out_by_coordinator(self, session: Session) -> bool:
        return timed_out_by_coordinator(self._admin_settings, self._transactional_id, session)

    def _reason(self, session: Session, error: Exception) -> Exception:
        return session.reason(error)
