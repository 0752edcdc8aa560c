"""What an alarm says: when, which features and pairs, which kind, how large.

All numbers come from what the key remembers (`remembered`, `pairs_remembered`) by compiled scalar loops, so a replay
says the same. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.before_after import (
    CLEAR,
    Change,
    correlation,
    saturated,
    severity_of,
    size_of,
    turned,
)
from kstream_worker.records import Contribution, Explanation, Summary

Matrix = NDArray[np.float64]

AS_GOOD = 3.0  # a score that crossed leads unless another is better by more than this
_TELLING = 3.0  # a contribution has to be so large to have a direction
_MOST = 5  # features that are summarised,
_SHARE = 0.1  # each with at least this weight


class Split(NamedTuple):
    """Where the change lies, as numbers of samples; `low` is the first that was looked at where it may be earlier."""

    first: int
    best: int
    low: int
    high: int
    gains: tuple[float, ...]  # l of each score at `best`
    lead: int  # the score that says where


class Told(NamedTuple):
    """What becomes part of the transition."""

    change_seq: int
    change_time: int
    direction: str
    features: tuple[tuple[str, float], ...]
    explanation: Explanation


class Remembered(Protocol):
    """What a key remembers at its alarm, and how its scores tell before from after."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features."""

    @property
    def scores(self) -> tuple[report.Score, ...]:
        """Those that are looked at: coordinates first."""

    def locate(self, crossed: int | None, *, spike: bool) -> Split:
        """Where the change lies, by the score that says most of one."""

    def sides(self, split: Split) -> tuple[Matrix, Matrix, int]:
        """Raw samples from before the change (float64[n, d], older ones first) and from it on (float64[m, d]), and how
        many of the former follow one another.
        """

    def compare(self, before: Matrix, after: Matrix, ordered: int) -> Change:
        """The change of one feature between its columns of the two sides."""

    def pair_of(self, c: int) -> tuple[int, int] | None:
        """The features of a score that is the product of two."""

    def leader(self, c: int, changes: dict[int, Change]) -> int:
        """The feature of a score that shows its change most."""

    def is_picked(self, c: int) -> bool:
        """Whether a score is one that was picked among many: a dependence of any kind."""

    def kind(self, split: Split, change: Change, changes: dict[int, Change]) -> str:
        """What the change of the leading feature is, by itself."""

    def features(self, split: Split) -> tuple[tuple[str, float], ...]:
        """Names and weights of features, largest first."""

    def time_of(self, seq: int) -> int:
        """Event time of a sample."""

    def origin_of(self, j: int) -> float:
        """What raw samples of a feature are relative to."""

    def moved(self, split: Split, c: int) -> float:
        """By how many standard deviations a score moved."""

    def distance(self, split: Split, c: int) -> float:
        """Largest difference of the distribution functions of a score before and after."""


def explain(key: Remembered, crossed: int | None, *, spike: bool = False) -> Told | None:
    """Explain the alarm of a key at its crossing.

    Args:
        key: what it remembers.
        crossed: which of its scores crossed; None where another one did.
        spike: whether it crossed by the size of its last sample.

    Returns:
        The explanation; None where nothing from before the change is remembered.
    """
    names = key.names
    split = key.locate(crossed, spike=spike)
    features = key.features(split)
    before, after, ordered = key.sides(split)
    if len(before) == 0:
        return None
    changes = {j: key.compare(before[:, j].copy(), after[:, j].copy(), ordered) for j in range(len(names))}
    pair = _pair(key, split, before, after)
    turn = None if pair is None else abs(turned(*pair, len(before), len(after)))
    kind, leading = _kind(key, split, changes, turn)
    features = tuple(sorted(features, key=lambda one: one[0] != names[leading]))
    summarised = [j for j in _told(features, names) if j != leading]
    pair = pair if kind == "dependence" and turn is not None and turn >= CLEAR else None
    return Told(
        split.best,
        key.time_of(split.best),
        _direction(key, split, changes[leading], kind),
        features,
        Explanation(
            kind=kind,
            severity=_severity(key, split, kind, changes[leading], pair),
            change_seq_low=None if split.low == split.first else split.low,
            change_seq_high=split.high,
            change_time_low=None if split.low == split.first else key.time_of(split.low),
            change_time_high=key.time_of(split.high),
            contributions=_contributions(key, split, changes),
            log_evidence=_sum(split.gains),
            summaries=tuple(
                _summary(names[j], kind, changes[j], key.origin_of(j), len(before), len(after))
                for j in [leading, *summarised]
            ),
            correlation=pair,
        ),
    )


