"""The contracts between the worker and its adapters. Every call keeps its timeout; one suite checks all adapters.

Errors an adapter may raise: `Retry` (passing; the same call may be made again), `Rejoin` (membership lost), `Fatal` and
`ConfigError` (no way on). Errors of a client library never show through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kstream_worker.records import (
    Batch,
    Committed,
    End,
    FloatMatrix,
    IntColumn,
    Messages,
    Outcome,
    Poll,
    Progress,
    Rejects,
    Samples,
    Scores,
    TopicPartition,
    Transition,
    Unowned,
)


class Membership(Protocol):
    """A proof of membership, captured after a poll whose assignment was settled. Opaque to the worker."""

    @property
    def generation(self) -> int:
        """A number that differs between generations of the group; for logs."""
        ...


class Source(Protocol):
    """A member of a consumer group that reads the input topic (read_committed). Used by one thread."""

    def start(self) -> None:
        """Join the group. Called once, after `Writer.start` and after kernels are compiled."""
        ...

    def poll(self, timeout_s: float) -> Poll:
        """Wait at most `timeout_s` for changes or records.

        Newly `ASSIGNED` partitions arrive paused and without records; the worker reads `committed`, calls `seek` and
        then
        `resume`. Records of a partition arrive in offset order, once per seek, and only while it is assigned and
        resumed.
        """
        ...

    def membership(self) -> Membership | None:
        """The proof for commits, or None while the group is unsettled or this process is no member."""
        ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions; no effect on those not assigned."""
        ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records again; no effect on partitions not assigned."""
        ...

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """The next record returned is the first with an offset >= `offset`.

        `leader_epoch` is that of what lies before it, as it was committed: a poll raises `Fatal` where the log has lost
        some of that since, whether or not other records stand in its place. -1: not checked.
        """
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """The offset to be read next; None when unknown."""
        ...

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Of what lies before the position, markers included; -1 when unknown."""
        ...

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions, stable (open transactions are waited for); None where nothing was committed."""
        ...

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Stop. `leave` tells the group at once, else a static member keeps its partitions until its session ends."""
        ...


class Reader(Protocol):
    """A reader outside any group (read_committed), for state and reference topics."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets."""
        ...

    def poll(self, timeout_s: float) -> list[Batch]:
        """Wait at most `timeout_s` for records."""
        ...

    def position(self, partition: TopicPartition) -> int:
        """The offset to be read next; passes markers and aborted records."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class Writer(Protocol):
    """The only way out: one atomic commit of output records and input positions."""

    def start(self, timeout_s: float) -> None:
        """Fence former processes of the same identity, end what was left open, and be ready to commit.

        May be called again: it does nothing while a transaction can be begun at once.
        """
        ...

    def commit(
        self,
        messages: Sequence[Messages],
        progress: Mapping[TopicPartition, Progress],
        membership: Membership,
        token: str,
        timeout_s: float,
    ) -> Outcome:
        """Write all `messages` and all `progress` in one transaction, or nothing of them.

        `token` (at most 100 bytes, fresh for each outbox) is stored with the committed positions; in doubt it is read
        back.
        `progress` names every input partition that `messages` derives from.

        Raises:
            Retry: not known yet (deadline, broker away). The next call with the same token only resolves the doubt: it
                returns COMMITTED or ABORTED for the doubtful attempt (or raises Retry again) and writes nothing itself.
            Rejoin: the membership is no longer valid; nothing was written.
            Fatal: another process uses the same identity, or a right is missing.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Abort what is open and stop."""
        ...


class Cluster(Protocol):
    """What can be asked about the bus, outside any group."""

    def cluster_id(self) -> str:
        """Identity of the cluster (of the input path for files)."""
        ...

    def partition_count(self, topic: str) -> int | None:
        """Number of partitions; None when the topic does not exist."""
        ...

    def topic_id(self, topic: str) -> str:
        """What tells a topic from another of the same name (deleted and created again); empty when unknown."""
        ...

    def topic_config(self, topic: str) -> dict[str, str]:
        """Settings of a topic by their native names; empty when they may not be read."""
        ...

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """First offsets that can be read."""
        ...

    def end(self, partitions: Sequence[TopicPartition], end: End) -> dict[TopicPartition, int]:
        """Ends of partitions."""
        ...

    def at_time(self, partitions: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """First offsets at or after a record time; the end where there is none."""
        ...

    def unowned(self, topic: str) -> Unowned:
        """Partitions of the input that no member of the group has, although the group is settled.

        A cooperative group gives a partition away in two rounds. Where a static member ends between them and is back
        in time, it gets what it had, and nobody begins the second round. Of dynamic members nothing is lost so, and
        nothing is said. Raises Retry where it is not known.
        """
        ...

    def check_rights(self, *, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
        """Problems found when each right the worker needs is tried, in words with the remedy; empty when all is
        well.
        """
        ...

    def create_topics(self, partitions: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Create those topics that do not exist; the names created."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class Group(Protocol):
    """What can be asked about the worker's group without joining it: for tools, never for the worker itself."""

    def members(self) -> list[str]:
        """Who is in the group, in words for people. A static member that stopped is in it until its session ends."""
        ...

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, Committed | None]:
        """Committed positions, stable (open transactions are waited for); None where nothing was committed."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


@dataclass(frozen=True, slots=True)
class Bus:
    """The adapters of one kind of bus, as factories: a worker makes a new source after `Rejoin`, a new writer never.

    Attributes:
        group: for tools; a worker has no use for it.
        notes: what the user must know about the guarantee of these inputs and outputs; to be logged at the start.
        transaction_timeout_s: after so long the bus ends by itself what a dead worker left open.
    """

    source: Callable[[], Source]
    writer: Callable[[], Writer]
    cluster: Callable[[], Cluster]
    reader: Callable[[], Reader]
    group: Callable[[], Group]
    notes: tuple[str, ...] = ()
    transaction_timeout_s: float = 30.0

    @property
    def stall_s(self) -> float:
        """Twice that and ten seconds: who reads no further for longer waits for more than a dead worker."""
        return 2.0 * (self.transaction_timeout_s + 10.0)


class Decoder(Protocol):
    """Codec and gate in one pass: a batch of raw records in, accepted samples and rejects out. Pure."""

    def decode(self, batch: Batch) -> tuple[Samples, Rejects]:
        """Decode record by record; a broken record never touches its neighbours."""
        ...

    @property
    def warnings(self) -> Mapping[str, int]:
        """Records accepted in spite of something since the start, by what; `timestamp_...` took the bus's time."""
        ...


