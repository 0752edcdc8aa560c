"""What a task needs of the stages around the models."""

from __future__ import annotations

from typing import Protocol

from kstream_worker.records import Batch, Messages, Rejects, Samples, Scores, TopicPartition, Transition


class Encoder(Protocol):
    """Columns in, encoded output records out."""

    def estimates(self, partition: TopicPartition, samples: Samples, scores: Scores) -> list[Messages]:
        """One estimate per sample (or every n-th of its key)."""
        ...

    def alarm(
        self,
        partition: TopicPartition,
        key: bytes,
        offset: int,
        event_time: int,
        stamp: int,
        transition: Transition,
        now_ms: int,
        ordinal: int = 0,
    ) -> Messages:
        """One transition of an alarm; `ordinal` tells apart those of several keys at one offset."""
        ...

    def dead_letters(self, batch: Batch, rejects: Rejects) -> list[Messages]:
        """The refused records of a batch, with their original bytes."""
        ...


class RejectLimit(Protocol):
    """Says when too many records of the partition are refused."""

    def observe(self, batch: Batch, rejects: Rejects) -> None:
        """Count a batch; raises Fatal beyond the limit."""
        ...
