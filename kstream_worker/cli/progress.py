"""Lines on standard error now and then: silence for minutes looks like a hang."""

from __future__ import annotations

import sys
import time

from kstream_worker.records import TopicPartition

_EVERY_S = 5.0


class Progress:
    """Says what is being done, at most once in five seconds."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def reading(self, partition: TopicPartition, done: int, total: int) -> None:
        """So much of a partition is read."""
        if total and self._due():
            print(f"reading {partition}: {done / total:.0%}", file=sys.stderr)

    def writing(self, keys: int) -> None:
        """So many keys are written."""
        if self._due():
            print(f"{keys} keys written", file=sys.stderr)

    def doing(self, what: str) -> None:
        """This is done next."""
        if self._due():
            print(what, file=sys.stderr)

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._said_s < _EVERY_S:
            return False
        self._said_s = now
        return True
