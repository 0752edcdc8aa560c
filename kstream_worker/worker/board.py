"""Where the worker shows what it does, for other threads to read."""

from __future__ import annotations

from typing import Protocol

from kstream_worker.records import TopicPartition


class AlarmBoard(Protocol):
    """Where the keys in alarm are shown."""

    def raise_alarm(self, key: str, details: dict[str, object]) -> None:
        """Show a key."""
        ...

    def clear_alarm(self, key: str) -> None:
        """Take it away."""
        ...


class Board(AlarmBoard, Protocol):
    """What the http endpoints show; the worker writes it."""

    def heartbeat(self) -> None:
        """The loop turns."""
        ...

    def set_assignment(self, assigned: int, ready: int) -> None:
        """How many partitions are ours, and how many of them are being read."""
        ...

    def restoring(self, partition: TopicPartition, done: int, total: int) -> None:
        """Progress of a restore, in offsets of the state topic."""
        ...

    def progress(self, partition: TopicPartition, position: int, lag: int | None) -> None:
        """Where a partition stands, for the check of liveness."""
        ...

    def forget_partition(self, partition: TopicPartition) -> None:
        """The partition is no longer ours."""
        ...
