"""The rights that a worker needs, each tried against the broker, so that none is found missing by silence.

Without READ on its input a consumer polls nothing for ever, without an error. Topics are asked for what their
authorizer allows; a group and a transactional id have no such answer while they do not exist, so there a request is
made that does nothing when it is allowed: a heartbeat of nobody, and a producer id for a name of our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as client
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import InitProducerIdRequest

from kstream_worker.bus.common.reasons import RightsWords
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


class Rights(RightsWords):
    """Rights of one application, to be tried."""

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

    def _group(self, admin: KafkaAdminClient) -> Iterator[str]:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=-1, member_id=PROBE)
        error = _try(admin, self.group_id, CoordinatorType.GROUP, request)
        if issubclass(error, client.GroupAuthorizationFailedError):
            yield self.missing_on_group()

    def _transactions(self, admin: KafkaAdminClient) -> Iterator[str]:
        name = self.transactional_prefix + PROBE
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1
        )
        error = _try(admin, name, CoordinatorType.TRANSACTION, request)
        if issubclass(error, client.TransactionalIdAuthorizationFailedError):
            yield self.missing_on_transactions()

    def _topics(self, admin: KafkaAdminClient, operation: str, role: str, topics: Sequence[str]) -> Iterator[str]:
        if not topics:
            return
        answers = {found["name"]: found for found in admin.describe_topics(list(topics))}
        for topic in topics:
            found = answers[topic]
            error = broker_error(found["error_code"])
            if error is client.UnknownTopicOrPartitionError:
                yield self.missing_topic(role, topic)
            elif error is client.InvalidTopicError:
                yield self.bad_topic_name(role, topic)
            elif error is client.TopicAuthorizationFailedError or not _allows(found, operation):
                yield self.missing_on_topic(operation, role, topic)


def _allows(found: Mapping[str, Any], operation: str) -> bool:
    allowed = found["authorized_operations"]
    return allowed is None or operation in allowed  # None: a broker that does not tell


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
