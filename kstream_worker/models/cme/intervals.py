"""Limits of each value of y that are missed as often as stated, whatever comes: quantile tracking, one side at a time.

A side of y's interval lies q predicted standard deviations beyond the predicted mean. After each pair q grows by
`STEP` (1 - a) if y lay beyond that side, else it falls by `STEP` a; a is the stated share of misses of one side,
(1 - coverage) / 2. The feedback on errors is that of Gibbs and Candes (Adaptive conformal inference under distribution
shift, 2021, eq. 2), on the quantile itself as in Angelopoulos, Candes and Tibshirani (Conformal PID control for time
series prediction, 2023, sect. 2.1).

What is proven. The moves add up: in T pairs that follow one another, misses - a T = (q after - q before) / `STEP`,
whatever the pairs are. So the share of misses is as close to a as q is bounded. Let s be y's distance beyond the mean,
outwards, in predicted standard deviations, B = `MOST`, R = 2 B the range of s.

- Where -B <= s <= B: above B, q falls, as nothing lies beyond; below -B it grows. So q stays in [-B - `STEP` a, B +
  `STEP` (1 - a)], and |share of misses - a| <= (R + `STEP`) / (`STEP` T): in the long run each side misses as stated.
- Whatever s is, unbounded ones included: where q is above B the side has *no limit* (infinite), so that nothing can
  lie beyond; below -B - `STEP` a it does not fall. Then share of misses <= a + (R + `STEP`) / (`STEP` T). The price of
  residuals that keep growing is intervals without a limit, not silent misses; s for ever below -B is missed less
  often than stated.

Nothing is assumed of the predictions. What is *not* said: coverage at a given x, of all values of y at once, or of any
single pair; that misses do not come together; and that intervals are short. The bound is for the worst sequence,
201 / T; q of an ordinary one moves by one or two, which leaves about 20 / T.

A miss is told by the very numbers that are published. Should the lower side come to lie above the upper one (residuals
far below what the standard deviation foretells), the two are exchanged: each published side is then missed at most as
often.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.math import log
from kstream_worker.numerics.outline import outline

STEP = 0.1  # predicted standard deviations
MOST = 10.0  # of these: beyond, a side has no limit
RECENT = 0.005  # share of a pair in the share covered of late
PER_VALUE = 3  # entries held for a value of y: q of the lower and of the upper side, share covered of late


@inline
def start(held: np.ndarray, dims: int, tail: float) -> None:
    """Before the first pair: q of a Laplace law, share 0.

    Args:
        held: float64[PER_VALUE * dims], changed: q of the lower sides, of the upper sides, shares covered.
        dims: values of y.
        tail: share of misses of one side, above 0, at most 1/2.
    """
    for j in range(dims):
        held[j] = math.sqrt(0.5) * log(0.5 / tail)
        held[dims + j] = held[j]
        held[2 * dims + j] = 0.0


@inline
def tell(held: np.ndarray, dims: int, moments: np.ndarray) -> None:
    """Intervals about predicted means.

    Args:
        held: as `start` made it.
        dims: values of y.
        moments: float64[>= 4 dims]: means and standard deviations of y; then lower and upper limits, results, in the
            same units, -inf and inf where there is none.
    """
    for j in range(dims):
        below = moments[j] - _reach(held[j], moments[dims + j])
        above = moments[j] + _reach(held[dims + j], moments[dims + j])
        moments[2 * dims + j] = min(below, above)
        moments[3 * dims + j] = max(below, above)


@inline
def learn(held: np.ndarray, dims: int, tail: float, judged: int, y: np.ndarray, told: np.ndarray) -> None:
    """Move the sides by what became of a pair, and count it.

    Args:
        held: as `start` made it, changed.
        dims: values of y.
        tail: as at the start.
        judged: intervals published before; negative where this one is not, which is not counted.
        y: float64[dims], in the units of the next.
        told: float64[5 dims]: what `tell` was given and answered; then the share covered of late, this pair included,
            result.
    """
    outline()
    for j in range(dims):
        mean, sd = told[j], told[dims + j]
        held[j] = _moved(held[j], tail, y[j] < mean - _reach(held[j], sd))
        held[dims + j] = _moved(held[dims + j], tail, y[j] > mean + _reach(held[dims + j], sd))
        if judged >= 0:
            covered = 1.0 if told[2 * dims + j] <= y[j] <= told[3 * dims + j] else 0.0
            held[2 * dims + j] += max(1.0 / (judged + 1), RECENT) * (covered - held[2 * dims + j])
        told[4 * dims + j] = held[2 * dims + j]


@inline
def _reach(q: float, sd: float) -> float:
    return q * sd if q <= MOST else math.inf


@inline
def _moved(q: float, tail: float, missed: bool) -> float:
    return q + STEP * (1.0 - tail) if missed else max(q - STEP * tail, -MOST - STEP * tail)
