"""Records that an open transaction of a producer hides: there is nothing to read, no lag, and yet the input stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from kstream_worker.errors import KstreamError
from kstream_worker.ports import Cluster
from kstream_worker.records import End, TopicPartition

log = structlog.get_logger(__name__)

_EVERY_S = 60.0


@dataclass(slots=True)
class _Stand:
    """Where a partition ends for readers, since when, and whether records were found beyond that."""

    stable: int
    since_s: float
    hides: bool = False
    told: bool = False


class HiddenRecords:
    """Asks now and then what lies behind the last stable offset of partitions that have been read up to it.

    Args:
        cluster: knows the ends.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stands: dict[TopicPartition, _Stand] = {}

    def look(self, stable: Mapping[TopicPartition, int], now_s: float) -> None:
        """Say so, once, where the same transaction is found open for a minute.

        Args:
            stable: last stable offsets of the partitions that have been read up to them.
            now_s: monotonic seconds.
        """
        before = self._stands
        self._stands = {tp: _same(before.get(tp), end) or _Stand(end, now_s) for tp, end in stable.items()}
        due = {tp: one for tp, one in self._stands.items() if not one.told and now_s - one.since_s >= _EVERY_S}
        if not due:
            return
        try:
            ends = self._cluster.end(list(due), End.HIGH)
        except KstreamError as error:  # a question beside the work must not end it
            log.warning("whether open transactions hide records is not known", why=str(error))
            return
        for tp, one in due.items():
            hides, one.since_s = ends[tp] > one.stable, now_s
            if hides and one.hides:
                self._tell(tp, one.stable, ends[tp])
                one.told = True
            one.hides = hides

    def _tell(self, partition: TopicPartition, stable: int, end: int) -> None:
        log.warning(
            "a transaction of a producer stays open on the input: what lies behind its first record cannot be read, "
            "and is no lag. If that does not end by itself, find it with `kafka-transactions.sh find-hanging` and "
            "abort it",
            partition=str(partition),
            offset=stable,
            end=end,
        )


def _same(stand: _Stand | None, stable: int) -> _Stand | None:
    return stand if stand is not None and stand.stable == stable else None
