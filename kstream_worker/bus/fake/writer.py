"""The transactional writer on the fake broker, with every way in which a commit can end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstream_worker.bus.fake.faults import CommitFault
from kstream_worker.bus.fake.group import FakeMembership
from kstream_worker.bus.fake.log import TransactionState
from kstream_worker.errors import ConfigError, Fatal, Rejoin, Retry
from kstream_worker.ports import Membership
from kstream_worker.records import Committed, Messages, Outcome, Progress, TopicPartition

if TYPE_CHECKING:
    from kstream_worker.bus.fake.broker import FakeBroker

MAX_TOKEN_BYTES = 100


@dataclass(frozen=True, slots=True)
class _Doubt:
    token: str
    partitions: tuple[TopicPartition, ...]


class FakeWriter:
    """The `Writer` of one process; a later one of the same identity fences it."""

    def __init__(self, broker: FakeBroker, group: str, identity: str) -> None:
        self._broker = broker
        self._group = broker.group(group)
        self._identity = identity
        self._epoch = -1
        self._doubt: _Doubt | None = None
        self._unsent: str | None = None  # token of an attempt that did not reach the broker

    def start(self, timeout_s: float) -> None:
        """Fence former writers of this identity and abort what they left open."""
        del timeout_s  # nothing here waits
        if self._epoch >= 0:
            return
        self._broker.faults.reach("writer.start", self._identity)
        self._epoch = self._broker.fence(self._identity)

    def commit(
        self,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        membership: Membership,
        token: str,
        timeout_s: float,
    ) -> Outcome:
        """Write everything in one transaction, or nothing.

        Raises:
            Retry: the broker is away, or the answer of this call is lost (planned faults); the next call with this
                token says what became of it, and writes nothing.
            Rejoin: the membership has passed.
            ConfigError: a topic or right is missing, or a record is too large; nothing was written.
            Fatal: fenced.
            ValueError: the token has not 1 to 100 bytes, no progress, or columns that differ in length.
        """
        _check_arguments(messages, progress, token)
        try:
            fault = self._reach(timeout_s)
        except Retry:
            if self._doubt is None or self._doubt.token != token:
                self._unsent = token
            raise
        self._check_epoch()
        if (known := self._resolve(token)) is not None:
            return known
        self._check_membership(membership, progress, fault)
        self._write(messages, progress, token)
        self._doubt = _Doubt(token, tuple(progress))  # until `_finish` has an answer
        return self._finish(fault, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Abort what is open and stop."""
        del timeout_s  # nothing here waits
        if self._epoch >= 0 and self._epoch == self._broker.epoch(self._identity):
            self._broker.end_transaction(self._identity, TransactionState.ABORTED)
        self._epoch = -1

    def _reach(self, timeout_s: float) -> CommitFault | None:
        self._broker.faults.reach("commit", self._identity)
        fault = self._broker.faults.next_commit()
        if fault is CommitFault.UNAVAILABLE:
            self._broker.clock.sleep(timeout_s)
            raise Retry("the broker does not answer")
        return fault

    def _check_epoch(self) -> None:
        if self._epoch < 0:
            raise Fatal("this writer is not started, or closed")
        if self._epoch != self._broker.epoch(self._identity):
            raise Fatal(f"another process writes as '{self._identity}'; give each process its own identity")

    def _check_membership(
        self, membership: Membership, progress: Mapping[TopicPartition, Progress], fault: CommitFault | None
    ) -> None:
        if fault is CommitFault.REJOIN:
            raise Rejoin(f"group '{self._group.name}' refuses the positions of '{self._identity}'")
        if not isinstance(membership, FakeMembership) or membership.group != self._group.name:
            raise TypeError("the membership comes from the source of another bus")
        self._group.check(membership, progress)

    def _resolve(self, token: str) -> Outcome | None:
        unsent, self._unsent = self._unsent, None
        if unsent == token:
            return Outcome.ABORTED
        doubt, self._doubt = self._doubt, None
        if doubt is None:
            return None
        self._epoch = self._broker.fence(self._identity)
        positions = (self._group.positions.get(partition) for partition in doubt.partitions)
        done = any(position is not None and position.metadata == doubt.token for position in positions)
        if doubt.token != token:
            return None  # another outbox: what became of the former one no longer matters
        return Outcome.COMMITTED if done else Outcome.ABORTED

    def _write(self, messages: Sequence[Messages], progress: Mapping[TopicPartition, Progress], token: str) -> None:
        transaction = self._broker.begin(self._identity)
        try:
            for column in messages:
                self._check_target(column)
                log = self._broker.log(column.partition)
                log.extend(column.keys, column.values, column.timestamps, column.headers, transaction)
        except ConfigError:
            self._broker.end_transaction(self._identity, TransactionState.ABORTED)
            raise
        for partition, reached in progress.items():
            position = Committed(reached.offset, token, reached.leader_epoch)
            transaction.positions[self._group.name, partition] = position

    def _check_target(self, column: Messages) -> None:
        topic = column.partition.topic
        self._broker.log(column.partition)
        if ("write", topic) in self._broker.faults.denied:
            raise ConfigError(f"no right to write topic '{topic}': grant it")
        if None in column.keys and "compact" in self._broker.configs[topic].get("cleanup.policy", ""):
            raise ConfigError(f"topic '{topic}' is compacted, which takes no record without a key")
        limit = self._broker.max_message_bytes(topic)
        sizes = (len(key or b"") + len(value or b"") for key, value in zip(column.keys, column.values, strict=True))
        if (size := max(sizes, default=0)) > limit:
            raise ConfigError(f"a record of {size} bytes exceeds max.message.bytes {limit} of topic '{topic}'")

    def _finish(self, fault: CommitFault | None, timeout_s: float) -> Outcome:
        self._broker.faults.reach("commit.sent", self._identity)
        aborted = fault in (CommitFault.ABORT, CommitFault.UNKNOWN_ABORTED)
        state = TransactionState.ABORTED if aborted else TransactionState.COMMITTED
        self._broker.end_transaction(self._identity, state)
        if fault in (CommitFault.UNKNOWN_COMMITTED, CommitFault.UNKNOWN_ABORTED):
            self._broker.clock.sleep(timeout_s)
            raise Retry("the answer to a commit was lost; the next call finds out what became of it")
        self._broker.faults.reach("commit.done", self._identity)
        self._doubt = None
        return Outcome.ABORTED if aborted else Outcome.COMMITTED


def _check_arguments(messages: Sequence[Messages], progress: Mapping[TopicPartition, Progress], token: str) -> None:
    if not 1 <= len(token.encode()) <= MAX_TOKEN_BYTES:
        raise ValueError(f"a token has 1 to {MAX_TOKEN_BYTES} bytes, not {len(token.encode())}")
    if not progress:
        raise ValueError("a commit without progress could not be resolved in doubt")
    for column in messages:
        lengths = {len(column.keys), len(column.values), len(column.timestamps), len(column.headers)}
        if len(lengths) > 1:
            raise ValueError(f"columns for {column.partition} differ in length: {sorted(lengths)}")
