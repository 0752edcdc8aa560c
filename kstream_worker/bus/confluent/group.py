"""A look at the consumer group from outside, for tools: nothing here joins it."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from kstream_worker.bus.common.bounded import Deadline, run_bounded
from kstream_worker.bus.confluent.clients import REQUEST_S, Admin, Notes, new_consumer
from kstream_worker.bus.confluent.errors import cause_of, classify
from kstream_worker.bus.confluent.offsets import read_committed_offsets
from kstream_worker.bus.confluent.settings import ConfluentSettings
from kstream_worker.records import Committed, TopicPartition

CLOSE_S = 5.0


class ConfluentGroup:
    """`ports.Group` on librdkafka.

    Args:
        settings: of all clients.
        group_id: the consumer group.

    Raises:
        Retry: no broker answers.
        ConfigError: the login, the certificate or a setting is refused.
    """

    def __init__(self, settings: ConfluentSettings, *, group_id: str) -> None:
        self._group_id = group_id
        self._admin = Admin(settings)
        # It has the group's name and subscribes to nothing, so it never becomes a member.
        self._consumer = new_consumer({**settings.for_consumer(), "group.id": group_id}, Notes())

    def members(self) -> list[str]:
        """Static names, or client ids, with their hosts.

        Raises:
            Retry: the coordinator does not answer.
            ConfigError: the right DESCRIBE (or READ) on the group is missing.
        """
        try:
            futures = self._admin.client.describe_consumer_groups([self._group_id], request_timeout=REQUEST_S)
            found = self._admin.answer(futures[self._group_id])
        except KafkaException as error:
            if cause_of(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise classify(error, f"asking for the members of the group {self._group_id}") from error
        return [f"{one.group_instance_id or one.client_id} on {one.host}" for one in found.members]

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions, once no transaction on them is open.

        Raises:
            Retry: a transaction is still open, or the broker did not answer in time.
        """
        return read_committed_offsets(self._consumer, partitions, Deadline(timeout_s))

    def close(self) -> None:
        """Stop."""
        run_bounded(self._consumer.close, CLOSE_S, "kafka-close")
        self._admin.close()
