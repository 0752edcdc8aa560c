"""What can be asked about the fake broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from kstream_worker.records import End, TopicPartition, Unowned

if TYPE_CHECKING:
    from kstream_worker.bus.fake.broker import FakeBroker


class FakeCluster:
    """The `Cluster` of a fake broker."""

    def __init__(self, broker: FakeBroker, group: str, identity: str) -> None:
        self._broker = broker
        self._group = broker.group(group)
        self._identity = identity

    def cluster_id(self) -> str:
        """A fixed name."""
        self._reach()
        return "fake"

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions; None when the topic does not exist."""
        self._reach()
        return len(self._broker.partitions(topic)) or None

    def topic_id(self, topic: str) -> str:
        """Another one each time the topic is created; empty when it does not exist."""
        self._reach()
        return self._broker.topic_id(topic)

    def topic_config(self, topic: str) -> dict[str, str]:
        """The settings given to `create_topic`."""
        self._reach()
        return dict(self._broker.configs.get(topic, {}))

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """First offsets that can be read."""
        self._reach()
        return {partition: self._broker.log(partition).start for partition in partitions}

    def end(self, partitions: Sequence[TopicPartition], end: End) -> dict[TopicPartition, int]:
        """Ends of partitions."""
        self._reach()
        logs = {partition: self._broker.log(partition) for partition in partitions}
        return {partition: log.end if end is End.HIGH else log.stable_end() for partition, log in logs.items()}

    def at_time(self, partitions: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """First offsets at or after a record time; the stable end where there is none."""
        self._reach()
        return {partition: self._broker.log(partition).first_at(time_ms) for partition in partitions}

    def unowned(self, topic: str) -> Unowned:
        """Partitions that the group has lost (`Group.lose`)."""
        self._reach()
        return self._group.unowned(self._identity, self._broker.partitions(topic))

    def check_rights(self, *, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
        """Topics that do not exist and rights that `Faults.deny` has taken away."""
        return [
            *(problem for topic in inputs for problem in self._problems("read", topic)),
            *(problem for topic in outputs for problem in self._problems("write", topic)),
        ]

    def create_topics(self, partitions: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Create those topics that do not exist; the names created."""
        missing = [name for name in partitions if not self._broker.partitions(name)]
        for name in missing:
            self._broker.create_topic(name, partitions[name], dict(configs.get(name, {})))
        return missing

    def close(self) -> None:
        """Nothing to stop."""

    def _reach(self) -> None:
        self._broker.faults.reach("cluster", self._identity)

    def _problems(self, right: Literal["read", "write"], topic: str) -> list[str]:
        if not self._broker.partitions(topic):
            return [f"topic '{topic}' does not exist: create it"]
        if (right, topic) in self._broker.faults.denied:
            return [f"no right to {right} topic '{topic}': grant it"]
        return []
