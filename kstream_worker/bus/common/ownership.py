"""Who has which partitions of a group, and whose turn it is to mend what nobody has."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from kstream_worker.errors import Retry
from kstream_worker.records import TopicPartition, Unowned


def find_unowned(topic: str, count: int, owners: Mapping[str, Iterable[tuple[str, int]]], instance_id: str) -> Unowned:
    """What nobody has.

    Args:
        topic: the input topic.
        count: its partitions.
        owners: (topic, partition) pairs of each member of a settled group, by its static name or its id.
        instance_id: static name of this process.
    """
    owned = {TopicPartition(*pair) for pairs in owners.values() for pair in pairs}
    missing = tuple(tp for tp in (TopicPartition(topic, n) for n in range(count)) if tp not in owned)
    return Unowned(missing, sum(name < instance_id for name in owners))


def read_assignment(content: bytes) -> list[tuple[str, int]]:
    """(topic, partition) pairs of a member's assignment, in the consumer protocol's own encoding; none if it is empty.

    int16 version, then an array of topics: a string and an array of int32 each (lengths of arrays int32, of strings
    int16, all big-endian).

    Raises:
        Retry: it is not readable, so nothing can be said.
    """
    if not content:
        return []
    try:
        return _read_pairs(content)
    except (struct.error, UnicodeDecodeError) as error:
        raise Retry("a member's assignment is not readable") from error


def _read_pairs(content: bytes) -> list[tuple[str, int]]:
    pairs: list[tuple[str, int]] = []
    _, topics = struct.unpack_from(">hi", content)
    at = 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", content, at)
        name = content[at + 2 : at + 2 + size].decode()
        (count,) = struct.unpack_from(">i", content, at + 2 + size)
        numbers = struct.unpack_from(f">{count}i", content, at + 6 + size)
        pairs += [(name, number) for number in numbers]
        at += 6 + size + 4 * count
    return pairs
