"""The rights that a worker needs, each tried against the broker, so that none is found missing by silence.

Topics and the group are asked for what their authorizer allows; a transactional id has no such answer, so a producer
is opened under a name of our own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kstream_worker.bus.common.bounded import Deadline, run_bounded
from kstream_worker.bus.common.reasons import RightsWords
from kstream_worker.bus.confluent.admin_api import AclOperation
from kstream_worker.bus.confluent.clients import REQUEST_S, Admin
from kstream_worker.bus.confluent.errors import cause_of
from kstream_worker.bus.confluent.transaction import Session
from kstream_worker.errors import Retry

PROBE = "check"
PROBE_S = 30.0
PAUSE_S = 0.1
PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._WAIT_COORD,
        KafkaError._TIMED_OUT,
    }
)


class Rights(RightsWords):
    """Rights of one application, to be tried."""

    def missing(
        self,
        admin: Admin,
        producer_settings: Callable[[str], Mapping[str, Any]],
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> list[str]:
        """All that is missing, in words with the remedy.

        Args:
            admin: whom to ask.
            producer_settings: configuration of a producer of this transactional id.
            inputs: topics to read.
            outputs: topics to write.

        Raises:
            KafkaException: the broker could not be asked.
            Retry: it did not answer in time.
        """
        return [
            *self._topics(admin, "READ", "input", inputs),
            *self._topics(admin, "WRITE", "output", outputs),
            *self._group(admin),
            *self._transactions(producer_settings(self.transactional_prefix + PROBE)),
        ]

    def _topics(self, admin: Admin, operation: str, role: str, topics: Sequence[str]) -> Iterator[str]:
        if not topics:
            return
        wanted = TopicCollection(list(topics))
        futures = admin.client.describe_topics(wanted, include_authorized_operations=True, request_timeout=REQUEST_S)
        for topic in topics:
            try:
                found = admin.answer(futures[topic])
            except KafkaException as error:
                code = cause_of(error).code()
                if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    yield self.missing_topic(role, topic)
                elif code == KafkaError.TOPIC_EXCEPTION:
                    yield self.bad_topic_name(role, topic)
                elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    yield self.missing_on_topic(operation, role, topic)
                else:
                    raise
            else:
                if not _allows(found.authorized_operations, operation):
                    yield self.missing_on_topic(operation, role, topic)

    def _group(self, admin: Admin) -> Iterator[str]:
        try:
            allowed = _allows(self._describe_group(admin).authorized_operations, "READ")
        except KafkaException as error:
            if cause_of(error).code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise
            allowed = False
        if not allowed:
            yield self.missing_on_group()

    def _describe_group(self, admin: Admin) -> Any:
        """Ask again while the coordinator starts up: its topic is made at the first request."""
        deadline = Deadline(PROBE_S)
        while True:
            futures = admin.client.describe_consumer_groups(
                [self.group_id], include_authorized_operations=True, request_timeout=REQUEST_S
            )
            try:
                return admin.answer(futures[self.group_id])
            except KafkaException as error:
                if cause_of(error).code() not in PASSING or deadline.passed():
                    raise
                time.sleep(PAUSE_S)

    def _transactions(self, settings: Mapping[str, Any]) -> Iterator[str]:
        stop = threading.Event()
        try:
            opened = run_bounded(lambda: Session(settings, stop).close(), PROBE_S, "kafka-check")
        except KafkaException as error:
            if cause_of(error).code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise
            yield self.missing_on_transactions()
        else:
            if not opened:
                stop.set()
                raise Retry("the transaction coordinator did not become available")


def _allows(operations: Sequence[Any] | None, operation: str) -> bool:
    return operations is None or AclOperation[operation] in operations  # None: a broker that does not tell
