"""What waits for the next commit: encoded outputs and input positions, by input partition.

Outputs are kept apart by the input partition they derive from, since a revoked partition takes its uncommitted
outputs with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kstream_worker.records import Messages, Progress, TopicPartition

# What one message takes beside its key and value: offsets, a header list, list slots. For the cap only.
_OVERHEAD_BYTES = 64


@dataclass(slots=True)
class _Pending:
    outputs: dict[TopicPartition, Messages] = field(default_factory=dict)
    progress: Progress | None = None
    size_bytes: int = 0


class Outbox:
    """Outputs and positions of several input partitions."""

    def __init__(self) -> None:
        self._by_input: dict[TopicPartition, _Pending] = {}
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._by_input)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Input partitions with something to commit."""
        return list(self._by_input)

    def size_of(self, partition: TopicPartition) -> int:
        """Bytes of one input partition's outputs."""
        pending = self._by_input.get(partition)
        return 0 if pending is None else pending.size_bytes

    def add(self, partition: TopicPartition, outputs: Iterable[Messages]) -> None:
        """Append outputs that derive from records of an input partition."""
        pending = self._by_input.setdefault(partition, _Pending())
        for messages in outputs:
            mine = pending.outputs.get(messages.partition)
            if mine is None:
                mine = pending.outputs[messages.partition] = Messages(messages.partition)
            mine.extend(messages.keys, messages.values, messages.timestamps, messages.headers)
            added = _size_bytes(messages)
            pending.size_bytes += added
            self.size_bytes += added

    def advance(self, partition: TopicPartition, progress: Progress) -> None:
        """All records below this position are processed, and their outputs are in here."""
        self._by_input.setdefault(partition, _Pending()).progress = progress

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what belongs to these input partitions."""
        for partition in partitions:
            gone = self._by_input.pop(partition, None)
            if gone is not None:
                self.size_bytes -= gone.size_bytes

    def absorb(self, later: Outbox) -> None:
        """Append what a later outbox holds, behind what is in here, and empty it."""
        for partition, pending in later._by_input.items():
            self.add(partition, pending.outputs.values())
            if pending.progress is not None:
                self.advance(partition, pending.progress)
        later.drop(later.partitions)

    def messages(self) -> list[Messages]:
        """Outputs, one entry per output partition; the order of each input partition is kept."""
        merged: dict[TopicPartition, Messages] = {}
        for pending in self._by_input.values():
            for partition, messages in pending.outputs.items():
                target = merged.setdefault(partition, Messages(partition))
                target.extend(messages.keys, messages.values, messages.timestamps, messages.headers)
        return list(merged.values())

    def progress(self) -> dict[TopicPartition, Progress]:
        """The positions to commit."""
        return {tp: p.progress for tp, p in self._by_input.items() if p.progress is not None}


def _size_bytes(messages: Messages) -> int:
    keys = sum(map(len, filter(None, messages.keys)))
    values = sum(map(len, filter(None, messages.values)))
    headers = sum(len(name) + len(value or b"") for row in messages.headers if row for name, value in row)
    return keys + values + headers + _OVERHEAD_BYTES * len(messages)
