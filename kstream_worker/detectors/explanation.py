"""What an alarm of the rank detector says: when, which features and pairs, which kind, how large.

All numbers come from the key's history and bag by compiled scalar loops, so a replay says the same. They decide
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.before_after import (
    CLEAR,
    Change,
    compare,
    correlation,
    is_stuck,
    kind_of,
    saturated,
    severity_of,
    size_of,
    turned,
)
from kstream_worker.detectors.history import UNRANKED, rank_sum, raw_of
from kstream_worker.detectors.level_split import LEAST, split_levels
from kstream_worker.detectors.ranking import STEPS
from kstream_worker.detectors.ranks_hidden import MEDIAN_SIZE
from kstream_worker.detectors.ranks_layout import (
    EVEN_EVEN,
    EVEN_ODD,
    KEPT_SIZE,
    PICKED,
    SEASONS,
    SEQ,
    STEPS_SEQ,
    V_SIZE,
    WARM_SEQ,
    WHITENED,
    Layout,
    hidden_scores,
)
from kstream_worker.detectors.splitting import split_scores, split_set
from kstream_worker.records import Contribution, Explanation, Summary

Matrix = NDArray[np.float64]

_AS_GOOD = 3.0  # a score that crossed leads unless another is better by more than this
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


class _Key(NamedTuple):
    """One key at its alarm."""

    row: Matrix
    shorts: NDArray[np.int16]
    state: NDArray[np.int64]
    layout: Layout
    names: tuple[str, ...]
    scores: tuple[report.Score, ...]

    def time_of(self, seq: int) -> int:
        return int(self.state[self.layout.times + seq % self.layout.length])

    def history(self, first: int, last: int) -> Matrix:
        """float64[n, d], raw samples `first` to `last` without those missing, relative to the origin."""
        length, d = self.layout.length, self.layout.dims
        ring = self.row[self.layout.history : self.layout.history + length * d // 2].view(np.float32)
        at = np.arange(first, last + 1) % length
        known = self._steps_at(at)[:, 0] != UNRANKED
        found: Matrix = ring.reshape(length, d)[at[known]].astype(np.float64)
        return found

    def ranked(self, first: int) -> NDArray[np.int64]:
        """int64[n], which of the samples from `first` on were ranked, the first being 0."""
        at = np.arange(first, int(self.state[SEQ]) + 1) % self.layout.length
        return np.flatnonzero(self._steps_at(at)[:, 0] != UNRANKED)

    def _steps_at(self, at: NDArray[np.int64]) -> NDArray[np.int16]:
        length, d = self.layout.length, self.layout.dims
        return self.shorts[self.layout.steps : self.layout.steps + length * d].reshape(length, d)[at]

    def kept(self) -> Matrix:
        """float64[n, d], older raw samples, relative to the origin."""
        d, n = self.layout.dims, int(self.state[KEPT_SIZE])
        kept = self.row[self.layout.kept : self.layout.union].view(np.float32)[: n * d]
        return kept.reshape(n, d).astype(np.float64)

    def steps(self, first: int) -> Matrix:
        """float64[n, d], the ranked samples from `first` on in units of scale."""
        steps = self._steps_at(np.arange(first, int(self.state[SEQ]) + 1) % self.layout.length)
        ranked: Matrix = steps[steps[:, 0] != UNRANKED] / STEPS
        return ranked

    def bag(self) -> Matrix:
        """float64[n, d], the bag in units of scale."""
        d, n = self.layout.dims, int(self.state[V_SIZE])
        return self.shorts[: d * self.layout.v_room].reshape(d, self.layout.v_room)[:, :n].T / STEPS

    def values(self, z: Matrix, c: int) -> Matrix:
        """float64[n], a score but for the coordinates, of samples z in units of scale."""
        if c < self.layout.v_rows:
            return _squares(z)
        if c < self.layout.fixed:
            i, j = self.scores[c].features
            product: Matrix = z[:, i] * z[:, j]
            return product
        kind, *features = hidden_scores(self.layout.dims)[int(self.state[PICKED])]
        even = {EVEN_ODD: 1, EVEN_EVEN: 2}.get(kind, 0)
        found: Matrix = np.ones(len(z))
        for place, j in enumerate(features):
            found = found * (np.abs(z[:, j]) - MEDIAN_SIZE / STEPS if place < even else z[:, j])
        return found


class _FrozenKey(_Key):
    """One key at its alarm against a frozen reference, which stands for all that was before.

    Raw samples are those that steps stand for, relative to the center of the scale.
    """

    def history(self, first: int, last: int) -> Matrix:
        return self._raw(self._steps_at(np.arange(first, last + 1) % self.layout.length))

    def kept(self) -> Matrix:
        d, n = self.layout.dims, int(self.state[V_SIZE])
        return self._raw(self.shorts[: d * self.layout.v_room].reshape(d, self.layout.v_room)[:, :n].T)

    def _raw(self, steps: NDArray[np.int16]) -> Matrix:
        scale = self.row[self.layout.scale : self.layout.scale + self.layout.dims]
        found: Matrix = raw_of(np.ascontiguousarray(steps), scale)
        return found


def explain(
    row: Matrix,
    shorts: NDArray[np.int16],
    state: NDArray[np.int64],
    layout: Layout,
    names: tuple[str, ...],
    scores: tuple[report.Score, ...],
    crossed: int | None,
    *,
    spike: bool,
    frozen: bool = False,
) -> Told | None:
    """Explain the alarm of a key at its crossing.

    Args:
        row: float64[layout.floats], the key's floats.
        shorts: int16[layout.shorts], the key's shorts.
        state: int64[layout.ints], the key's integers.
        layout: of the row.
        names: of the features.
        scores: the fixed ones and, where that crossed, the one that was picked.
        crossed: which of them crossed; None where another one did.
        spike: whether it crossed by the size of its last sample.
        frozen: whether the bag is a frozen reference.

    Returns:
        The explanation; None where nothing from before the change is remembered.
    """
    key = (_FrozenKey if frozen else _Key)(row, shorts, state, layout, names, scores)
    split = _locate(key, crossed, spike=spike)
    features = report.share_evidence(names, scores, [max(gain, 0.0) for gain in split.gains])
    before, ordered = _before(key, split)
    if len(before) == 0:
        return None
    after = key.history(split.best, int(state[SEQ]))
    changes = {j: compare(before[:, j].copy(), after[:, j].copy(), ordered) for j in range(layout.dims)}
    pair = _pair(key, split, before, after)
    turn = None if pair is None else abs(turned(*pair, len(before), len(after)))
    kind, leading = _kind(key, split, changes, len(after), turn)
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
                _summary(names[j], kind, changes[j], float(row[layout.origin + j]), len(before), len(after))
                for j in [leading, *summarised]
            ),
            correlation=pair,
        ),
    )


def _severity(key: _Key, split: Split, kind: str, change: Change, pair: tuple[float, float] | None) -> float:
    """As `severity_of`; of a dependence from the change of the correlation, else as of the shape of the score's law."""
    if kind != "dependence":
        return severity_of(kind, change)
    if pair is not None:
        return saturated(2.0 * abs(pair[1] - pair[0]))
    bag = key.values(key.bag(), split.lead)
    return saturated(2.0 * compare(bag, key.values(key.steps(split.best), split.lead), 1).distance)


