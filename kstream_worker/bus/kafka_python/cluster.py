"""What can be asked about a Kafka cluster outside any group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from kafka import KafkaAdminClient
from kafka import errors as client
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.protocol.consumer import IsolationLevel
from kafka.structs import TopicPartition as ClientPartition

from kstream_worker.bus.common.ownership import find_unowned
from kstream_worker.bus.common.topic_id import topic_id_text
from kstream_worker.bus.kafka_python import internals
from kstream_worker.bus.kafka_python.errors import broker_error, classify, translate
from kstream_worker.bus.kafka_python.rights import Rights
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.errors import ConfigError, Retry
from kstream_worker.records import End, TopicPartition, Unowned

ISOLATION = {End.STABLE: IsolationLevel.READ_COMMITTED, End.HIGH: IsolationLevel.READ_UNCOMMITTED}


class KafkaCluster:
    """`ports.Cluster` on kafka-python.

    Args:
        settings: of all clients.
        group_id: the worker's group, for `check_rights`.
        transactional_prefix: what all its transactional ids start with, for `check_rights`.
        instance_id: static name of this process in the group.

    Raises:
        Retry: no broker answers within `bootstrap_timeout_ms`.
        ConfigError: the login, the certificate or a setting is refused.
    """

    def __init__(
        self, settings: KafkaSettings, *, group_id: str, transactional_prefix: str, instance_id: str | None = None
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._instance_id = instance_id
        self._rights = Rights(group_id, transactional_prefix, settings.user() or "<name>")
        with translate(f"connecting to {', '.join(settings.bootstrap_servers)}"):
            self._admin = KafkaAdminClient(**settings.for_admin())

    def cluster_id(self) -> str:
        """Identity of the cluster."""
        with self._asking("asking for the cluster id"):
            return internals.cluster_id(self._admin)

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions; None when the topic does not exist.

        Raises:
            ConfigError: the topic may not be seen, or its name is illegal.
        """
        found = self._existing(topic)
        return None if found is None else len(found["partitions"])

    def topic_id(self, topic: str) -> str:
        """What tells a topic from another of the same name; empty where there is none (brokers before 2.8 too).

        Raises:
            ConfigError: the topic may not be seen, or its name is illegal.
        """
        found = self._existing(topic)
        told = None if found is None else found.get("topic_id")
        return topic_id_text(UUID(told).bytes) if told else ""

    def topic_config(self, topic: str) -> dict[str, str]:
        """Settings of a topic by their native names; empty when they may not be read (DESCRIBE_CONFIGS)."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self._asking(f"asking for the settings of {topic}"):
            found = self._admin.describe_configs([resource], config_filter="all")
        values: Mapping[str, Mapping[str, Any]] = found.get("topic", {}).get(topic, {})
        return {name: "" if row["value"] is None else str(row["value"]) for name, row in values.items()}

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """First offsets that can be read."""
        return self._offsets(partitions, OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def end(self, partitions: Sequence[TopicPartition], end: End) -> dict[TopicPartition, int]:
        """Ends of partitions: below the first open transaction, or the high watermark."""
        return self._offsets(partitions, OffsetSpec.LATEST, ISOLATION[end])

    def at_time(self, partitions: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """First offsets at or after a record time; the stable end where there is none."""
        found = self._offsets(partitions, time_ms, IsolationLevel.READ_COMMITTED)
        missing = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.end(missing, End.STABLE) if missing else {})

    def unowned(self, topic: str) -> Unowned:
        """Partitions of the topic that nobody has although the group is settled."""
        if self._instance_id is None:
            return Unowned(())
        count = self.partition_count(topic) or 0
        with self._asking(f"asking who has the partitions of {topic}"):
            found = self._admin.describe_groups([self._group_id])[self._group_id]
        if found["error"] is not None:
            self._begin_afresh()  # the client keeps asking a coordinator that is none any more
            return Unowned(())
        if found["group_state"] != "Stable":
            return Unowned(())
        owners = {
            one.get("group_instance_id") or one["member_id"]: [
                (each["topic"], number)
                for each in (one["member_assignment"] or {}).get("assigned_partitions", ())
                for number in each["partitions"]
            ]
            for one in found["members"]
        }
        return find_unowned(topic, count, owners, self._instance_id)

    def check_rights(self, *, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
        """Each right the worker needs, tried; what is missing in words, with the right to grant."""
        with self._asking("checking rights"):
            return self._rights.missing(self._admin, inputs=inputs, outputs=outputs)

    def create_topics(self, partitions: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Create those topics that do not exist, with the broker's default replication; the names created.

        Raises:
            ConfigError: a right (CREATE) is missing, or a setting is refused.
        """
        wanted = {
            topic: {"num_partitions": count, "configs": dict(configs.get(topic, {}))}
            for topic, count in partitions.items()
            if self._topic(topic)[1] is not client.NoError
        }
        if not wanted:
            return []
        with self._asking("creating topics"):
            answer = self._admin.create_topics(wanted, raise_errors=False)
            created = [row["name"] for row in answer["topics"] if self._was_created(row)]
            self._admin.wait_for_topics(created)
        return created

    def close(self) -> None:
        """Stop."""
        with contextlib.suppress(client.KafkaError, OSError):
            self._admin.close()

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        """`translate`; and a client that has lost a broker begins afresh.

        Where a broker was away when the client last looked, it does not find the leaders on it until it looks again,
        minutes later, and fails meanwhile without asking anybody.
        """
        try:
            with translate(doing):
                yield
        except Retry as error:
            if isinstance(error.__cause__, client.UnknownBrokerIdError):
                self._begin_afresh()
            raise

    def _begin_afresh(self) -> None:
        with translate("connecting again"):
            former, self._admin = self._admin, KafkaAdminClient(**self._settings.for_admin())
        with contextlib.suppress(client.KafkaError, OSError):
            former.close()

    def _existing(self, topic: str) -> Mapping[str, Any] | None:
        found, error = self._topic(topic)
        if error is client.UnknownTopicOrPartitionError:
            return None
        if error is client.TopicAuthorizationFailedError:
            raise ConfigError(self._rights.hidden_topic(topic))
        if error is not client.NoError:
            raise classify(error(topic), f"asking for the topic {topic}")
        return found

    def _topic(self, topic: str) -> tuple[Mapping[str, Any], type[client.KafkaError]]:
        with self._asking(f"asking for the topic {topic}"):
            found: Mapping[str, Any] = self._admin.describe_topics([topic])[0]
        return found, broker_error(found["error_code"])

    def _was_created(self, row: Mapping[str, Any]) -> bool:
        error = broker_error(row["error_code"])
        if error is client.TopicAlreadyExistsError:  # another process was quicker
            return False
        if error is client.TopicAuthorizationFailedError:
            raise ConfigError(self._rights.missing_create(row["name"]))
        if error is not client.NoError:
            raise classify(error(row["error_message"] or ""), f"creating the topic {row['name']}")
        return True

    def _offsets(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec | int, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        wanted = {ClientPartition(*partition): spec for partition in partitions}
        if not wanted:
            return {}
        topics = ", ".join(sorted({partition.topic for partition in partitions}))
        with self._asking(f"asking for offsets of {topics}"):
            found = self._admin.list_partition_offsets(wanted, isolation_level=isolation)
        return {TopicPartition(*partition): int(answer.offset) for partition, answer in found.items()}
