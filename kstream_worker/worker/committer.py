"""When and how the outbox is committed: one attempt at a time, in doubt the same attempt again.

outbox --freeze--> attempt --COMMITTED--> gone
                      |----ABORTED------> back into the outbox, sent again with a fresh token
                      |----Retry--------> kept as it is; the next call resolves it
                      `----Rejoin-------> back into the outbox, sent when a newer membership is there
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from kstream_worker.errors import Rejoin, Retry
from kstream_worker.measures import Telemetry
from kstream_worker.ports import Membership, Writer
from kstream_worker.records import Messages, Outcome, Progress, TopicPartition
from kstream_worker.state.format import HEADER_KEY
from kstream_worker.worker.journal import Journal
from kstream_worker.worker.outbox import Outbox
from kstream_worker.worker.patience import Patience
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Attempt:
    outbox: Outbox
    messages: list[Messages]
    progress: dict[TopicPartition, Progress]
    membership: Membership
    token: str
    tasks: list[Task]  # with state in flight


class _Refused(NamedTuple):
    """A membership whose commits are not taken, and since when."""

    generation: int
    since_s: float


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """Times in seconds, sizes in bytes.

    Attributes:
        interval_s: pause between commits.
        max_bytes: commit early once the outbox holds this much; the input pauses while that fails.
        timeout_s: deadline of one commit call.
        give_up_s: how long commits may fail in a row before the process ends.
    """

    interval_s: float = 1.0
    max_bytes: int = 16 * 1024 * 1024
    timeout_s: float = 30.0
    give_up_s: float = 300.0


class Committer:
    """Owns the outbox and its commits."""

    def __init__(
        self,
        writer: Writer,
        policy: CommitPolicy,
        kinds: Mapping[str, str],
        journal: Journal,
        telemetry: Telemetry,
        clock: Callable[[], float],
    ) -> None:
        self.outbox = Outbox()
        self.birth = ""  # opens each token; see `assignment.Birth`
        self.hurry = False  # commit at once
        self._writer = writer
        self._journal = journal
        self._policy = policy
        self._kinds = kinds
        self._telemetry = telemetry
        self._clock = clock
        self._attempt: _Attempt | None = None
        self._refused: _Refused | None = None
        self._last_s = clock()
        self._retry_at_s = 0.0
        self._patience = Patience(
            clock,
            policy.give_up_s,
            0.05,
            "Nothing was committed since, so the next start continues from the last commit. Check that the brokers "
            "answer "
            "and that transactions work, then start again.",
        )

    @property
    def size_bytes(self) -> int:
        """Bytes waiting, an unresolved attempt included."""
        return self.outbox.size_bytes + (self._attempt.outbox.size_bytes if self._attempt else 0)

    def size_of(self, partition: TopicPartition) -> int:
        """Bytes waiting that derive from one input partition."""
        doubtful = self._attempt.outbox.size_of(partition) if self._attempt else 0
        return self.outbox.size_of(partition) + doubtful

    @property
    def full(self) -> bool:
        """Whether the input should pause."""
        return self.size_bytes + self._journal.changed_bytes() >= self._policy.max_bytes

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self.outbox and self._attempt is None

    @property
    def rested(self) -> bool:
        """Whether nothing waits and the last commit is an interval ago."""
        return self.empty and self._clock() - self._last_s >= self._policy.interval_s

    @property
    def failing(self) -> bool:
        """Whether the last commit failed."""
        return self._patience.failing

    @property
    def in_doubt(self) -> bool:
        """Whether an attempt is still to be resolved."""
        return self._attempt is not None

    @property
    def doubtful(self) -> Set[TopicPartition]:
        """Input partitions of an attempt that is still to be resolved: their committed positions may yet change."""
        return self._attempt.progress.keys() if self._attempt else frozenset()

    def holds(self, partition: TopicPartition) -> bool:
        """Whether something of this input partition waits."""
        return partition in self.outbox.partitions or partition in self.doubtful

    def refused(self, membership: Membership | None) -> bool:
        """Whether this membership was refused, so that waiting for another one is all that is left."""
        refused = self._refused
        return membership is not None and refused is not None and membership.generation == refused.generation

    def refused_s(self, membership: Membership | None) -> float:
        """For how long this membership is refused already, in seconds."""
        refused = self._refused if self.refused(membership) else None
        return 0.0 if refused is None else self._clock() - refused.since_s

    def rejoined(self) -> None:
        """The group was joined anew: a static member may come back in the generation that refused it."""
        self._refused = None

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget uncommitted work of partitions that are no longer ours."""
        gone = list(partitions)
        self.outbox.drop(gone)
        if self._attempt is not None:
            # Whether it was committed is still to be resolved for the partitions that stay.
            self._attempt.outbox.drop(gone)

    def due(self) -> bool:
        """Whether `commit` should be called now."""
        now = self._clock()
        if self.empty or now < self._retry_at_s:
            return False
        return self._attempt is not None or self.hurry or self.full or now - self._last_s >= self._policy.interval_s

    def commit(self, membership: Membership | None, timeout_s: float | None = None) -> bool:
        """Try to commit all that waits, and the state with it; True when something was committed.

        Raises:
            Fatal: commits failed for longer than the policy allows, or the writer says that there is no way on.
        """
        attempt = self._attempt or self._freeze(membership)
        if attempt is None:
            return False
        started = self._clock()
        try:
            outcome = self._writer.commit(
                attempt.messages,
                attempt.progress,
                attempt.membership,
                attempt.token,
                self._policy.timeout_s if timeout_s is None else timeout_s,
            )
        except Retry as error:
            self._failed("retry", started, str(error))
            return False
        except Rejoin as error:
            self._refused = _Refused(attempt.membership.generation, self._clock())
            self._thaw(attempt)
            self._failed("rejoin", started, str(error))
            return False
        return self._settle(attempt, outcome, started)

    def _freeze(self, membership: Membership | None) -> _Attempt | None:
        if membership is None or self.refused(membership) or not self.outbox:
            return None
        frozen, self.outbox = self.outbox, Outbox()
        self.hurry = False
        progress = frozen.progress()
        token = f"{self.birth}{secrets.token_urlsafe(12)}"
        state, tasks = self._journal.collect(progress, token)
        self._attempt = _Attempt(frozen, [*frozen.messages(), *state], progress, membership, token, tasks)
        return self._attempt

    def _thaw(self, attempt: _Attempt) -> None:
        attempt.outbox.absorb(self.outbox)
        self.outbox = attempt.outbox
        self._attempt = None
        for task in attempt.tasks:
            task.settle(committed=False)

    def _settle(self, attempt: _Attempt, outcome: Outcome, started: float) -> bool:
        self._telemetry.commit(outcome.value, self._clock() - started)
        if outcome is Outcome.ABORTED:
            self._thaw(attempt)
            self._failed(None, started, "the transaction was aborted")
            return False
        self._count(attempt)
        for task in attempt.tasks:
            task.settle(committed=True)
        self._attempt = None
        self._refused = None
        self._last_s = self._clock()
        if self._patience.failing:
            log.info("commits work again")
        self._patience.succeeded()
        return True

    def _count(self, attempt: _Attempt) -> None:
        for messages in attempt.messages:
            kind = self._kinds.get(messages.partition.topic)
            if kind is not None:
                self._telemetry.published(kind, len(messages))
            else:
                pairs = zip(messages.keys, messages.values, strict=True)
                values = [value for key, value in pairs if key != HEADER_KEY]
                self._telemetry.snapshots(len(values), sum(map(len, filter(None, values))))

    def _failed(self, outcome: str | None, started: float, why: str) -> None:
        now = self._clock()
        if outcome is not None:
            self._telemetry.commit(outcome, now - started)
        log.warning("commit failed, nothing is lost", why=why)
        self._retry_at_s = now + self._patience.failed(f"commits fail ({why})", started)
