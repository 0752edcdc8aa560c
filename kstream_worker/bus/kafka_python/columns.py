"""Records of the client to columns."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.consumer.fetcher import ConsumerRecord

from kstream_worker.records import Batch, Headers, TopicPartition

NO_HEADERS: Headers = ()


def to_batch(partition: TopicPartition, records: Sequence[ConsumerRecord], next_offset: int) -> Batch:
    """Turn the records of one partition into columns; one C-level pass, no object per record.

    Args:
        partition: where they come from.
        records: at least one, in offset order.
        next_offset: the consumer's position after them.
    """
    _, _, epochs, offsets, times, _, keys, values, headers, *_ = zip(*records, strict=True)
    epoch = epochs[-1]
    return Batch(
        partition=partition,
        offsets=list(offsets),
        timestamps=[-1 if time is None else time for time in times] if None in times else list(times),
        keys=list(keys),
        values=list(values),
        headers=[_headers(pairs) if pairs else NO_HEADERS for pairs in headers],
        next_offset=next_offset,
        leader_epoch=-1 if epoch is None else epoch,
    )


def _headers(pairs: Sequence[tuple[str, bytes | None]]) -> Headers:
    """Headers with null values as empty bytes: Kafka allows them, producers of this client do not."""
    return [(name, b"" if value is None else value) for name, value in pairs]
