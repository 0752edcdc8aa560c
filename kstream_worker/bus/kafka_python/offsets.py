"""Committed positions of a group, read so that open transactions are waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.kafka_python import internals
from kstream_worker.bus.kafka_python.errors import classify
from kstream_worker.errors import Retry
from kstream_worker.records import Committed, TopicPartition


def read_committed_offsets(
    consumer: Any, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, Committed | None]:
    """Committed positions through a read_committed consumer: such reads wait for open transactions (an admin's do not).

    Raises:
        Retry: not answered by the deadline.
    """
    wanted = [ClientPartition(*partition) for partition in partitions]
    internals.forget_unanswered_offset_reads(consumer)
    try:
        found = internals.committed_offsets(consumer, wanted, deadline.left_ms())
    except KafkaTimeoutError as error:
        raise Retry(f"the committed offsets could not be read in time: {error}") from error
    except (KafkaError, OSError) as error:
        raise classify(error, "reading committed offsets") from error
    finally:
        internals.forget_unanswered_offset_reads(consumer)
    return {partition: _committed(found.get(ClientPartition(*partition))) for partition in partitions}


def _committed(offset: Any) -> Committed | None:
    return None if offset is None else Committed(offset.offset, offset.metadata or "", offset.leader_epoch)
