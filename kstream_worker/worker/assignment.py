"""Where reading starts: the committed position, else the configured start; and what must not go unsaid about it."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from kstream_worker.errors import Fatal
from kstream_worker.ports import Cluster, Source
from kstream_worker.records import Committed, End, TopicPartition

log = structlog.get_logger(__name__)

_TIMEOUT_S = 10.0


class StartPositions:
    """Finds the first offset of newly assigned partitions.

    Args:
        start: `earliest`, `latest`, or a record time in milliseconds: for a group that has committed nothing yet. A
        partition
            that is new to a group with commits always starts at its earliest record, or records would be lost.
    """

    def __init__(self, source: Source, cluster: Cluster, topic: str, start: str | int) -> None:
        self._source = source
        self._cluster = cluster
        self._topic = topic
        self._start = start

    def find(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, bool]]:
        """For each partition the offset to seek to, and whether that is a committed position.

        Raises:
            Retry: the bus did not answer in time.
            Fatal: the committed position is not in the partition any more.
        """
        known = self._committed(partitions)
        self._check_range(known)
        fresh = [tp for tp in partitions if tp not in known]
        found = {tp: (position.offset, True) for tp, position in known.items()}
        found |= {tp: (offset, False) for tp, offset in self._first(fresh, group_is_known=bool(known)).items()}
        return found

    def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        found = self._source.committed(partitions, _TIMEOUT_S)
        return {tp: position for tp, position in found.items() if position is not None}

    def _has_committed(self) -> bool:
        """Whether the group has committed anything on the topic; asks about partitions of other members too."""
        count = self._cluster.partition_count(self._topic) or 0
        return bool(self._committed([TopicPartition(self._topic, p) for p in range(count)]))

    def _first(self, fresh: list[TopicPartition], *, group_is_known: bool) -> dict[TopicPartition, int]:
        if not fresh:
            return {}
        if self._start == "earliest" or group_is_known or self._has_committed():
            return self._cluster.earliest(fresh)
        if self._start == "latest":
            return self._cluster.end(fresh, End.STABLE)
        return self._cluster.at_time(fresh, int(self._start))

    def _check_range(self, known: dict[TopicPartition, Committed]) -> None:
        if not known:
            return
        earliest = self._cluster.earliest(list(known))
        end = self._cluster.end(list(known), End.HIGH)
        for tp, position in known.items():
            if position.offset < earliest[tp]:
                raise Fatal(
                    f"{tp}: the committed position {position.offset} is older than the first record that is kept "
                    f"({earliest[tp]}): {earliest[tp] - position.offset} offsets were deleted by retention before "
                    f"they were "
                    "read. Accept the loss by moving the group to the earliest record (kafka-consumer-groups "
                    "--reset-offsets --to-earliest), and raise the topic's retention."
                )
            if position.offset > end[tp]:
                raise Fatal(
                    f"{tp}: the committed position {position.offset} is beyond the end of the partition "
                    f"({end[tp]}); the "
                    "topic was probably deleted and created again. Reset the group's offsets (kafka-consumer-groups "
                    "--reset-offsets) or choose a new app.id."
                )
