"""The transactional way out: one short transaction per commit, and a token that resolves every doubt.

The same for each Kafka client; a client gives a producer, a transaction, and the meaning of its errors.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kstream_worker.bus.common.bounded import Deadline, Running
from kstream_worker.bus.common.contract import Proof, check_arguments, check_owned
from kstream_worker.bus.common.reasons import NoSuchPartition
from kstream_worker.errors import Fatal, KstreamError, Retry
from kstream_worker.ports import Membership
from kstream_worker.records import Committed, Messages, Outcome, Progress, TopicPartition

log = logging.getLogger(__name__)


ABORT_S = 2.0


class Phase(enum.Enum):
    """How far a transaction came; from ENDING on its outcome may be unknown."""

    SENDING = "sending"
    OFFSETS = "sending offsets"
    ENDING = "committing"
    DONE = "committed"


class Abandoned(Exception):
    """The caller's deadline has passed; a transaction left behind in its thread must not go on."""


class Attempt(ABC):
    """One transaction, tried once.

    Attributes:
        phase: how far it came.
        began: monotonic seconds.
    """

    def __init__(self) -> None:
        self.phase = Phase.SENDING
        self.began = time.monotonic()
        self._abandoned = threading.Event()

    @abstractmethod
    def run(self, deadline: Deadline) -> None:
        """Do all steps; raises what the client raises, and `Abandoned`."""

    def abandon(self) -> None:
        """Forbid all further steps."""
        self._abandoned.set()

    def _go_on(self) -> None:
        if self._abandoned.is_set():
            raise Abandoned

    def _enter(self, phase: Phase) -> None:
        self._go_on()
        self.phase = phase


S = TypeVar("S")  # a producer after `init_transactions`
P = TypeVar("P", bound=Proof)  # a captured membership


@dataclass(slots=True)
class _Doubt(Generic[S]):
    """A transaction whose outcome is not known yet."""

    token: str
    partitions: tuple[TopicPartition, ...]
    session: S
    fenced_after_s: float | None = None


