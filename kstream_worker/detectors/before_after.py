"""Two samples of one feature, before and after a change: medians, spreads, and what kind of change lies between."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.history import rank_sum
from kstream_worker.models.scaling import quantile
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

CLEAR = 2.5  # standard deviations of a rank sum from which a difference counts
MOST_EVEN = 1.25  # ratio of standard deviations up to which a change is one of shape, not of spread
SPIKE = 4.0  # spreads from the median
STILL = 5  # equal values at the end, at least, of a feature that is stuck
_BY_CHANCE = 1e-4  # probability of as long a run of repeats before the change
_FEW = 8  # values whose standard deviation says little
_LARGEST_R = 0.999999
_WINSOR = 6.0  # spreads beyond which a value does not count further


class Change(NamedTuple):
    """What lies between two samples of a feature; all of it is computed in scalar loops.

    Attributes:
        center_before: median before the change.
        spread_before: IQR / 1.349 before, (q95 - q5) / 3.29 where that is 0.
        center_after: median after the change.
        spread_after: the same after.
        level: standardised rank sum of after against before.
        spread: the larger of the same of distances from their own medians, and of the logarithm of `ratio` in 1.5 of
            its standard deviations under a normal law.
        ratio: of standard deviations, after over before, with distances cut at 6 spreads; inf where it was 0.
        distance: largest difference of the two distribution functions (Kolmogorov, Smirnov).
        still: length of the run of equal values at the end.
        repeats: share of values before that equal their predecessor.
    """

    center_before: float
    spread_before: float
    center_after: float
    spread_after: float
    level: float
    spread: float
    ratio: float
    distance: float
    still: int
    repeats: float


def compare(before: NDArray[np.float64], after: NDArray[np.float64], ordered: int) -> Change:
    """The change between two samples.

    Args:
        before: float64[n], n >= 1.
        after: float64[m] in the order of time, m >= 1.
        ordered: so many at the end of `before` follow one another in time.
    """
    return Change(*_compare(before, after, ordered, False))


def compare_pairs(before: NDArray[np.float64], after: NDArray[np.float64]) -> Change:
    """The same of the two sides of pairs: `level` and `spread` are standardised signed ranks of differences.

    Args:
        before: float64[n] in the order of time, n >= 1.
        after: float64[n], the other sides.
    """
    return Change(*_compare(before, after, len(before), True))


@jit
def _compare(
    before: np.ndarray, after: np.ndarray, ordered: int, paired: bool
) -> tuple[float, float, float, float, float, float, float, float, int, float]:
    center_b, spread_b = _center_and_spread(before)
    center_a, spread_a = _center_and_spread(after)
    unit = max(spread_b, spread_a)
    sd_b = _deviation(before, center_b, unit)
    sd_a = _deviation(after, center_a, unit)
    ratio = sd_a / sd_b if sd_b > 0.0 else math.inf if sd_a > 0.0 else 1.0
    still = 1
    while still < len(after) and after[-1 - still] == after[-1]:
        still += 1
    repeats = 0
    for i in range(len(before) - ordered + 1, len(before)):
        repeats += 1 if before[i] == before[i - 1] else 0
    off_a, off_b = np.abs(after - center_a), np.abs(before - center_b)
    level = signed_ranks(after - before) if paired else rank_sum(after, before)
    wider = signed_ranks(off_a - off_b) if paired else rank_sum(off_a, off_b)
    return (
        center_b,
        spread_b,
        center_a,
        spread_a,
        level,
        _widened(wider, ratio, len(before), len(after)),
        ratio,
        _distance(before, after),
        still,
        repeats / max(1, ordered - 1),
    )


@jit
def signed_ranks(differences: np.ndarray) -> float:
    """Standardised signed-rank statistic: positive where differences are; those of 0 say nothing, ties share ranks.

    F. Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1, 1945.

    Args:
        differences: float64[n].
    """
    total = squares = 0.0
    for d in differences:
        if d != 0.0:
            rank = 0.5
            for other in differences:
                if other != 0.0 and abs(other) <= abs(d):
                    rank += 1.0 if abs(other) < abs(d) else 0.5
            total += rank if d > 0.0 else -rank
            squares += rank * rank
    return total / math.sqrt(squares) if squares > 0.0 else 0.0


@inline
def _widened(z: float, ratio: float, n: int, m: int) -> float:
    if not 0.0 < ratio < math.inf or m < _FEW:
        return z
    by_ratio = log(ratio) / math.sqrt(0.5 / n + 0.5 / m) / 1.5
    return z if abs(z) > abs(by_ratio) else by_ratio


@inline
def _center_and_spread(values: np.ndarray) -> tuple[float, float]:
    work = values.copy()
    n = len(work)
    center = quantile(work, n, 0.5)
    spread = (quantile(work, n, 0.75) - quantile(work, n, 0.25)) / 1.349
    if not spread > 0.0:
        spread = (quantile(work, n, 0.95) - quantile(work, n, 0.05)) / 3.29
    return center, spread


@inline
def _deviation(values: np.ndarray, center: float, unit: float) -> float:
    if not unit > 0.0:
        return 0.0
    total = 0.0
    for i in range(len(values)):
        off = min(abs(values[i] - center) / unit, _WINSOR)
        total += off * off
    return math.sqrt(total / len(values))


@inline
def _distance(before: np.ndarray, after: np.ndarray) -> float:
    largest = 0.0
    for x in after:
        low = 0
        for value in before:
            low += 1 if value <= x else 0
        own = 0
        for value in after:
            own += 1 if value <= x else 0
        largest = max(largest, abs(own / len(after) - low / len(before)))
    return largest


@jit
def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's correlation of two columns; 0 where one is constant.

    Args:
        a: float64[n], n >= 1.
        b: float64[n].
    """
    n = len(a)
    mean_a = mean_b = 0.0
    for i in range(n):
        mean_a += a[i] / n
        mean_b += b[i] / n
    ab = aa = bb = 0.0
    for i in range(n):
        da, db = a[i] - mean_a, b[i] - mean_b
        ab += da * db
        aa += da * da
        bb += db * db
    return ab / math.sqrt(aa) / math.sqrt(bb) if aa > 0.0 and bb > 0.0 else 0.0