def _locate(key: _Key, crossed: int | None, *, spike: bool) -> Split:
    """Split the history by the score that says most of a change; by the one that crossed if it says about as much.

    A spike is the last sample alone, unless another split says more.
    """
    seq = int(key.state[SEQ])
    first = max(seq - key.layout.length + 1, int(key.state[STEPS_SEQ]) + 1)
    likelihood = np.empty((len(key.scores), seq - first + 1))
    split_scores(first, key.shorts, key.state, key.layout.table(), likelihood)
    best = likelihood.max(axis=1)
    lead = int(np.argmax(best))
    if spike and crossed is not None and likelihood[crossed, -1] >= best[lead] - _AS_GOOD:
        return Split(first - 1, seq, seq, seq, tuple(float(value) for value in likelihood[:, -1]), crossed)
    if crossed is not None and best[crossed] >= best[lead] - _AS_GOOD:
        lead = crossed
    at, low, high = split_set(likelihood[lead])
    if key.state[WHITENED] == 1 and key.state[SEASONS] == 0:
        at, low, high = _by_level(key, first, likelihood[:, at], lead) or (at, low, high)
    gains = tuple(float(value) for value in likelihood[:, at])
    return Split(first, first + at, first + low, first + high, gains, lead)


def _by_level(key: _Key, first: int, gains: Matrix, lead: int) -> tuple[int, int, int] | None:
    """The split of the samples themselves of the leading feature, where it says more than that of innovations.

    None where it does not. Numbers from `first` on: the most likely split, lowest and highest of the set.
    """
    feature = max(key.scores[lead].features, key=lambda j: float(gains[j]))
    ranked = key.ranked(first)
    series = key.history(first, int(key.state[SEQ]))[:, feature].copy()
    likelihood = np.empty(len(series))
    if not split_levels(series, likelihood) > gains[lead]:
        return None
    at, low, high = split_set(likelihood)
    return int(ranked[at]), int(ranked[low]) if low > LEAST else 0, int(ranked[high])


