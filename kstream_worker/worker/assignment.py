"""Where a partition begins that neither the group nor the state knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kstream_worker.ports import Cluster, Source
from kstream_worker.records import Committed, End, TopicPartition

TIMEOUT_S = 10.0


class StartPositions:
    """Finds first offsets, and remembers when the group was born.

    The first tokens that a group commits open with its birth (time and number of partitions), and every later token
    repeats that: so a member that comes late tells a partition that was there at the birth, which begins as
    configured, from one that was added since, which begins at its earliest record, or records would be lost.

    Args:
        topic: the input topic.
        start: `earliest`, `latest`, or a record time in milliseconds.
        now_ms: the wall clock.

    Attributes:
        birth: opens the token of each commit; empty until the first partition was looked at.
    """

    def __init__(self, topic: str, start: str | int, now_ms: Callable[[], int]) -> None:
        self._topic = topic
        self._start = start
        self._now_ms = now_ms
        self.birth = ""
        self._learned = False

    def find(self, source: Source, cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets of these partitions.

        Raises:
            Retry: the bus did not answer in time.
        """
        born_ms, born_count = self._born(source, cluster)
        there = [tp for tp in partitions if tp.partition < born_count and self._start != "earliest"]
        added = [tp for tp in partitions if tp not in there]
        found = cluster.earliest(added) if added else {}
        if not there:
            return found
        if self._start != "latest":
            return found | cluster.at_time(there, int(self._start))
        if born_ms is None:
            return found | cluster.end(there, End.STABLE)
        return found | cluster.at_time(there, born_ms)

    def _born(self, source: Source, cluster: Cluster) -> tuple[int | None, int]:
        """When the group was born (None: now) and how many partitions there were."""
        count = cluster.partition_count(self._topic) or 0
        everything = [TopicPartition(self._topic, p) for p in range(count)]
        known = [at for at in source.committed(everything, TIMEOUT_S).values() if at is not None]
        self.learn(known)
        if self._learned:
            return _read_birth(self.birth)
        if known:  # by something that notes no birth
            return 0, 0
        self.birth = self.birth or _format_birth(self._now_ms(), count)
        return None, count

    def learn(self, known: Iterable[Committed]) -> None:
        """Take the birth of the group from what it has committed."""
        births = [birth for birth in map(parse_birth, known) if birth is not None]
        if births:
            self.birth = _format_birth(*min(births))
            self._learned = True


def _format_birth(time_ms: int, partitions: int) -> str:
    return f"{time_ms:x}.{partitions:x}."


def _read_birth(birth: str) -> tuple[int, int]:
    time_ms, partitions, _ = birth.split(".")
    return int(time_ms, 16), int(partitions, 16)


def parse_birth(committed: Committed) -> tuple[int, int] | None:
    """Birth of the group, as its tokens tell: time in milliseconds and number of partitions; None for none."""
    try:
        return _read_birth(committed.metadata)
    except ValueError:
        return None
