"""Whether open partitions still stand on the topics that they were opened on.

A topic that is deleted and made again, or whose records are deleted, while workers go on would otherwise be missed at
the next start only: then models that had no reason to be written since are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import structlog

from kstream_worker.errors import Fatal, KstreamError
from kstream_worker.ports import Cluster
from kstream_worker.records import TopicPartition

log = structlog.get_logger(__name__)

_EVERY_S = 30.0


class Footing(NamedTuple):
    """What a partition was opened on.

    Attributes:
        input_id: of the input topic; empty when unknown.
        state_id: of the state topic; empty when unknown.
        state_start: first offset of the partition's part of it.
    """

    input_id: str
    state_id: str
    state_start: int


class FootingWatch:
    """Asks now and then.

    Args:
        cluster: knows the topics.
        topic: the input.
        state_topic: of the state.
    """

    def __init__(self, cluster: Cluster, topic: str, state_topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._state_topic = state_topic
        self._footings: dict[TopicPartition, Footing] = {}
        self._next_s = 0.0

    def opened(self, partition: TopicPartition, footing: Footing) -> None:
        """A partition is open."""
        self._footings[partition] = footing

    def forget(self, partition: TopicPartition) -> None:
        """The partition is not ours any more."""
        self._footings.pop(partition, None)

    def shaken(self, now_s: float) -> list[TopicPartition]:
        """Partitions whose part of the state topic has lost records since the last look.

        Args:
            now_s: monotonic seconds.

        Raises:
            Fatal: the input is another topic of that name, in which positions mean nothing.
        """
        if now_s < self._next_s or not self._footings:
            return []
        self._next_s = now_s + _EVERY_S
        try:
            found = self._ask(list(self._footings))
        except KstreamError as error:  # a question beside the work must not end it
            log.warning("whether the topics are still the same is not known", why=str(error))
            return []
        before, self._footings = self._footings, found
        if any(_differ(before[tp].input_id, now.input_id) for tp, now in found.items()):
            raise Fatal(
                f"the input topic '{self._topic}' was deleted and created again while it was read: positions and "
                "models belong to the former one. Raise app.model_epoch and start once with --discard-state: models "
                "start afresh at the beginning of the new one, whose outputs get ids of their own. Or take the models "
                "over with `kstream-worker state export` and `state import --new-offsets --force`"
            )
        return self._tell(sorted(tp for tp, now in found.items() if _is_shaken(before[tp], now)))

    def _ask(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Footing]:
        input_id, state_id = map(self._cluster.topic_id, (self._topic, self._state_topic))
        state = {tp: TopicPartition(self._state_topic, tp.partition) for tp in partitions}
        starts = self._cluster.earliest(list(state.values()))
        return {
            tp: Footing(input_id or self._footings[tp].input_id, state_id or self._footings[tp].state_id, starts[one])
            for tp, one in state.items()
        }

    def _tell(self, shaken: list[TopicPartition]) -> list[TopicPartition]:
        if shaken:
            log.error(
                "records of the state topic were deleted, or the topic was created again, while workers run: all "
                "models of these partitions are written to it anew; look at it with `kstream-worker check`",
                topic=self._state_topic,
                partitions=[str(tp) for tp in shaken],
            )
        return shaken


def _is_shaken(before: Footing, now: Footing) -> bool:
    return _differ(before.state_id, now.state_id) or before.state_start != now.state_start


def _differ(before: str, now: str) -> bool:
    """Whether two ids differ, as far as both are known."""
    return bool(before) and bool(now) and before != now
