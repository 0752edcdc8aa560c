"""Who has which partitions of a group, and whose turn it is to mend what nobody has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kstream_worker.records import TopicPartition, Unowned


def find_unowned(
    topic: str, count: int, owners: Mapping[str, Iterable[tuple[str, int]]], instance_id: str | None
) -> Unowned:
    """What nobody has.

    Args:
        topic: the input topic.
        count: its partitions.
        owners: (topic, partition) pairs of each member of a settled group, by its static name; dynamic members need no
            order, as a group loses nothing when one of them comes back.
        instance_id: static name of this process.
    """
    owned = {TopicPartition(*pair) for pairs in owners.values() for pair in pairs}
    missing = tuple(tp for tp in (TopicPartition(topic, n) for n in range(count)) if tp not in owned)
    return Unowned(missing, 0 if instance_id is None else sum(name < instance_id for name in owners))