def _before(key: _Key, split: Split) -> tuple[Matrix, int]:
    """Raw samples from before the change, older ones first, and how many of them follow one another."""
    if isinstance(key, _FrozenKey):
        reference = key.kept()
        return reference, len(reference)
    oldest = max(int(key.state[WARM_SEQ]), int(key.state[SEQ]) - key.layout.length + 1)
    recent = key.history(oldest, split.low - 1)
    return np.concatenate((key.kept(), recent)), len(recent)


def _kind(key: _Key, split: Split, changes: dict[int, Change], length: int, turn: float | None) -> tuple[str, int]:
    """The kind of change, and the feature that shows it most among those of the leading score.

    `turn` is by how many standard deviations the correlation of the leading pair moved. Two features changed together
    where it moved more than either of them did, or where neither did by itself; and where the score that was picked
    says more than all others.
    """
    members = key.scores[split.lead].features
    if split.lead == key.layout.fixed:
        return "dependence", max(members, key=lambda j: split.gains[j])
    strongest = max(members, key=lambda j: (is_stuck(changes[j]), _strength(changes[j])))
    kind = kind_of(changes[strongest], length)
    if turn is not None and kind not in ("stuck", "spike") and max(turn, CLEAR) > _strength(changes[strongest]):
        return "dependence", max(members, key=lambda j: split.gains[j])
    return kind, strongest


def _strength(change: Change) -> float:
    return max(abs(change.level), abs(change.spread))


def _pair(key: _Key, split: Split, before: Matrix, after: Matrix) -> tuple[float, float] | None:
    """Correlation of the leading pair before and after; None where no pair leads."""
    if not key.layout.v_rows <= split.lead < key.layout.fixed:
        return None
    i, j = key.scores[split.lead].features
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


def _contributions(key: _Key, split: Split, changes: dict[int, Change]) -> tuple[Contribution, ...]:
    found = []
    for c, (score, gain) in enumerate(zip(key.scores, split.gains, strict=True)):
        way = "both"
        if gain >= _TELLING:
            way = _way(changes[c].level) if c < key.layout.dims else _way(_moved(key, split, c))
        found.append(Contribution(score.name, gain, way))
    return tuple(sorted(found, key=lambda one: -one.value))


def _direction(key: _Key, split: Split, change: Change, kind: str) -> str:
    """Of the level; of the spread, where that changed; of the pair's product, where that did."""
    if kind == "stuck":
        return "both"
    if kind == "spread":
        return "up" if change.ratio > 1.0 else "down"
    if kind == "spike":
        return "up" if change.center_after > change.center_before else "down"
    return _way(_moved(key, split, split.lead) if kind == "dependence" else change.level)


def _moved(key: _Key, split: Split, c: int) -> float:
    """Standardised rank sum of a radius, a product or the pick after the change against the bag."""
    return float(rank_sum(key.values(key.steps(split.best), c), key.values(key.bag(), c)))


def _squares(z: Matrix) -> Matrix:
    total = np.zeros(len(z))
    for j in range(z.shape[1]):
        total += z[:, j] * z[:, j]
    return total


def _way(z: float) -> str:
    return "up" if z >= CLEAR else "down" if z <= -CLEAR else "both"


def _sum(values: Sequence[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total
