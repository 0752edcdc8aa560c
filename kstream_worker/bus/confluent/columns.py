"""Messages of librdkafka to columns, by calls that loop in C: no Python function per record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from kstream_worker.bus.common.header_names import UNREADABLE, warn
from kstream_worker.records import Batch, Headers, TopicPartition

NO_HEADERS: Headers = ()
# Of a record none of these is missing.
_topic = cast("Callable[[Message], str]", Message.topic)
_partition = cast("Callable[[Message], int]", Message.partition)
_offset = cast("Callable[[Message], int]", Message.offset)


def split_errors(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """(records, errors and ends of partitions), each in their order."""
    if not any(map(Message.error, messages)):
        return messages, []
    return [one for one in messages if one.error() is None], [one for one in messages if one.error() is not None]


def to_batches(messages: list[Message]) -> Iterator[Batch]:
    """One batch for each partition; `next_offset` is the last offset + 1.

    Args:
        messages: records, those of one partition in offset order.
    """
    topics = set(map(_topic, messages))
    for topic in sorted(topics):
        rows = messages if len(topics) == 1 else [one for one in messages if one.topic() == topic]
        for number, own in _by_partition(rows):
            yield to_batch(TopicPartition(topic, number), own)


def to_batch(partition: TopicPartition, records: Sequence[Message]) -> Batch:
    """Turn the records of one partition into columns.

    Args:
        partition: where they come from.
        records: at least one, in offset order.
    """
    last, epoch = _offset(records[-1]), records[-1].leader_epoch()
    return Batch(
        partition=partition,
        offsets=_offsets(records),
        timestamps=_timestamps(records),
        keys=list(map(Message.key, records)),
        values=list(map(Message.value, records)),
        headers=_headers(records),
        next_offset=last + 1,
        leader_epoch=-1 if epoch is None else epoch,
    )


def _by_partition(messages: list[Message]) -> Iterator[tuple[int, list[Message]]]:
    """The client gives runs of records of one partition, which a stable sort joins at little cost."""
    rows = sorted(messages, key=_partition)
    start = 0
    while start < len(rows):
        number = _partition(rows[start])
        end = bisect_right(rows, number, lo=start, key=_partition)
        yield number, rows[start:end]
        start = end


def _offsets(records: Sequence[Message]) -> list[int]:
    first, last = _offset(records[0]), _offset(records[-1])
    if last - first == len(records) - 1:  # no gap: they ascend
        return list(range(first, last + 1))
    return list(map(_offset, records))


def _timestamps(records: Sequence[Message]) -> list[int]:
    kinds, times = zip(*map(Message.timestamp, records), strict=True)
    if TIMESTAMP_NOT_AVAILABLE in kinds:
        return [-1 if kind == TIMESTAMP_NOT_AVAILABLE else time for kind, time in zip(kinds, times, strict=True)]
    return list(times)


def _headers(records: Sequence[Message]) -> list[Headers]:
    """Each record is asked once: a name that is no text makes the client raise, and then give a list with holes."""
    found: list[object] = []
    left = iter(records)
    while len(found) < len(records):
        try:
            found.extend(map(Message.headers, left))  # keeps what came before an error
        except (SystemError, UnicodeDecodeError):
            warn(_offset(records[len(found)]))
            found.append(UNREADABLE)
    return list(map(_pairs, found)) if any(found) else [NO_HEADERS] * len(found)


def _pairs(found: object) -> Headers:
    """Headers of one record, null values as empty bytes: Kafka allows them, producers of the worker do not."""
    pairs = found if isinstance(found, list) else ()
    return [(name, b"" if value is None else value) for name, value in pairs] if pairs else NO_HEADERS