def _severity(key: Remembered, split: Split, kind: str, change: Change, pair: tuple[float, float] | None) -> float:
    """As `severity_of`; of a dependence from the change of the correlation, else as of the shape of the score's law."""
    if kind != "dependence":
        return severity_of(kind, change)
    if pair is not None:
        return saturated(2.0 * abs(pair[1] - pair[0]))
    return saturated(2.0 * key.distance(split, split.lead))


def _kind(key: Remembered, split: Split, changes: dict[int, Change], turn: float | None) -> tuple[str, int]:
    """The kind of change, and the feature that shows it most among those of the leading score.

    `turn` is by how many standard deviations the correlation of the leading pair moved. Two features changed together
    where it moved more than either of them did, or where neither did by itself; and where the score that was picked
    says more than all others.
    """
    members = key.scores[split.lead].features
    if key.is_picked(split.lead):
        return "dependence", max(members, key=lambda j: split.gains[j])
    strongest = key.leader(split.lead, changes)
    kind = key.kind(split, changes[strongest], changes)
    if turn is not None and kind not in ("stuck", "spike") and max(turn, CLEAR) > strength_of(changes[strongest]):
        return "dependence", max(members, key=lambda j: split.gains[j])
    return kind, strongest


def strength_of(change: Change) -> float:
    """Standard deviations by which a feature moved, or widened."""
    return max(abs(change.level), abs(change.spread))


def _pair(key: Remembered, split: Split, before: Matrix, after: Matrix) -> tuple[float, float] | None:
    """Correlation of the leading pair before and after; None where no pair leads."""
    members = key.pair_of(split.lead)
    if members is None:
        return None
    i, j = members
    return (
        float(correlation(before[:, i].copy(), before[:, j].copy())),
        float(correlation(after[:, i].copy(), after[:, j].copy())),
    )


def _told(features: tuple[tuple[str, float], ...], names: Sequence[str]) -> list[int]:
    """The features to be summarised, largest weight first."""
    return [names.index(name) for i, (name, weight) in enumerate(features[:_MOST]) if i == 0 or weight >= _SHARE]


def _summary(name: str, kind: str, change: Change, origin: float, before: int, after: int) -> Summary:
    return Summary(
        name,
        (origin + change.center_before, change.spread_before, before),
        (origin + change.center_after, change.spread_after, after),
        size_of(kind, change),
    )


def _contributions(key: Remembered, split: Split, changes: dict[int, Change]) -> tuple[Contribution, ...]:
    found = []
    for c, (score, gain) in enumerate(zip(key.scores, split.gains, strict=True)):
        way = "both"
        if gain >= _TELLING:
            way = _way(changes[c].level) if c < len(key.names) else _way(key.moved(split, c))
        found.append(Contribution(score.name, gain, way))
    return tuple(sorted(found, key=lambda one: -one.value))


def _direction(key: Remembered, split: Split, change: Change, kind: str) -> str:
    """Of the level; of the spread, where that changed; of the pair's product, where that did."""
    if kind == "stuck":
        return "both"
    if kind == "spread":
        return "up" if change.ratio > 1.0 else "down"
    if kind == "spike":
        return "up" if change.center_after > change.center_before else "down"
    return _way(key.moved(split, split.lead) if kind == "dependence" else change.level)


def _way(z: float) -> str:
    return "up" if z >= CLEAR else "down" if z <= -CLEAR else "both"


def _sum(values: Sequence[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total
