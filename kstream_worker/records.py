"""What travels between the stages: columns of one partition, never one object per record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Headers = Sequence[tuple[str, bytes]]
FloatMatrix = NDArray[np.float64]
FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(slots=True)
class Batch:
    """Records of one partition in offset order, as columns of equal length.

    Attributes:
        partition: where the records come from.
        offsets: ascending; on transactional topics there are gaps.
        timestamps: the bus's own record times, milliseconds since the epoch; -1 where unknown.
        keys: raw key bytes, None for a null key.
        values: raw value bytes, None for a tombstone.
        headers: one sequence of (name, value) per record; the empty tuple where there are none.
        next_offset: the position to read from after this batch (not the last offset + 1: markers take offsets).
        leader_epoch: of what lies before `next_offset`, -1 where unknown.
    """

    partition: TopicPartition
    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    next_offset: int
    leader_epoch: int = -1

    def __len__(self) -> int:
        return len(self.offsets)

    def size_bytes(self) -> int:
        """Bytes of keys and values, headers not counted."""
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))


@dataclass(slots=True)
class Fields:
    """Bound fields of decoded records of one batch, as columns of equal length n, before gate and pairing.

    Attributes:
        positions: rows of the batch that these come from, ascending.
        x: float64[n, d], the reference side; None when one-sided.
        y: float64[n, d], the live side; values are as decoded, not yet checked to be finite.
        times: event times as found (number, text, or None where missing); None when no path is bound.
        keys: entity keys as found (text, integer, or None where missing); None when no path is bound.
        labels: what the columns of x and of y are called in messages.
    """

    positions: list[int]
    x: FloatMatrix | None
    y: FloatMatrix
    times: list[object] | None = None
    keys: list[str | int | None] | None = None
    labels: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(slots=True)
class Samples:
    """Accepted records of one partition after codec, gate and pairing, as columns of equal length n.

    Attributes:
        offsets: int64[n], input offsets, ascending.
        times: int64[n], event times, milliseconds since the epoch.
        keys: n entity keys.
        x: float64[n, d], the reference side; None when one-sided (`stream`).
        y: float64[n, d], the live side.
        forget: positions (into the n rows) *before* which a key is to be forgotten, with that key, offset and event
        time, in
            order: `(position, key, offset, time)`. A tombstone is no sample, so it is no row.
        stamps: int64[n], the bus's own record times, which outputs are stamped with: event times may lie so far back
            that retention deletes the output at once, or so far ahead that a broker refuses it. None: the event times.
    """

    offsets: IntColumn
    times: IntColumn
    keys: list[bytes]
    x: FloatMatrix | None
    y: FloatMatrix
    forget: list[tuple[int, bytes, int, int]] = field(default_factory=list)
    stamps: IntColumn | None = None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class Rejects:
    """Records that the gate refused, as columns of equal length; `positions` are rows of the batch they came from."""

    positions: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.positions)

    def add(self, position: int, reason: str, message: str) -> None:
        """Append one refused record."""
        self.positions.append(position)
        self.reasons.append(reason)
        self.messages.append(message)


@dataclass(slots=True)
class Messages:
    """Encoded records for one partition of one output topic, as columns of equal length, in the order to be sent."""

    partition: TopicPartition
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values)

    def extend(
        self,
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        timestamps: Iterable[int],
        headers: Iterable[Headers],
    ) -> None:
        """Append columns of equal length."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(timestamps)
        self.headers.extend(headers)


class Progress(NamedTuple):
    """How far a partition is processed: the position to read next, and the leader epoch of what lies before it."""

    offset: int
    leader_epoch: int = -1


