"""Messages of librdkafka to columns, by calls that loop in C: no Python function per record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from kstream_worker.records import Batch, Headers, TopicPartition

NO_HEADERS: Headers = ()
_second = itemgetter(1)
_partition = cast("Callable[[Message], int]", Message.partition)  # of a record none is missing
_offset = cast("Callable[[Message], int]", Message.offset)


def split_errors(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """(records, errors and ends of partitions), each in their order."""
    if not any(map(Message.error, messages)):
        return messages, []
    return [one for one in messages if one.error() is None], [one for one in messages if one.error() is not None]


def to_batches(messages: list[Message]) -> Iterator[Batch]:
    """One batch for each partition; `next_offset` is the last offset + 1. Sorts the list in place.

    Args:
        messages: records, those of one partition in offset order.
    """
    messages.sort(key=_partition)  # stable
    for number, group in groupby(messages, key=_partition):
        rows = list(group)
        topics = set(map(Message.topic, rows))
        for topic in sorted(str(topic) for topic in topics):
            own = rows if len(topics) == 1 else [one for one in rows if one.topic() == topic]
            yield to_batch(TopicPartition(topic, number), own)


def to_batch(partition: TopicPartition, records: Sequence[Message]) -> Batch:
    """Turn the records of one partition into columns.

    Args:
        partition: where they come from.
        records: at least one, in offset order.
    """
    offsets = list(map(_offset, records))
    epoch = records[-1].leader_epoch()
    return Batch(
        partition=partition,
        offsets=offsets,
        timestamps=_timestamps(records),
        keys=list(map(Message.key, records)),
        values=list(map(Message.value, records)),
        headers=_headers(records),
        next_offset=offsets[-1] + 1,
        leader_epoch=-1 if epoch is None else epoch,
    )


def _timestamps(records: Sequence[Message]) -> list[int]:
    pairs = list(map(Message.timestamp, records))
    if TIMESTAMP_NOT_AVAILABLE in set(map(itemgetter(0), pairs)):
        return [-1 if kind == TIMESTAMP_NOT_AVAILABLE else time for kind, time in pairs]
    return list(map(_second, pairs))


def _headers(records: Sequence[Message]) -> list[Headers]:
    found = list(map(Message.headers, records))
    return list(map(_pairs, found)) if any(found) else [NO_HEADERS] * len(found)


def _pairs(found: object) -> Headers:
    """Headers of one record, null values as empty bytes: Kafka allows them, producers of the worker do not."""
    pairs = found if isinstance(found, list) else ()
    return [(name, b"" if value is None else value) for name, value in pairs] if pairs else NO_HEADERS
