"""One transaction of one producer: begin, send, check every delivery, send offsets, commit."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.common.reasons import NoSuchPartition
from kstream_worker.bus.common.writer import Abandoned, Attempt, Phase
from kstream_worker.bus.confluent.clients import SLICE_S, Notes, new_producer
from kstream_worker.bus.confluent.errors import cause_of
from kstream_worker.bus.confluent.membership import ConfluentMembership
from kstream_worker.records import Messages, Progress, TopicPartition

log = logging.getLogger(__name__)


class Session:
    """A producer after `init_transactions`. Once anything raised it is never used again.

    Args:
        settings: configuration of the producer, transactional id included.
        stop: once set, the opening is given up.
    """

    def __init__(self, settings: Mapping[str, Any], stop: threading.Event) -> None:
        self.notes = Notes()
        self.producer = new_producer(settings, self.notes)
        try:
            self._init_transactions(stop)
        except BaseException:
            discard(self.producer)
            raise

    def _init_transactions(self, stop: threading.Event) -> None:
        """Wait as long as it takes: the caller stops waiting, and finds the producer later."""
        while not stop.is_set():
            try:
                self.producer.init_transactions(SLICE_S)
            except KafkaException as error:
                self.producer.poll(0)
                refusal = self.notes.refusal("opening the transactional producer")
                if refusal is not None:
                    raise refusal from error
                if not (cause_of(error).retriable() or cause_of(error).code() == KafkaError._TIMED_OUT):
                    raise
            else:
                return
        raise Abandoned

    def close(self) -> None:
        """Stop a producer without a transaction."""
        with suppress(KafkaException):
            self.producer.close()


class Transaction(Attempt):
    """One attempt to commit.

    Args:
        session: the producer to use.
        messages: what to send.
        progress: positions to commit.
        membership: the capture that the broker checks them against.
        token: stored with each position.
    """

    def __init__(
        self,
        session: Session,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        membership: ConfluentMembership,
        token: str,
    ) -> None:
        super().__init__()
        self._producer = session.producer
        self._messages = messages
        self._metadata = membership.metadata
        self._offsets = [
            ClientPartition(*partition, reached.offset, token, reached.leader_epoch)
            for partition, reached in progress.items()
        ]
        self._failures: list[tuple[KafkaError, TopicPartition]] = []

    def run(self, deadline: Deadline) -> None:
        """Do all steps; belongs into a thread of its own, where no signal has to wait for it.

        Raises:
            KafkaException: what the client says; nothing is known then from `Phase.ENDING` on.
            ConfigError: an output partition does not exist.
        """
        self._enter(Phase.SENDING)
        self._producer.begin_transaction()
        self._deliver(deadline)
        self._enter(Phase.OFFSETS)
        self._send_offsets(deadline)
        self._enter(Phase.ENDING)
        self._commit()
        self._enter(Phase.DONE)

    def _deliver(self, deadline: Deadline) -> None:
        """Send everything and see that every single record arrived."""
        for messages in self._messages:
            if len(messages):
                self._send(messages)
        waited = 0
        while self._producer.flush(SLICE_S) > 0 and not self._failures:
            self._enter(Phase.SENDING)
            waited += 1
            if waited % 5 == 0:  # a transaction that the broker refused waits silently: asking again does no harm
                self._send_offsets(deadline)
        self._check_failures()

    def _send(self, messages: Messages) -> None:
        """Hand records to the producer in one loop in C. (`produce_batch` takes neither times nor headers.)"""
        topic, partition = messages.partition

        def failed(error: KafkaError, message: Message) -> None:
            del message
            self._failures.append((error, messages.partition))

        # A time of 0 is "now" for this client, and so is none.
        times = messages.timestamps if min(messages.timestamps) >= 0 else [max(t, 0) for t in messages.timestamps]
        rows = (repeat(topic), messages.values, messages.keys, repeat(partition), repeat(failed), repeat(failed), times)
        try:
            if any(messages.headers):
                deque(map(self._producer.produce, *rows, map(list, messages.headers)), maxlen=0)
            else:
                deque(map(self._producer.produce, *rows), maxlen=0)
        except KafkaException as error:
            self._check_failures()
            self._check_partition(cause_of(error), messages.partition)
            raise

    def _check_failures(self) -> None:
        for error, partition in self._failures:
            log.warning("a record for %s was not delivered: %s", partition, error)
            self._check_partition(error, partition)
            raise KafkaException(error)

    def _check_partition(self, error: KafkaError, partition: TopicPartition) -> None:
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            raise NoSuchPartition(partition)

    def _send_offsets(self, deadline: Deadline) -> None:
        self._producer.send_offsets_to_transaction(self._offsets, self._metadata, max(deadline.left_s(), 0.01))

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(SLICE_S)
            except KafkaException as error:
                if not (cause_of(error).retriable() or cause_of(error).code() == KafkaError._TIMED_OUT):
                    raise
                self._enter(Phase.ENDING)
            else:
                return


def discard(producer: Producer) -> None:
    """Throw a producer away at once; a daemon thread sees its threads off."""

    def finish() -> None:
        with suppress(Exception):
            producer.purge(blocking=False)
            producer.flush(0)

    threading.Thread(target=finish, name="kafka-producer-discard", daemon=True).start()
