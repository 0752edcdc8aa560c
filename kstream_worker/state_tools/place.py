"""Where state is: a bus, the input topic and the topic of the state."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kstream_worker.errors import ConfigError, Retry
from kstream_worker.ports import Bus, Cluster
from kstream_worker.records import Committed, End, TopicPartition
from kstream_worker.state.format import Header
from kstream_worker.state.opening import Found
from kstream_worker.worker.patience import Patience

ANSWER_S = 10.0  # how long one question to the bus may take
_GIVE_UP_S = 60.0
_SILENT_S = 5.0  # people wait for these commands: after that they are told what for

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where state is.

    Attributes:
        bus: its adapters.
        cluster: open; closed by whoever opened it.
        topic: the input.
        state_topic: of the state.
        clock: monotonic seconds.
        sleep: waits that many seconds.
    """

    bus: Bus
    cluster: Cluster
    topic: str
    state_topic: str
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def input_of(self, number: int) -> TopicPartition:
        """A partition of the input."""
        return TopicPartition(self.topic, number)

    def state_of(self, number: int) -> TopicPartition:
        """The partition of the state topic that belongs to it."""
        return TopicPartition(self.state_topic, number)

    def partitions(self) -> range:
        """Partitions of the state topic.

        Raises:
            ConfigError: there is no such topic.
        """
        count = self.persist(lambda: self.cluster.partition_count(self.state_topic))
        if not count:
            raise ConfigError(
                f"the state topic {self.state_topic} does not exist. Correct state.topic, or make it: "
                "kstream-worker topics --create"
            )
        return range(count)

    def chosen(self, number: int | None) -> range:
        """All partitions, or the one that was named.

        Raises:
            ConfigError: there is no such partition, or no such topic.
        """
        everything = self.partitions()
        if number is None:
            return everything
        if number not in everything:
            raise ConfigError(f"{self.state_of(number)} does not exist: partitions are 0 to {everything[-1]}")
        return range(number, number + 1)

    def found(
        self, partition: TopicPartition, committed: Committed | None, header: Header | None, keys: int, generation: int
    ) -> Found:
        """What a worker that opens this partition would hold against each other."""
        return Found(
            partition=partition,
            committed=committed,
            header=header,
            keys=keys,
            generation=generation,
            first=0,
            earliest=self.persist(lambda: self.cluster.earliest([partition])[partition]),
            end=self.persist(lambda: self.cluster.end([partition], End.HIGH)[partition]),
            cluster_id=self.persist(self.cluster.cluster_id),
            topic_id=self.persist(lambda: self.cluster.topic_id(partition.topic)),
        )

    def persist(self, call: Callable[[], T]) -> T:
        """The answer to a question; see `persist`."""
        return persist(call, self.clock, self.sleep)


def persist(
    call: Callable[[], T], clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> T:
    """The answer to a question, asked again while the bus does not answer; standard error says so once.

    Raises:
        Fatal: it did not answer for a minute.
    """
    patience = Patience(clock, _GIVE_UP_S, 0.1, "Check that the brokers run and can be reached.")
    began, told = clock(), False
    while True:
        try:
            return call()
        except Retry as error:
            pause = patience.failed(str(error))
            if not told and clock() - began >= _SILENT_S:
                told = True
                print(f"{error}. Trying for a minute", file=sys.stderr, flush=True)
            sleep(pause)
