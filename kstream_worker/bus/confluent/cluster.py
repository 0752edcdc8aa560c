"""What can be asked about a Kafka cluster outside any group."""

from __future__ import annotations

import base64
import contextlib
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.common.ownership import find_unowned, read_assignment
from kstream_worker.bus.common.topic_id import topic_id_text
from kstream_worker.bus.confluent.admin_api import ConfigResource, NewTopic, OffsetSpec, ResourceType
from kstream_worker.bus.confluent.clients import REQUEST_S, Admin
from kstream_worker.bus.confluent.errors import cause_of, classify, translate
from kstream_worker.bus.confluent.rights import Rights
from kstream_worker.bus.confluent.settings import ConfluentSettings
from kstream_worker.errors import ConfigError, Retry
from kstream_worker.records import End, TopicPartition, Unowned

ISOLATION = {End.STABLE: IsolationLevel.READ_COMMITTED, End.HIGH: IsolationLevel.READ_UNCOMMITTED}
CREATED_S = 30.0
REFRESH_S = 2.0
GROUP_S = 2.0  # asked by the loop now and then; every broker has to answer
HIDDEN = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART})


class ConfluentCluster:
    """`ports.Cluster` on librdkafka.

    Args:
        settings: of all clients.
        group_id: the worker's group, for `check_rights`.
        transactional_prefix: what all its transactional ids start with, for `check_rights`.
        instance_id: static name of this process in the group.

    Raises:
        Retry: no broker answers within 10 s.
        ConfigError: the login, the certificate or a setting is refused.
    """

    def __init__(
        self, settings: ConfluentSettings, *, group_id: str, transactional_prefix: str, instance_id: str | None = None
    ) -> None:
        self._group_id = group_id
        self._instance_id = instance_id
        self._settings = settings
        self._rights = Rights(group_id, transactional_prefix, settings.user() or "<name>")
        self._admin = Admin(settings)

    def cluster_id(self) -> str:
        """Identity of the cluster."""
        return self._admin.cluster_id

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions; None when the topic does not exist.

        Raises:
            ConfigError: the topic may not be seen, or its name is illegal.
        """
        found = self._describe(topic)
        return None if found is None else len(found.partitions)

    def topic_id(self, topic: str) -> str:
        """What tells a topic from another of the same name; empty where there is none (brokers before 2.8 too).

        Raises:
            ConfigError: the topic may not be seen, or its name is illegal.
        """
        found = self._describe(topic)
        if found is None or found.topic_id is None:
            return ""
        return topic_id_text(base64.b64decode(f"{found.topic_id}=="))

    def topic_config(self, topic: str) -> dict[str, str]:
        """Settings of a topic by their native names; empty when they may not be read (DESCRIBE_CONFIGS)."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        with translate(f"asking for the settings of {topic}"):
            (future,) = self._admin.client.describe_configs([resource], request_timeout=REQUEST_S).values()
            try:
                found = self._admin.answer(future)
            except KafkaException as error:
                if cause_of(error).code() in HIDDEN:
                    return {}
                raise
        return {name: "" if entry.value is None else str(entry.value) for name, entry in found.items()}

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """First offsets that can be read."""
        return self._offsets(partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def end(self, partitions: Sequence[TopicPartition], end: End) -> dict[TopicPartition, int]:
        """Ends of partitions: below the first open transaction, or the high watermark."""
        return self._offsets(partitions, OffsetSpec.latest(), ISOLATION[end])

    def at_time(self, partitions: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """First offsets at or after a record time; the stable end where there is none."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(time_ms), IsolationLevel.READ_COMMITTED)
        missing = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.end(missing, End.STABLE) if missing else {})

    def unowned(self, topic: str) -> Unowned:
        """Partitions of the topic that nobody has although the group is settled."""
        if self._instance_id is None:
            return Unowned(())
        count = self.partition_count(topic) or 0
        with translate(f"asking who has the partitions of {topic}"), warnings.catch_warnings():
            # Not `describe_consumer_groups`: while the coordinator moves, librdkafka 2.16 ends the process in it
            # (Assertion `eonce->refcnt > 0' failed). This asks every broker, and is called deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            groups: list[Any] = self._admin.client.list_groups(group=self._group_id, timeout=GROUP_S)
        ours = [one for one in groups if one.id == self._group_id]
        if len(ours) != 1:  # nobody coordinates it, or a broker that did so says that it still does
            return Unowned(())
        (found,) = ours
        if found.error is not None or found.state != "Stable":
            return Unowned(())
        # A static member's id begins with its static name.
        owners = {one.id: read_assignment(one.assignment) for one in found.members}
        return find_unowned(topic, count, owners, self._instance_id)

    def check_rights(self, *, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
        """Each right the worker needs, tried; what is missing in words, with the right to grant."""
        with translate("checking rights"):
            return self._rights.missing(self._admin, self._settings.for_producer, inputs=inputs, outputs=outputs)

    def create_topics(self, partitions: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Create those topics that do not exist, with the broker's default replication; the names created.

        Raises:
            ConfigError: a right (CREATE) is missing, or a setting is refused.
        """
        wanted = [
            NewTopic(topic, count, config=dict(configs.get(topic, {})))
            for topic, count in partitions.items()
            if self._describe(topic, hidden_is_none=True) is None
        ]
        if not wanted:
            return []
        futures = self._admin.client.create_topics(wanted, request_timeout=CREATED_S, operation_timeout=CREATED_S)
        created = [topic for topic, future in futures.items() if self._was_created(topic, future)]
        self._await_topics(created)
        return created

    def close(self) -> None:
        """Stop."""
        self._admin.close()

    def _describe(self, topic: str, *, hidden_is_none: bool = False) -> Any:
        """What the broker says about a topic; None where it does not exist."""
        try:
            futures = self._admin.client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_S)
            return self._admin.answer(futures[topic])
        except KafkaException as error:
            code = cause_of(error).code()
            hidden = code == KafkaError.TOPIC_AUTHORIZATION_FAILED
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART or (hidden and hidden_is_none):
                return None
            if hidden:
                raise ConfigError(self._rights.hidden_topic(topic)) from error
            raise classify(error, f"asking for the topic {topic}") from error

    def _was_created(self, topic: str, future: Any) -> bool:
        try:
            self._admin.answer(future)
        except KafkaException as error:
            code = cause_of(error).code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:  # another process was quicker
                return False
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise ConfigError(self._rights.missing_create(topic)) from error
            raise classify(error, f"creating the topic {topic}") from error
        return True

    def _await_topics(self, topics: Sequence[str]) -> None:
        """Wait until the brokers know of new topics, or for long enough."""
        deadline = Deadline(CREATED_S)
        for topic in topics:
            while self._describe(topic) is None and not deadline.passed():
                time.sleep(0.05)

    def _offsets(
        self, partitions: Sequence[TopicPartition], spec: Any, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        topics = ", ".join(sorted({partition.topic for partition in partitions}))
        wanted = {ClientPartition(*partition): spec for partition in partitions}
        doing = f"asking for offsets of {topics}"
        try:
            with translate(doing):
                futures = self._admin.client.list_offsets(wanted, isolation_level=isolation, request_timeout=REQUEST_S)
                found = {partition: self._admin.answer(future) for partition, future in futures.items()}
        except Retry:
            self._refresh(topics.split(", "))
            raise
        if any(answer.offset == OFFSET_INVALID for answer in found.values()):
            # A leader that is dead: the client gives this number instead of an error.
            self._refresh(topics.split(", "))
            raise Retry(f"{doing}: a partition has no leader at present")
        return {TopicPartition(each.topic, each.partition): int(answer.offset) for each, answer in found.items()}

    def _refresh(self, topics: Sequence[str]) -> None:
        """Have the client learn leaders anew: left alone, it asks the former one, with its former epoch, for ever."""
        for topic in topics:
            with contextlib.suppress(KafkaException):
                self._admin.client.list_topics(topic, timeout=REFRESH_S)
