"""Committed positions of a group, read so that open transactions are waited for."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.confluent.errors import cause_of, classify, meaning_of
from kstream_worker.errors import Retry
from kstream_worker.records import Committed, TopicPartition

SLICE_S = 1.0  # a signal waits for the end of a call


def read_committed_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, Committed | None]:
    """Committed positions through a read_committed consumer: such reads wait for open transactions.

    Raises:
        Retry: not answered by the deadline.
    """
    wanted = [ClientPartition(*partition) for partition in partitions]
    if not wanted:
        return {}
    while True:
        try:
            found = consumer.committed(wanted, max(min(deadline.left_s(), SLICE_S), 0.001))
            return dict(map(_committed, found))
        except KafkaException as error:
            late = cause_of(error).code() == KafkaError._TIMED_OUT
            if late and deadline.passed():
                raise Retry(f"the committed offsets could not be read in time: {cause_of(error).str()}") from error
            if not late:
                raise classify(error, "reading committed offsets") from error


def _committed(found: ClientPartition) -> tuple[TopicPartition, Committed | None]:
    partition = TopicPartition(found.topic, found.partition)
    if found.error is not None:
        raise meaning_of(found.error, f"reading the committed offset of {partition}")
    if found.offset == OFFSET_INVALID:
        return partition, None
    epoch = found.leader_epoch
    return partition, Committed(found.offset, found.metadata or "", -1 if epoch is None else epoch)