class Committed(NamedTuple):
    """What the bus holds as the committed position of a partition, with the metadata string of that commit."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class Unowned(NamedTuple):
    """Partitions of a topic that no member of a settled group has.

    Attributes:
        partitions: those, in order.
        before: how many members come before this process in the order in which they try to mend that.
    """

    partitions: tuple[TopicPartition, ...]
    before: int = 0


class ChangeKind(Enum):
    """What happened to partitions of this member."""

    ASSIGNED = "assigned"  # ours from now on, paused, without a position until the worker seeks
    REVOKED = "revoked"  # taken in an orderly way; uncommitted work must be dropped
    LOST = "lost"  # taken because the membership was lost; commits would be refused


@dataclass(slots=True, frozen=True)
class Change:
    """One change of the assignment, in the order in which it happened."""

    kind: ChangeKind
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Poll:
    """What one poll of a source found: first the changes, then records of partitions that are assigned after them."""

    changes: list[Change] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    finished: bool = False  # the input has an end and it is reached (files); never true on Kafka


class Outcome(Enum):
    """What became of a commit. There is no third value: in doubt a writer raises `Retry` and resolves at the next
    call.
    """

    COMMITTED = "committed"
    ABORTED = "aborted"


class End(Enum):
    """Which end of a partition is meant."""

    STABLE = "stable"  # the last stable offset: what a read_committed reader can reach
    HIGH = "high"  # the high watermark: behind open transactions too


@dataclass(slots=True)
class Scores:
    """What a bank answers for n samples, as columns of equal length. All are made *before* the sample updates the
    model.

    Attributes:
        state: int8[n], 0 warming, 1 armed, 2 raised (held: no bets, after an alarm or until a season was seen).
        seq: int64[n], the sample's number within its key since the key was first seen, from 1.
        log_ratio: float64[n], log of the estimated relative ratio live / reference at the live sample; NaN while
        warming.
        divergence: float64[n], running Pearson divergence estimate (paper 004, eq. 8c); NaN while warming.
        evidence: float64[n], weighted Shiryaev-Roberts statistic *after* the sample; 0 while warming.
        threshold: float64[n], what the evidence must reach for an alarm of the sample's key at that moment; inf for a
            bank without a detector, NaN where a key's rate must be known first and is not.
        transitions: alarms raised and cleared by these samples, in order (few).
        clipped: number of ratio estimates that were not positive and were set to the floor before the logarithm.
        estimates: float64[n, m], what a model of another kind than the likelihood ratio says of each sample, one column
            for each of its `columns`; NaN where not known. None for banks of ratios.
    """

    state: NDArray[np.int8]
    seq: IntColumn
    log_ratio: FloatColumn
    divergence: FloatColumn
    evidence: FloatColumn
    threshold: FloatColumn
    transitions: list[Transition]
    clipped: int = 0
    estimates: FloatMatrix | None = None


@dataclass(slots=True, frozen=True)
class Contribution:
    """What one score adds to the evidence for a change.

    Attributes:
        name: a feature, `radius`, a pair `a*b`, or another score of several features that raised the alarm.
        value: natural logarithm of the likelihood of a change of this score at `change_seq` against none.
        direction: `up`, `down` or `both`: how the score moved.
    """

    name: str
    value: float
    direction: str


@dataclass(slots=True, frozen=True)
class Summary:
    """One feature before and after the likely change, in the feature's own units; of pairs its two sides, x and y.

    Attributes:
        name: of the feature.
        before: median, spread (IQR / 1.349) and number of samples before it; of pairs those of x.
        after: the same from it on; of pairs those of y.
        size: how much the alarm's kind of change moved the feature: the median's difference, or the spread's.
    """

    name: str
    before: tuple[float, float, int]
    after: tuple[float, float, int]
    size: float


@dataclass(slots=True, frozen=True)
class Explanation:
    """What a raised alarm says of the change; none of it decides whether there is a first alarm.

    Attributes:
        kind: `level`, `spread`, `shape`, `dependence`, `stuck` or `spike`; `SILENT` of each transition of the alarm
            of a key that stopped sending.
        severity: 0..1, from the size of the change, not from the evidence.
        change_seq_low: first sample of a 90 % set for the first changed one; None where the change may lie before what
            the key remembers.
        change_seq_high: last sample of that set.
        change_time_low: event time of the first, milliseconds since the epoch; None with it.
        change_time_high: event time of the last.
        contributions: of all scores, largest first; their values sum to `log_evidence`.
        log_evidence: that sum.
        summaries: of the leading features, in the order of the transition's `features`.
        correlation: of the leading pair before and after, where the kind is `dependence` and it moved.
    """

    kind: str
    severity: float
    change_seq_low: int | None
    change_seq_high: int
    change_time_low: int | None
    change_time_high: int
    contributions: tuple[Contribution, ...]
    log_evidence: float
    summaries: tuple[Summary, ...]
    correlation: tuple[float, float] | None = None


SILENT = "silent"  # the kind of alarm, and the reason why it is raised


class Incident(NamedTuple):
    """All alarms that a key raises for one change, and their end: from an alarm on until it is cleared.

    Attributes:
        seq: number, within its key, of the sample that raised the first of them.
        time_ms: the key's event time then, milliseconds since the epoch.
        repeat: how many were raised since.
    """

    seq: int
    time_ms: int
    repeat: int = 0


@dataclass(slots=True, frozen=True)
class Transition:
    """A key's alarm was raised or cleared, or a notice given, by row `row` of the batch (-1: the key was forgotten).

    Attributes:
        row: row of the batch that was given to the bank.
        slot: the key's slot.
        kind: `raised`, `cleared`, or `notice`, which does neither.
        reason: of a cleared alarm, `rearmed`, `returned`, `forgotten` or `expired`; of a notice, `not_stationary`; of a
            raised one, the name of the score that crossed (`learned`, a feature, `radius`, a product `a*b`, ...), or
            `silent`.
        seq: the sample's number within its key.
        evidence: the statistic when it crossed, in the units of `threshold`.
        threshold: what it had to reach, the key's escalation included.
        change_seq: number within the key of the likely first changed sample.
        change_time: event time of that sample, milliseconds since the epoch.
        direction: `up`, `down` or `both`: how the leading score moved.
        features: (name, weight) of the features that drive it, largest first, weights sum to 1.
        guarantee: `exact_if_iid`, `approximate` or `none`.
        guarantee_reason: why, in words for people.
        arl: samples between false alarms that the key is set to, without its escalation; NaN where there is no such
            rate.
        escalation: factor by which former alarms of the key raise the threshold at this moment.
        false_alarms_per_day: expected of this key at its own rate and at `threshold`; NaN where its rate is not known.
        explanation: of a raised alarm, by detectors that remember samples of the key; of silence always.
        incident: of a change, what this belongs to; None of a notice and of silence.
    """

    row: int
    slot: int
    kind: str
    reason: str
    seq: int
    evidence: float
    threshold: float
    change_seq: int
    change_time: int
    direction: str
    features: tuple[tuple[str, float], ...]
    guarantee: str
    guarantee_reason: str
    arl: float
    escalation: float = 1.0
    false_alarms_per_day: float = math.nan
    explanation: Explanation | None = None
    incident: Incident | None = None

    @property
    def of_silence(self) -> bool:
        """Whether the alarm is that of a key that stopped sending, beside which there may be another of the key."""
        return self.explanation is not None and self.explanation.kind == SILENT


STATE_NAMES = ("warming", "armed", "raised")

LabelCounts = Mapping[str, int]
