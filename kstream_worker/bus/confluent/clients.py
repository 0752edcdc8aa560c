"""librdkafka clients with their errors and log lines in our hands, and without hidden waits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from kstream_worker.bus.common.bounded import Deadline
from kstream_worker.bus.confluent.errors import MEANINGS, TLS, cause_of, meaning_of
from kstream_worker.bus.confluent.settings import ConfluentSettings
from kstream_worker.errors import ConfigError, KstreamError, Retry

T = TypeVar("T")

client_log = logging.getLogger("kafka.librdkafka")

MAX_RECORDS = 8_000  # of one poll; enough that what a batch costs does not show, little enough to react in time


def plain(record: logging.LogRecord) -> bool:
    """A filter for its lines: warnings at most, since what follows from them the worker says itself.

    The client's word for the kind of line goes into the template, by which repeated lines are known.
    """
    if record.levelno > logging.WARNING:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    if isinstance(record.args, tuple) and len(record.args) == 3:
        kind, client, text = record.args
        record.msg, record.args = f"{kind} [%s] %s", (client, text)
    return True


client_log.addFilter(plain)

HANDSHAKE = "SSL_HANDSHAKE"  # the state in which a broker that speaks no TLS hangs up
SLICE_S = 0.2  # between two looks at what the client noted
CONNECT_S = 10.0
REQUEST_S = 10.0  # the limit of one request
PATIENCE_S = 40.0  # beyond it no request is under way any more


class Notes:
    """What a client said by the way; without it a login that is refused looks like a broker that is slow."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """The client's `error_cb`."""
        if self._last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:  # which says less than the one before
            self._last = error

    def refusal(self, doing: str, *, connected: bool = False) -> KstreamError | None:
        """What no retry can mend. A refused TLS connection is that only before the first success."""
        if self._last is None or (self._last.code() == KafkaError._SSL and connected):
            return None
        made, _ = MEANINGS.get(self._last.code(), (Retry, ""))
        return meaning_of(self._last, doing) if issubclass(made, ConfigError) else None

    def late(self, meaning: Retry, doing: str) -> KstreamError:
        """The error of a connection that was not made in time, with the last thing said about it."""
        if self._last is None:
            return meaning
        said = self._last.str().strip()
        if HANDSHAKE in said:
            return ConfigError(f"{doing}: {TLS} ({said})")
        return Retry(f"{meaning}; the last attempt ended with: {said}")


def new_consumer(settings: Mapping[str, Any], notes: Notes) -> Consumer:
    """A consumer whose errors go to `notes`; connects to nothing yet."""
    return _made(lambda: Consumer(_watched(settings, notes)))


def take(consumer: Consumer, timeout_s: float) -> list[Message]:
    """Wait for the first record, then take what is there: one call for many waits until it has them all."""
    messages: list[Message] = consumer.consume(1, timeout_s)
    return messages + consumer.consume(MAX_RECORDS - 1, 0) if messages else messages


def new_producer(settings: Mapping[str, Any], notes: Notes) -> Producer:
    """A producer whose errors go to `notes`; connects to nothing yet."""
    return _made(lambda: Producer(_watched(settings, notes)))


def new_admin(settings: Mapping[str, Any], notes: Notes) -> AdminClient:
    """An admin client whose errors go to `notes`; connects to nothing yet."""
    return _made(lambda: AdminClient(_watched(settings, notes)))


def connect(ask: Callable[[float], T], serve: Callable[[], object], notes: Notes, doing: str) -> T:
    """Ask a new client something until it answers.

    Args:
        ask: a call with a timeout in seconds.
        serve: runs the client's callbacks.
        notes: what they fill.
        doing: for messages.

    Raises:
        Retry: no answer within `CONNECT_S`.
        ConfigError: the login, the certificate or a setting is refused.
    """
    deadline = Deadline(CONNECT_S)
    while True:
        try:
            return ask(max(min(SLICE_S, deadline.left_s()), 0.01))
        except KafkaException as error:
            serve()
            refusal = notes.refusal(doing)
            if refusal is not None:
                raise refusal from error
            meaning = meaning_of(cause_of(error), doing)
            if not isinstance(meaning, Retry):
                raise meaning from error
            if deadline.passed():
                raise notes.late(meaning, doing) from error


class Admin:
    """A connected admin client and the answers to what it is asked.

    Args:
        settings: of all clients.

    Raises:
        Retry: no broker answers within `CONNECT_S`.
        ConfigError: the login, the certificate or a setting is refused.
    """

    def __init__(self, settings: ConfluentSettings) -> None:
        self._notes = Notes()
        client = new_admin(settings.for_admin(), self._notes)
        doing = f"connecting to {', '.join(settings.bootstrap_servers)}"
        self.cluster_id: str = connect(client.cluster_id, lambda: client.poll(0), self._notes, doing)
        self._client: AdminClient | None = client

    @property
    def client(self) -> AdminClient:
        """The client; RuntimeError once closed."""
        if self._client is None:
            raise RuntimeError("the admin client is closed")
        return self._client

    def answer(self, future: Any) -> Any:
        """Wait for an answer, and serve the client's log meanwhile.

        Raises:
            KafkaException: what the broker said.
            Retry: nothing came.
        """
        deadline = Deadline(PATIENCE_S)
        while True:
            try:
                return future.result(timeout=SLICE_S)
            except FutureTimeout:
                self.client.poll(0)
                if deadline.passed():
                    raise Retry("the broker did not answer") from None

    def close(self) -> None:
        """Stop; its end is its destruction."""
        self._client = None


def _watched(settings: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    return {**settings, "error_cb": notes, "logger": client_log}


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except KafkaException as error:
        raise ConfigError(f"bus.kafka: librdkafka refuses the settings: {cause_of(error).str().strip()}") from error
