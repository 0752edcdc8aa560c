"""What the key of a stream, or of a frozen reference, remembers at its alarm, as `explanation` asks for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.before_after import Change, compare, is_stuck, kind_of
from kstream_worker.detectors.explanation import AS_GOOD, Matrix, Split, strength_of
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


class StreamKey(NamedTuple):
    """One key at its alarm: its history, its older samples and its bags.

    Attributes:
        row: float64[layout.floats], the key's floats.
        shorts: int16[layout.shorts], the key's shorts.
        state: int64[layout.ints], the key's integers.
        layout: of the row.
        names: of the features.
        scores: the fixed ones and, where that crossed, the one that was picked.
    """

    row: Matrix
    shorts: NDArray[np.int16]
    state: NDArray[np.int64]
    layout: Layout
    names: tuple[str, ...]
    scores: tuple[report.Score, ...]

    def time_of(self, seq: int) -> int:
        """Event time of a remembered sample."""
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

    def locate(self, crossed: int | None, *, spike: bool) -> Split:
        """Split the history by the score that says most of a change; by the one that crossed if it says about as much.

        A spike is the last sample alone, unless another split says more.
        """
        seq = int(self.state[SEQ])
        first = max(seq - self.layout.length + 1, int(self.state[STEPS_SEQ]) + 1)
        likelihood = np.empty((len(self.scores), seq - first + 1))
        split_scores(first, self.shorts, self.state, self.layout.table(), likelihood)
        best = likelihood.max(axis=1)
        lead = int(np.argmax(best))
        if spike and crossed is not None and likelihood[crossed, -1] >= best[lead] - AS_GOOD:
            return Split(first - 1, seq, seq, seq, tuple(float(value) for value in likelihood[:, -1]), crossed)
        if crossed is not None and best[crossed] >= best[lead] - AS_GOOD:
            lead = crossed
        at, low, high = split_set(likelihood[lead])
        if self.state[WHITENED] == 1 and self.state[SEASONS] == 0:
            at, low, high = self._by_level(first, likelihood[:, at], lead) or (at, low, high)
        gains = tuple(float(value) for value in likelihood[:, at])
        return Split(first, first + at, first + low, first + high, gains, lead)

    def _by_level(self, first: int, gains: Matrix, lead: int) -> tuple[int, int, int] | None:
        """The split of the samples themselves of the leading feature, where it says more than that of innovations.

        None where it does not. Numbers from `first` on: the most likely split, lowest and highest of the set.
        """
        feature = max(self.scores[lead].features, key=lambda j: float(gains[j]))
        ranked = self.ranked(first)
        series = self.history(first, int(self.state[SEQ]))[:, feature].copy()
        likelihood = np.empty(len(series))
        if not split_levels(series, likelihood) > gains[lead]:
            return None
        at, low, high = split_set(likelihood)
        return int(ranked[at]), int(ranked[low]) if low > LEAST else 0, int(ranked[high])

    def sides(self, split: Split) -> tuple[Matrix, Matrix, int]:
        """Older samples and the remembered ones before the interval; those from the split on."""
        seq = int(self.state[SEQ])
        oldest = max(int(self.state[WARM_SEQ]), seq - self.layout.length + 1)
        recent = self.history(oldest, split.low - 1)
        return np.concatenate((self.kept(), recent)), self.history(split.best, seq), len(recent)

    def compare(self, before: Matrix, after: Matrix, ordered: int) -> Change:
        """Two samples."""
        return compare(before, after, ordered)

    def pair_of(self, c: int) -> tuple[int, int] | None:
        """Products alone."""
        if not self.layout.v_rows <= c < self.layout.fixed:
            return None
        i, j = self.scores[c].features
        return i, j

    def leader(self, c: int, changes: dict[int, Change]) -> int:
        """One that is stuck, else the one that moved or widened most."""
        return max(self.scores[c].features, key=lambda j: (is_stuck(changes[j]), strength_of(changes[j])))

    def is_picked(self, c: int) -> bool:
        """The score behind all others."""
        return c == self.layout.fixed

    def kind(self, split: Split, change: Change, changes: dict[int, Change]) -> str:  # noqa: ARG002
        """Level, spread or shape, whichever moved most."""
        return kind_of(change, len(self.history(split.best, int(self.state[SEQ]))))

    def features(self, split: Split) -> tuple[tuple[str, float], ...]:
        """By the likelihood of each score they are part of."""
        return report.share_evidence(self.names, self.scores, [max(gain, 0.0) for gain in split.gains])

    def origin_of(self, j: int) -> float:
        """The key's first sample, from the arming on the medians of its history."""
        return float(self.row[self.layout.origin + j])

    def moved(self, split: Split, c: int) -> float:
        """Standardised rank sum of a radius, a product or the pick after the change against the bag."""
        return float(rank_sum(self.values(self.steps(split.best), c), self.values(self.bag(), c)))

    def distance(self, split: Split, c: int) -> float:
        """Of the samples since the split against the bag."""
        return compare(self.values(self.bag(), c), self.values(self.steps(split.best), c), 1).distance


class FrozenKey(StreamKey):
    """One key at its alarm against a frozen reference, which stands for all that was before.

    Raw samples are those that steps stand for, relative to the center of the scale.
    """

    def history(self, first: int, last: int) -> Matrix:
        """float64[n, d], the samples `first` to `last`."""
        return self._raw(self._steps_at(np.arange(first, last + 1) % self.layout.length))

    def kept(self) -> Matrix:
        """float64[n, d], the reference."""
        d, n = self.layout.dims, int(self.state[V_SIZE])
        return self._raw(self.shorts[: d * self.layout.v_room].reshape(d, self.layout.v_room)[:, :n].T)

    def sides(self, split: Split) -> tuple[Matrix, Matrix, int]:
        """The whole reference; the samples from the split on."""
        reference = self.kept()
        return reference, self.history(split.best, int(self.state[SEQ])), len(reference)

    def _raw(self, steps: NDArray[np.int16]) -> Matrix:
        scale = self.row[self.layout.scale : self.layout.scale + self.layout.dims]
        found: Matrix = raw_of(np.ascontiguousarray(steps), scale)
        return found


def _squares(z: Matrix) -> Matrix:
    total = np.zeros(len(z))
    for j in range(z.shape[1]):
        total += z[:, j] * z[:, j]
    return total
