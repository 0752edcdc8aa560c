"""The proof of membership that commits use."""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass

from kstream_worker.records import TopicPartition

MAGIC = b"CGMDv2:"  # what librdkafka writes before the generation, an int32 of this machine
_GENERATION = slice(len(MAGIC), len(MAGIC) + 4)


@dataclass(frozen=True, slots=True)
class ConfluentMembership:
    """Captured in the callback that brought the assignment.

    Attributes:
        metadata: group, generation, member id and instance id, as librdkafka packs them for the producer.
        member_id: empty for a member that was put out.
        partitions: what this member owned in that generation.
    """

    metadata: bytes
    member_id: str
    partitions: frozenset[TopicPartition]

    @property
    def generation(self) -> int:
        """Generation of the group; of a packing that is not known, a number that differs as it differs."""
        if self.metadata.startswith(MAGIC):
            return int.from_bytes(self.metadata[_GENERATION], sys.byteorder, signed=True)
        return zlib.crc32(self.metadata)

    @property
    def is_member(self) -> bool:
        """A member that was put out has no id and generation -1, which no broker fences."""
        return bool(self.member_id) and self.generation >= 0
