"""A look at the consumer group from outside, for tools: nothing here joins it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import errors as client

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.kafka_python.errors import translate
from kstream_worker.bus.kafka_python.offsets import read_committed_offsets
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.records import Committed, TopicPartition


class KafkaGroup:
    """`ports.Group` on kafka-python.

    Args:
        settings: of all clients.
        group_id: the consumer group.

    Raises:
        Retry: no broker answers.
        ConfigError: the login, the certificate or a setting is refused.
    """

    def __init__(self, settings: KafkaSettings, *, group_id: str) -> None:
        self._group_id = group_id
        with translate(f"connecting to {', '.join(settings.bootstrap_servers)}"):
            self._admin: Any = KafkaAdminClient(**settings.for_admin())
            try:
                # It has the group's name and subscribes to nothing, so it never becomes a member.
                self._consumer: Any = KafkaConsumer(**settings.for_consumer(), group_id=group_id)
            except BaseException:
                self._admin.close()
                raise

    def members(self) -> list[str]:
        """Static names, or client ids, with their hosts.

        Raises:
            Retry: the coordinator does not answer.
            ConfigError: the right DESCRIBE (or READ) on the group is missing.
        """
        with translate(f"asking for the members of the group {self._group_id}"):
            found = self._admin.describe_groups([self._group_id])[self._group_id]
            error = found["error"]
            if error is not None and "GroupIdNotFound" not in error:
                raise (
                    client.GroupAuthorizationFailedError(error)
                    if "Authorization" in error
                    else client.KafkaError(error)
                )
        return [
            f"{one.get('group_instance_id') or one['client_id']} on {one['client_host']}" for one in found["members"]
        ]

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
        with contextlib.suppress(client.KafkaError, OSError):
            self._consumer.close(autocommit=False)
        with contextlib.suppress(client.KafkaError, OSError):
            self._admin.close()
