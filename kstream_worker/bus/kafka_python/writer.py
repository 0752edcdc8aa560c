"""The transactional way out: one short transaction per commit, and a token that resolves every doubt."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from kstream_worker.bus.kafka_python.bounded import Deadline, Running
from kstream_worker.bus.kafka_python.errors import classify
from kstream_worker.bus.kafka_python.fencing import is_fencing, timed_out_by_coordinator
from kstream_worker.bus.kafka_python.membership import KafkaMembership
from kstream_worker.bus.kafka_python.offsets import read_committed_offsets
from kstream_worker.bus.kafka_python.settings import KafkaSettings
from kstream_worker.bus.kafka_python.sizes import check_sizes
from kstream_worker.bus.kafka_python.transaction import Phase, Session, Transaction, discard
from kstream_worker.errors import Fatal, KstreamError, Rejoin, Retry
from kstream_worker.ports import Membership
from kstream_worker.records import Committed, Messages, Outcome, Progress, TopicPartition

log = logging.getLogger(__name__)

MAX_TOKEN_BYTES = 100  # the broker's limit for metadata is 4096, and a longer one ends in a fatal error of the client


@dataclass(slots=True)
class _Doubt:
    """A transaction whose outcome is not known yet."""

    token: str
    partitions: tuple[TopicPartition, ...]
    session: Session
    fenced_after_s: float | None = None


class KafkaWriter:
    """`ports.Writer` on kafka-python.

    A producer that raised is never used again: it is thrown away, and a new one with the same transactional id ends
    what was open (`init_transactions`). Then the committed offsets are read: our token there means
    committed, else aborted.

    Args:
        settings: of all clients.
        group_id: the consumer group whose offsets are committed.
        transactional_id: unique to this process.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        group_id: str,
        transactional_id: str,
    ) -> None:
        producer = settings.for_producer(transactional_id)
        self._producer_settings = producer
        self._consumer_settings = {**settings.for_consumer(), "group_id": group_id}
        self._admin_settings = settings.for_admin()
        self._transactional_id = transactional_id
        self._transaction_timeout_s = float(producer["transaction_timeout_ms"]) / 1000
        self._max_request_size = int(producer["max_request_size"])
        self._session: Session | None = None
        self._opening: Running[Session] | None = None
        self._stray_openings = 0
        self._doubt: _Doubt | None = None
        self._unsent: str | None = None  # token of an attempt that found no producer in time

    def start(self, timeout_s: float) -> None:
        """Fence former processes of this transactional id and end what they left open.

        Raises:
            Retry: no broker answered in time.
            ConfigError: a setting is wrong, or a right is missing.
        """
        self._ready(Deadline(timeout_s))

    def commit(
        self,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        membership: Membership,
        token: str,
        timeout_s: float,
    ) -> Outcome:
        """Write everything in one transaction, or nothing; see `ports.Writer`.

        Raises:
            Retry: not known yet; the same call resolves it.
            Rejoin: the membership is no longer valid; nothing was written.
            ConfigError: a message is too large, a partition does not exist, or a right is missing; nothing was written.
            Fatal: another process uses the same transactional id or instance id.
            ValueError: the arguments contradict one another.
        """
        deadline = Deadline(timeout_s)
        proof = _check(messages, progress, membership, token)
        resolved = self._resolve_former(token, deadline)
        if resolved is not None:
            return resolved
        _check_owned(progress, proof)
        check_sizes(messages, self._max_request_size)
        return self._attempt(messages, progress, proof, token, deadline)

    def close(self, timeout_s: float) -> None:
        """End what is open, so that nobody waits for it, and stop; within `timeout_s`."""
        deadline = Deadline(timeout_s)
        if self._doubt is not None and self._doubt.fenced_after_s is None:
            try:
                self._ready(deadline)
            except KstreamError as error:
                log.warning("an open transaction is left to its time-out: %s", error)
        session, self._session = self._session, None
        if session is not None:
            Running(lambda: session.close(deadline.left_s()), "kafka-producer-close").wait(deadline.left_s())

    # -- one attempt ---------------------------------------------------------------------------------------------

    def _attempt(
        self,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        membership: KafkaMembership,
        token: str,
        deadline: Deadline,
    ) -> Outcome:
        try:
            session = self._ready(deadline)
        except Retry:
            self._unsent = token
            raise
        transaction = Transaction(session, messages, progress, membership, token)
        self._doubt = _Doubt(token, tuple(progress), session)
        running = Running(lambda: transaction.run(deadline), "kafka-commit")
        if not running.wait(deadline.left_s()):
            transaction.abandon()
            self._throw_away()
            raise Retry(
                f"the commit did not end in time (while {transaction.phase.value}); its outcome will be read back"
            )
        try:
            running.result()
        except Exception as error:
            return self._failed(transaction, session.reason(error), deadline)
        self._doubt = None
        return Outcome.COMMITTED

    def _failed(self, transaction: Transaction, error: Exception, deadline: Deadline) -> Outcome:
        """Find out what a failed transaction came to; its producer is gone whatever it was."""
        log.warning("the transaction failed while %s: %r", transaction.phase.value, error)
        self._throw_away()
        meaning = classify(error, "committing")
        if is_fencing(error) and self._doubt is not None:
            self._doubt.fenced_after_s = time.monotonic() - transaction.began
        elif transaction.phase is not Phase.ENDING and not isinstance(meaning, Retry):
            self._doubt = None  # it was not committed, and trying again cannot help
            with suppress(KstreamError):
                self._ready(deadline)  # ends it now, so that no reader waits for its time-out
            raise meaning from error
        return self._resolve(deadline)

    def _throw_away(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            discard(session.producer)

    # -- a usable producer ---------------------------------------------------------------------------------------

    def _ready(self, deadline: Deadline) -> Session:
        """The producer, opened if there is none. Only one opening runs at a time: a second would fence the first."""
        if self._session is not None:
            return self._session
        if self._opening is None:
            self._opening = Running(lambda: Session(self._producer_settings), "kafka-producer-open")
        if not self._opening.wait(deadline.left_s()):
            raise Retry(f"no transactional producer for {self._transactional_id} in time; the broker is away or slow")
        opening, self._opening = self._opening, None
        try:
            self._session = opening.result()
        except Exception as error:
            meaning = classify(error, f"opening the transactional producer {self._transactional_id}")
            self._stray_openings += isinstance(meaning, Retry)
            raise meaning from error
        return self._session

    # -- what became of a transaction ----------------------------------------------------------------------------

    def _resolve_former(self, token: str, deadline: Deadline) -> Outcome | None:
        """Resolve what an earlier call left open; its outcome if it is about this token."""
        unsent, self._unsent = self._unsent, None
        if unsent == token:
            return Outcome.ABORTED
        if self._doubt is None:
            return None
        same = self._doubt.token == token
        outcome = self._resolve(deadline)
        return outcome if same else None

    def _resolve(self, deadline: Deadline) -> Outcome:
        """End what is open, then look for the token.

        Several processes may have committed since on some of the partitions, so one partition with our token is enough.
        """
        doubt = self._doubt
        if doubt is None:
            return Outcome.ABORTED
        self._judge_fencing(doubt, deadline)
        self._ready(deadline)
        committed = self._read_back(doubt.partitions, deadline)
        self._doubt = None
        found = any(each is not None and each.metadata == doubt.token for each in committed.values())
        log.info("a commit in doubt turned out to be %s", "committed" if found else "aborted")
        return Outcome.COMMITTED if found else Outcome.ABORTED

    def _read_back(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, Committed | None]:
        """Committed offsets through a new consumer of the group that does not join it."""

        def read() -> dict[TopicPartition, Committed | None]:
            consumer = KafkaConsumer(**self._consumer_settings)
            try:
                return read_committed_offsets(consumer, partitions, deadline)
            finally:
                consumer.close(autocommit=False)

        reading = Running(read, "kafka-read-back")
        if not reading.wait(deadline.left_s()):
            raise Retry("the committed offsets could not be read back in time")
        try:
            return reading.result()
        except (KafkaError, OSError) as error:
            raise classify(error, "reading committed offsets back") from error

    def _judge_fencing(self, doubt: _Doubt, deadline: Deadline) -> None:
        """Raise `Fatal` when another process fenced us; return when it was a time-out or our own late request."""
        if doubt.fenced_after_s is None:
            return
        if self._stray_openings > 0:  # an opening that we gave up may have reached the broker late
            self._stray_openings -= 1
        elif doubt.fenced_after_s < self._transaction_timeout_s or not self._timed_out(doubt.session, deadline):
            raise Fatal(
                f"another process uses the transactional id {self._transactional_id}, and this one was put out: two "
                "with the same id would fence each other for ever; give each process its own"
            )
        doubt.fenced_after_s = None

    def _timed_out(self, session: Session, deadline: Deadline) -> bool:
        asking = Running(
            lambda: timed_out_by_coordinator(self._admin_settings, self._transactional_id, session), "kafka-describe"
        )
        if not asking.wait(deadline.left_s()):
            raise Retry("the transaction coordinator did not say in time who fenced us")
        try:
            return asking.result()
        except (KafkaError, OSError) as error:
            raise classify(error, "asking who fenced us") from error


def _check(
    messages: Sequence[Messages], progress: Mapping[TopicPartition, Progress], membership: Membership, token: str
) -> KafkaMembership:
    if not token or len(token.encode()) > MAX_TOKEN_BYTES:
        raise ValueError(f"a token has 1 to {MAX_TOKEN_BYTES} bytes, not {len(token.encode())}")
    if not progress:
        raise ValueError(
            f"a commit of {len(messages)} columns of messages names no progress: nothing could be resolved"
        )
    for column in messages:
        lengths = {len(column.keys), len(column.values), len(column.timestamps), len(column.headers)}
        if len(lengths) != 1:
            raise ValueError(f"columns for {column.partition} differ in length: {sorted(lengths)}")
    if not isinstance(membership, KafkaMembership):
        raise TypeError(f"a membership of {type(membership).__name__} comes from another bus")
    return membership


def _check_owned(progress: Mapping[TopicPartition, Progress], membership: KafkaMembership) -> None:
    metadata = membership.metadata
    if metadata.generation_id < 0 or not metadata.member_id:
        raise Rejoin("no member of the group: the broker would accept such a commit and overwrite the owner's")
    strange = sorted(str(partition) for partition in progress if partition not in membership.partitions)
    if strange:
        raise Rejoin(f"generation {membership.generation} does not own {', '.join(strange)}")
