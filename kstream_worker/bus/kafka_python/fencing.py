"""Who fenced us: another process of the same transactional id, or the coordinator that timed a transaction out?

Both raise the producer's epoch, and kafka-python reports both as `ProducerFencedError`. They must be told apart: the
first is fatal (two processes would fence each other for ever), the second is an aborted transaction like any other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import TransactionState
from kafka.errors import InvalidProducerEpochError, ProducerFencedError

from kstream_worker.bus.kafka_python import internals
from kstream_worker.bus.kafka_python.transaction import Session

TIMED_OUT_STATES = frozenset(
    {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT, TransactionState.PREPARE_EPOCH_FENCE}
)


def is_fencing(error: BaseException) -> bool:
    """Whether the broker said that a newer epoch of our producer exists."""
    return isinstance(error, (ProducerFencedError, InvalidProducerEpochError))


def timed_out_by_coordinator(settings: Mapping[str, Any], transactional_id: str, session: Session) -> bool:
    """Ask the coordinator about the present holder of the transactional id.

    To time a transaction out it raises the epoch by one and aborts. A process that takes the id over while a
    transaction is open raises it once more, and leaves the state `Empty`.

    Raises:
        KafkaError: the coordinator did not answer.
    """
    with contextlib.closing(KafkaAdminClient(**settings)) as admin:
        found = internals.describe_transaction(admin, transactional_id)
    same_producer = found.producer_id == session.producer_id and found.producer_epoch == session.epoch + 1
    return same_producer and found.state in TIMED_OUT_STATES
