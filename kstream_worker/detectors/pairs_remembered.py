"""What a key of explicit pairs remembers at its alarm, as `explanation` asks for it.

Before is the reference side and after the live side of the same pairs, those since the change: what both sides do
together is no difference.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.before_after import CLEAR, SPIKE, Change, compare, compare_pairs, kind_of, signed_ranks
from kstream_worker.detectors.explanation import AS_GOOD, Matrix, Split, strength_of
from kstream_worker.detectors.pairs_state import FIRST, INTS, SEQ, Plan
from kstream_worker.detectors.sign_split import split_signs
from kstream_worker.detectors.splitting import split_set
from kstream_worker.models.scaling import CLIP

_SURE = 4.0  # standard deviations by which a feature's level or spread differs that no score of either told
_CRITICAL = 1.63  # of the largest difference of two empirical distribution functions, times sqrt(n / 2)
_LARGEST = 1e39  # more than any 32-bit float


class PairKey(NamedTuple):
    """One key at its alarm: its last pairs.

    Attributes:
        row: float64[plan.floats], the key's floats.
        state: int64[INTS + plan.length], the key's integers.
        plan: of the row.
        names: of the features.
        scores: all fixed ones.
        crossed: which of them did; None for the learned one.
        weights: of the features in the evidence, largest first, which may reach back further than these pairs.
    """

    row: Matrix
    state: NDArray[np.int64]
    plan: Plan
    names: tuple[str, ...]
    scores: tuple[report.Score, ...]
    crossed: int | None
    weights: dict[str, float]

    def time_of(self, seq: int) -> int:
        """Event time of a remembered pair."""
        return int(self.state[INTS + seq % self.plan.length])

    def recent(self, first: int) -> Matrix:
        """float64[n, 2, d], reference and live sides from pair `first` on, relative to the center of the scale."""
        length, d = self.plan.length, self.plan.dims
        ring = self.row[self.plan.at_recent : self.plan.at_gain].view(np.float32).reshape(length, 2, d)
        found: Matrix = ring[np.arange(first, int(self.state[SEQ]) + 1) % length].astype(np.float64)
        return found

    def values(self, first: int, c: int) -> Matrix:
        """float64[n, 2], a score of both sides from pair `first` on."""
        d = self.plan.dims
        scale = np.minimum(self.row[self.plan.at_scale : self.plan.at_scale + d], _LARGEST)
        z = np.clip(self.recent(first), -CLIP * scale, CLIP * scale) / scale
        members = self.scores[c].features
        if c == d:
            total = np.zeros(z.shape[:2])
            for j in members:
                total += z[:, :, j] * z[:, :, j]
            return np.sqrt(total)
        found: Matrix = z[:, :, members[0]]
        return found if c < d else found * z[:, :, members[-1]]

    def locate(self, crossed: int | None, *, spike: bool = False) -> Split:  # noqa: ARG002
        """Split the pairs by the score that crossed, else by one of the leading feature."""
        first = max(int(self.state[SEQ]) - self.plan.length + 1, int(self.state[FIRST]))
        likelihood = np.empty((len(self.scores), int(self.state[SEQ]) - first + 1))
        for c, row in enumerate(likelihood):
            split_signs(self._differences(first, c), row)
        lead = self._foremost(likelihood) if crossed is None else crossed
        at, low, high = split_set(likelihood[lead])
        gains = tuple(float(value) for value in likelihood[:, at])
        return Split(first, first + at, first + low, first + high, gains, lead)

    def _foremost(self, likelihood: Matrix) -> int:
        """The first score of the leading feature that says about as much of a change as any of it."""
        leading = self.names.index(next(iter(self.weights)))
        best = likelihood.max(axis=1)
        own = [c for c, score in enumerate(self.scores) if leading in score.features]
        most = max(best[c] for c in own)
        return next(c for c in own if best[c] >= most - AS_GOOD)

    def sides(self, split: Split) -> tuple[Matrix, Matrix, int]:
        """The reference side and the live side from the split on."""
        pairs = self.recent(split.best)
        return pairs[:, 0], pairs[:, 1], len(pairs)

    def compare(self, before: Matrix, after: Matrix, ordered: int) -> Change:  # noqa: ARG002
        """Both sides of the same pairs."""
        return compare_pairs(before, after)

    def pair_of(self, c: int) -> tuple[int, int] | None:
        """Products of two features alone."""
        members = self.scores[c].features
        return (members[0], members[1]) if c > self.plan.dims and len(members) == 2 else None

    def leader(self, c: int, changes: dict[int, Change]) -> int:  # noqa: ARG002
        """The one with the largest weight in the evidence."""
        return max(self.scores[c].features, key=lambda j: self.weights[self.names[j]])

    def is_picked(self, c: int) -> bool:  # noqa: ARG002
        """There are no such scores."""
        return False

    def features(self, split: Split) -> tuple[tuple[str, float], ...]:
        """By the likelihood of each score they are part of; by the evidence where that says more."""
        if self.crossed is None or split.low == split.first:
            return tuple(self.weights.items())
        return report.share_evidence(self.names, self.scores, [max(gain, 0.0) for gain in split.gains])

    def kind(self, split: Split, change: Change, changes: dict[int, Change]) -> str:
        """Level, spread or shape, whichever moved most; else what the score that crossed stands for.

        That is a level of a coordinate, a spread of a square or of the radius, a dependence of a product. Of the
        learned score it is `shape`, where the law of a feature by itself clearly changed (Kolmogorov and Smirnov, 1 %),
        else `dependence`.
        """
        n = int(self.state[SEQ]) - split.best + 1
        found = kind_of(change, n)
        if found == "spread" and abs(change.center_after - change.center_before) > SPIKE * change.spread_before:
            return "level"  # dated a little early it holds both levels
        if found in ("stuck", "spike") or strength_of(change) >= (CLEAR if self.crossed is not None else _SURE):
            return found
        if self.crossed is None:
            distance = max(change.distance for change in changes.values())
            return "shape" if distance >= _CRITICAL * math.sqrt(2.0 / n) else "dependence"
        if self.crossed < self.plan.dims:
            return "level"
        return "spread" if self.pair_of(self.crossed) is None else "dependence"

    def origin_of(self, j: int) -> float:
        """Center of the scale."""
        return float(self.row[self.plan.at_center + j])

    def moved(self, split: Split, c: int) -> float:
        """Standardised signed ranks of the differences of a score since the split."""
        return float(signed_ranks(self._differences(split.best, c)))

    def distance(self, split: Split, c: int) -> float:
        """Of a score's laws on both sides since the split."""
        values = self.values(split.best, c)
        return compare(values[:, 0].copy(), values[:, 1].copy(), 1).distance

    def _differences(self, first: int, c: int) -> Matrix:
        values = self.values(first, c)
        return values[:, 1] - values[:, 0]