class TransactionalWriter(ABC, Generic[S, P]):
    """`ports.Writer` on transactions.

    A producer that raised is never used again: it is thrown away, and a new one with the same transactional id ends
    what was open (`init_transactions`). Then the committed offsets are read: our token there means
    committed, else aborted.

    Args:
        transactional_id: unique to this process.
        transaction_timeout_s: when the coordinator aborts a transaction by itself.
    """

    def __init__(self, transactional_id: str, transaction_timeout_s: float) -> None:
        self._transactional_id = transactional_id
        self._transaction_timeout_s = transaction_timeout_s
        self._session: S | None = None
        self._opening: Running[S] | None = None
        self._stray_openings = 0
        self._doubt: _Doubt[S] | None = None
        self._unsent: str | None = None  # token of an attempt that found no producer in time
        self._knows_topics_from_before = False

    # -- what a client gives -------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> S:
        """A producer after `init_transactions`; blocks."""

    @abstractmethod
    def _attempt_of(
        self,
        session: S,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        proof: P,
        token: str,
    ) -> Attempt:
        """A transaction that has not begun."""

    @abstractmethod
    def _proof(self, membership: Membership) -> P:
        """The membership as this client made it; TypeError for another's."""

    @abstractmethod
    def _check_sendable(self, messages: Sequence[Messages]) -> None:
        """Refuse what the client would refuse in the middle of a transaction (ConfigError)."""

    @abstractmethod
    def _abort(self, session: S) -> None:
        """Abort the open transaction; blocks."""

    @abstractmethod
    def _discard(self, session: S) -> None:
        """Throw a producer away at once."""

    @abstractmethod
    def _close(self, session: S, timeout_s: float) -> None:
        """Stop a producer without a transaction."""

    @abstractmethod
    def _read_committed(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, Committed | None]:
        """Committed offsets, stable, through a client that does not join the group; blocks."""

    @abstractmethod
    def _classify(self, error: Exception, doing: str) -> KstreamError:
        """What an error means."""

    @abstractmethod
    def _is_fencing(self, error: Exception) -> bool:
        """Whether the broker said that a newer epoch of our producer exists."""

    @abstractmethod
    def _timed_out_by_coordinator(self, session: S) -> bool:
        """Whether that epoch comes from a transaction timed out, not from another process; blocks."""

    def _reason(self, session: S, error: Exception) -> Exception:
        """The error behind an error."""
        del session
        return error

    # -- the port ------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float) -> None:
        """Fence former processes of this transactional id and end what they, or this one, left open.

        Raises:
            Retry: no broker answered in time.
            ConfigError: a setting is wrong, or a right is missing.
        """
        if self._doubt is not None and self._doubt.fenced_after_s is not None:
            return  # the next commit judges first whether the identity is still ours
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
        check_arguments(messages, progress, token)
        proof = self._proof(membership)
        resolved = self._resolve_former(token, deadline)
        if resolved is not None:
            return resolved
        check_owned(progress, proof)
        self._check_sendable(messages)
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
            closing = session
            Running(lambda: self._close(closing, deadline.left_s()), "kafka-producer-close").wait(deadline.left_s())

    # -- one attempt ---------------------------------------------------------------------------------------------

    def _attempt(
        self,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        proof: P,
        token: str,
        deadline: Deadline,
    ) -> Outcome:
        try:
            session = self._ready(deadline)
        except Retry:
            self._unsent = token
            raise
        transaction = self._attempt_of(session, messages, progress, proof, token)
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
            return self._failed(transaction, self._reason(session, error), deadline)
        self._doubt = None
        self._knows_topics_from_before = True
        return Outcome.COMMITTED

    def _failed(self, transaction: Attempt, error: Exception, deadline: Deadline) -> Outcome:
        """Find out what a failed transaction came to; its producer is gone whatever it was."""
        log.warning("the transaction failed while %s: %r", transaction.phase.value, error)
        meaning = self._meaning_of(error)
        hopeless = transaction.phase is not Phase.ENDING and not isinstance(meaning, Retry)
        if hopeless and not self._is_fencing(error):
            self._end(deadline)
        self._throw_away()
        if self._is_fencing(error) and self._doubt is not None:
            self._doubt.fenced_after_s = time.monotonic() - transaction.began
        elif hopeless:
            self._doubt = None  # it was not committed, and trying again cannot help
            raise meaning from error
        return self._resolve(deadline)

    def _meaning_of(self, error: Exception) -> KstreamError:
        """`_classify`; but a producer learns of partitions that a topic was given minutes later, a new one at once."""
        meaning = self._classify(error, "committing")
        if isinstance(meaning, NoSuchPartition) and self._knows_topics_from_before:
            return Retry(f"{meaning}, as far as this producer knows; a new one looks again")
        return meaning

    def _end(self, deadline: Deadline) -> None:
        """End a transaction now, so that no reader waits for its time-out; by the producer that began it.

        A new one would fence another process of the same identity, to which our place may have gone. It is opened once
        there is a membership again, which only one of the two can have.
        """
        session = self._session
        if session is None:
            return
        ending = Running(lambda: self._abort(session), "kafka-abort")
        if ending.wait(min(deadline.left_s(), ABORT_S)):
            try:
                ending.result()
            except Exception as error:  # of whatever kind: then it is left to its time-out
                log.debug("the transaction could not be aborted: %r", error)

    def _throw_away(self) -> None:
        session, self._session = self._session, None
        self._knows_topics_from_before = False
        if session is not None:
            self._discard(session)

    # -- a usable producer ---------------------------------------------------------------------------------------

    def _ready(self, deadline: Deadline) -> S:
        """The producer, opened if there is none. Only one opening runs at a time: a second would fence the first."""
        if self._session is not None:
            return self._session
        if self._opening is None:
            self._opening = Running(self._open, "kafka-producer-open")
        if not self._opening.wait(deadline.left_s()):
            raise Retry(f"no transactional producer for {self._transactional_id} in time; the broker is away or slow")
        opening, self._opening = self._opening, None
        try:
            self._session = opening.result()
        except Exception as error:
            meaning = self._classify(error, f"opening the transactional producer {self._transactional_id}")
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
        reading = Running(lambda: self._read_committed(partitions, deadline), "kafka-read-back")
        if not reading.wait(deadline.left_s()):
            raise Retry("the committed offsets could not be read back in time")
        try:
            return reading.result()
        except KstreamError:
            raise
        except Exception as error:
            raise self._classify(error, "reading committed offsets back") from error

    def _judge_fencing(self, doubt: _Doubt[S], deadline: Deadline) -> None:
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

    def _timed_out(self, session: S, deadline: Deadline) -> bool:
        asking = Running(lambda: self._timed_out_by_coordinator(session), "kafka-describe")
        if not asking.wait(deadline.left_s()):
            raise Retry("the transaction coordinator did not say in time who fenced us")
        try:
            return asking.result()
        except Exception as error:
            raise self._classify(error, "asking who fenced us") from error