def turned(before: float, after: float, n: int, m: int) -> float:
    """Standard deviations by which a correlation over m samples differs from one over n (Fisher's z)."""
    if n <= 3 or m <= 3:
        return 0.0
    return (_fisher(after) - _fisher(before)) / math.sqrt(1.0 / (n - 3) + 1.0 / (m - 3))


def _fisher(r: float) -> float:
    r = min(max(r, -_LARGEST_R), _LARGEST_R)
    return 0.5 * (log(1.0 + r) - log(1.0 - r))


def kind_of(change: Change, length: int) -> str:
    """`stuck`, `spike`, `level`, `spread` or `shape`: what one feature's change is.

    Args:
        change: of the feature.
        length: samples from the likely change on.
    """
    if is_stuck(change):
        return "stuck"
    off = abs(change.center_after - change.center_before)
    if length < _FEW and off > SPIKE * change.spread_before:  # too few for a rank sum to be clear
        return "spike" if length == 1 else "level"
    if max(abs(change.level), abs(change.spread)) < CLEAR:
        return "shape"
    if abs(change.level) >= abs(change.spread):
        return "level"
    return "shape" if 1.0 / MOST_EVEN <= change.ratio <= MOST_EVEN else "spread"


def is_stuck(change: Change) -> bool:
    """Whether a feature that moved has shown one value for longer than its past explains."""
    if change.still < STILL or change.spread_before == 0.0:
        return False
    return change.repeats == 0.0 or change.repeats ** (change.still - 1) < _BY_CHANCE


def severity_of(kind: str, change: Change) -> float:
    """0..1 from the size of a change, not from the evidence: e / (1 + e), 1 for `stuck`.

    e is, for `level` and `spike`, the shift of the median in spreads; for `spread`, how much the larger of the two
    standard deviations exceeds the smaller, relative to that; for `shape`, twice the largest difference of the
    distribution functions.
    """
    if kind == "stuck":
        return 1.0
    if kind in ("level", "spike"):
        off = abs(change.center_after - change.center_before)
        effect = off / change.spread_before if change.spread_before > 0.0 else math.inf
    elif kind == "spread":
        small, large = min(change.ratio, 1.0), max(change.ratio, 1.0)
        effect = large / small - 1.0 if small > 0.0 else math.inf
    else:
        effect = 2.0 * change.distance
    return saturated(effect)


def saturated(effect: float) -> float:
    """e / (1 + e)."""
    return 1.0 if effect == math.inf else effect / (1.0 + effect)


def size_of(kind: str, change: Change) -> float:
    """How far the kind of change moved the feature, in its own units: its spread, or else its median."""
    if kind in ("spread", "stuck"):
        return change.spread_after - change.spread_before
    return change.center_after - change.center_before
