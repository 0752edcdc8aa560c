"""The rights that a worker needs, each tried against the broker, so that none is found missing by silence.

Without READ on its input a consumer polls nothing for ever, without an error. Topics are asked for what their
authorizer allows; a group and a transactional id have no such answer while they do not exist, so there a request is
made that does nothing when it is allowed: a heartbeat of nobody, and a producer id for a name of our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as client
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import InitProducerIdRequest

from kstream_worker.bus.kafka_python.errors import broker_error

PROBE = "check"
COORDINATOR_TIMEOUT_S = 30.0
PAUSE_S = 0.1
PASSING = (
    client.CoordinatorLoadInProgressError,
    client.CoordinatorNotAvailableError,
    client.NotCoordinatorError,
    client.ConcurrentTransactionsError,
)


@dataclass(frozen=True)
class Rights:
    """Rights of one application.

    Args:
        group_id: its consumer group.
        transactional_prefix: what all its transactional ids start with.
        user: whom rights are to be granted, for the remedy.
    """

    group_id: str
    transactional_prefix: str
    user: str = "<name>"

    def missing(self, admin: KafkaAdminClient, *, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
        """All that is missing, in words with the remedy.

        Raises:
            KafkaError: the broker could not be asked.
        """
        return [
            *self._topics(admin, "READ", "input", inputs),
            *self._topics(admin, "WRITE", "output", outputs),
            *self._group(admin),
            *self._transactions(admin),
        ]

    def hidden_topic(self, topic: str) -> str:
        """A topic that may not even be seen."""
        return f"no right on the topic {topic}, not even to see it. {self._grant('READ', _topic(topic))} (or WRITE)"

    def missing_create(self, topic: str) -> str:
        """A topic that may not be created."""
        return f"the topic {topic} may not be created. {self._grant('CREATE', _topic(topic))}"

    def _group(self, admin: KafkaAdminClient) -> Iterator[str]:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=-1, member_id=PROBE)
        error = _try(admin, self.group_id, CoordinatorType.GROUP, request)
        if issubclass(error, client.GroupAuthorizationFailedError):
            yield f"READ on the group {self.group_id} is missing. {self._grant('READ', f'--group {self.group_id}')}"

    def _transactions(self, admin: KafkaAdminClient) -> Iterator[str]:
        name = self.transactional_prefix + PROBE
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        )
        error = _try(admin, name, CoordinatorType.TRANSACTION, request)
        if issubclass(error, client.TransactionalIdAuthorizationFailedError):
            resource = f"--transactional-id {self.transactional_prefix} --resource-pattern-type prefixed"
            yield (
                f"WRITE on transactional ids that start with {self.transactional_prefix} is missing. "
                + self._grant("WRITE", resource)
            )

    def _topics(self, admin: KafkaAdminClient, operation: str, role: str, topics: Sequence[str]) -> Iterator[str]:
        if not topics:
            return
        answers = {found["name"]: found for found in admin.describe_topics(list(topics))}
        for topic in topics:
            found = answers[topic]
            error = broker_error(found["error_code"])
            if error is client.UnknownTopicOrPartitionError:
                flags = "--create --partitions N" if role == "input" else "--create"
                yield f"the {role} topic {topic} does not exist. Correct its name, or: kstream-worker topics {flags}"
            elif error is client.InvalidTopicError:
                yield f"the {role} topic {topic} has a name that Kafka does not allow"
            elif error is client.TopicAuthorizationFailedError or not _allows(found, operation):
                yield f"{operation} on the {role} topic {topic} is missing. {self._grant(operation, _topic(topic))}"

    def _grant(self, operation: str, resource: str) -> str:
        principal = f"User:{self.user}"
        return f"Grant it: kafka-acls --add --allow-principal {principal} --operation {operation.title()} {resource}"


def _allows(found: Mapping[str, Any], operation: str) -> bool:
    allowed = found["authorized_operations"]
    return allowed is None or operation in allowed  # None: a broker that does not tell


def _topic(topic: str) -> str:
    return f"--topic {topic}"


def _try(admin: Any, key: str, kind: CoordinatorType, request: Any) -> type[client.KafkaError]:
    """The class of the answer to a request that goes to a coordinator (no public call sends one)."""

    async def send() -> type[client.KafkaError]:
        coordinator = await admin._find_coordinator_id(key, key_type=kind)
        response = await admin._manager.send(request, node_id=coordinator)
        return broker_error(response.error_code)

    return _patiently(lambda: _class_of(lambda: admin._manager.run(send)))


def _class_of(ask: Callable[[], type[client.KafkaError]]) -> type[client.KafkaError]:
    try:
        return ask()
    except (client.AuthorizationError, *PASSING) as error:
        return type(error)


def _patiently(ask: Callable[[], type[client.KafkaError]]) -> type[client.KafkaError]:
    """Ask again while the coordinator starts up: its topic is made at the first request."""
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while True:
        answer = ask()
        if answer not in PASSING:
            return answer
        if time.monotonic() > deadline:
            raise answer("the coordinator did not become available")
        time.sleep(PAUSE_S)
