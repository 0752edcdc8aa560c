"""Whether the pairs of a warm-up depend on former ones in a way that no swap of their sides undoes. Compiled.

Where, given the past, the two sides of each pair could be swapped, D = y - x of a feature is symmetric about 0 given
the past. Any odd function b of D then has mean 0 given the past, and so has b_t b_{t-k}, whose sum over the pairs has
the variance of the sum of its squares: however the size of D depends on the past, as of volatility in clusters, and
however much both sides drift together. So

    Q = sum over k = 1..10 of (sum_t b_t b_{t-k})^2 / sum_t (b_t b_{t-k})^2

is the statistic of Ljung and Box (1978) with weights that allow for that. b = e / (|e| + m), e = D less its median, m
the median of |e|, so that heavy tails do no harm, and a lasting difference of the sides is none of dependence. Its
critical values are those of independent samples (`dependence.RAW`): at the level .02 Q exceeds them in .015 to .022 of
series of 40 to 600 normal, Cauchy, Laplace's rounded to units, or GARCH differences. Of D that is an autoregression of
order 1 200 pairs find .2 in about one of four, .3 in more than half, .5 nearly always.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.dependence import RAW, critical
from kstream_worker.detectors.pairs_state import AT_ATOMS, DIMS, WARMUP
from kstream_worker.models.scaling import select
from kstream_worker.numerics.jit import inline, jit

LAGS = 10
LEVEL = 0.02  # of a false claim that pairs are dependent; it costs a word, the opposite error a promise
FEWEST = 40  # pairs; of fewer nothing is said


@jit
def differences_depend(row: np.ndarray, at: np.ndarray) -> bool:
    """Whether D of some feature is serially dependent in the warm-up that the row holds; changes nothing.

    Args:
        row: float64[plan.floats] of the key, with the pairs of its warm-up.
        at: the plan's table.
    """
    d = at[DIMS]
    n = at[WARMUP]
    if n < FEWEST:
        return False
    limit = critical(RAW, n, LEVEL / d)
    b = np.empty(n)
    work = np.empty(n)
    for j in range(d):
        for i in range(n):
            start = at[AT_ATOMS] + 2 * d * i + j
            b[i] = row[start + d] - row[start]
        if _bounded(b, work) and _statistic(b) > limit:
            return True
    return False


@inline
def _bounded(values: np.ndarray, work: np.ndarray) -> bool:
    """D of float64[n] to b, in place; False where most of D is one value."""
    n = len(values)
    for i in range(n):
        work[i] = values[i]
    middle = select(work, n, n // 2)
    for i in range(n):
        values[i] -= middle
        work[i] = abs(values[i])
    size = select(work, n, n // 2)
    if not size > 0.0:
        return False
    for i in range(n):
        values[i] /= abs(values[i]) + size
    return True


@inline
def _statistic(b: np.ndarray) -> float:
    q = 0.0
    for lag in range(1, LAGS + 1):
        total = 0.0
        power = 0.0
        for i in range(lag, len(b)):
            product = b[i] * b[i - lag]
            total += product
            power += product * product
        if power > 0.0:
            q += total * total / power
    return q