class Bank(Protocol):
    """The models of many keys, one slot each, in contiguous arrays. Deterministic: results depend on the key's own
    samples only.

    Contract (tests/contract): any cut of a stream into batches gives equal bits; other keys change nothing; a restored
    snapshot continues with equal bits; `evaluate`-like calls change nothing; non-finite input raises ValueError and
    changes
    nothing; memory per key is bounded by `bytes_per_key`.
    """

    @property
    def bytes_per_key(self) -> int:
        """Bytes that one slot takes, constant."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, free slots included."""
        ...

    @property
    def fingerprint(self) -> str:
        """Kind and configuration: snapshots go only between banks of equal fingerprints."""
        ...

    def retune(self, arl: float) -> None:
        """Go on with another average run length (in days where keys are set by their own rates); the state of the keys
        stays as it is.

        Raises:
            ValueError: out of range.
        """
        ...

    def allocate(self, key: bytes) -> int:
        """A fresh slot for this key; its random draws are functions of (seed, key, counter)."""
        ...

    def free(self, slot: int) -> None:
        """Give the slot back."""
        ...

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """Walk n samples in order: score each with its key's model, then let it update that model.

        Args:
            slots: int64[n].
            x: float64[n, d], reference side; None for one-sided banks.
            y: float64[n, d], live side.
            times: int64[n], event times in milliseconds.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        ...

    def forget(self, slot: int) -> Transition | None:
        """The `cleared` transition (row -1, reason `forgotten`) owed when this key is dropped now; None when no alarm
        is up.

        Changes nothing; the caller frees the slot.
        """
        ...

    def raised(self, slot: int) -> bool:
        """Whether the key's alarm is up."""
        ...

    def guarantee(self, slot: int) -> tuple[str, str] | None:
        """What may be said of alarms of an armed key in its present state: level, reason; None without detector."""
        ...

    def seq(self, slot: int) -> int:
        """Samples of the key so far: the number of its last one."""
        ...

    def snapshot(self, slot: int) -> bytes:
        """All of the slot's state, self-describing, without pickle."""
        ...

    def restore(self, slot: int, snapshot: bytes) -> None:
        """Put a snapshot of a bank of the same configuration into an allocated slot.

        Raises:
            ValueError: another format, another configuration, or damaged.
        """
        ...
