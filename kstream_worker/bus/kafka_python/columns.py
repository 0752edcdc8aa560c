"""Records of the client to columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata

from kstream_worker.records import Batch, Headers, TopicPartition

NO_HEADERS: Headers = ()


def to_batch(partition: TopicPartition, records: Sequence[ConsumerRecord], position: OffsetAndMetadata | None) -> Batch:
    """Turn the records of one partition into columns; one C-level pass, no object per record.

    Args:
        partition: where they come from.
        records: at least one, in offset order.
        position: the consumer's after them, which passes markers.
    """
    _, _, epochs, offsets, times, _, keys, values, headers, *_ = zip(*records, strict=True)
    reached: Any = position  # has no types
    if reached is None or reached.offset <= offsets[-1]:
        reached = OffsetAndMetadata(offsets[-1] + 1, "", epochs[-1])
    return Batch(
        partition=partition,
        offsets=list(offsets),
        timestamps=[-1 if time is None else time for time in times] if None in times else list(times),
        keys=list(keys),
        values=list(values),
        headers=[_headers(pairs) if pairs else NO_HEADERS for pairs in headers],
        next_offset=reached.offset,
        leader_epoch=leader_epoch_of(reached),
    )


def leader_epoch_of(position: Any) -> int:
    """Of what lies before a position; -1 where unknown."""
    epoch = position.leader_epoch
    return -1 if epoch is None else int(epoch)


def _headers(pairs: Sequence[tuple[str, bytes | None]]) -> Headers:
    """Headers with null values as empty bytes: Kafka allows them, producers of this client do not."""
    return [(name, b"" if value is None else value) for name, value in pairs]
