"""The proof of membership that commits use."""

from __future__ import annotations

from dataclasses import dataclass

from kafka.structs import ConsumerGroupMetadata

from kstream_worker.records import TopicPartition


@dataclass(frozen=True, slots=True)
class KafkaMembership:
    """Captured after a poll whose assignment was settled.

    Attributes:
        metadata: group, generation, member id and instance id, as the broker checks them.
        partitions: what this member owned in that generation.
    """

    metadata: ConsumerGroupMetadata
    partitions: frozenset[TopicPartition]

    @property
    def generation(self) -> int:
        """Generation of the group."""
        return int(self.metadata.generation_id)

    @property
    def is_member(self) -> bool:
        """An evicted member shows generation -1 and no id, which no broker fences."""
        return bool(self.metadata.generation_id >= 0 and self.metadata.member_id)
