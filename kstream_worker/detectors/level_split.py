"""Where in a dependent series did its level change? Compiled.

The innovations of an autoregression show a step as one large value, then next to nothing: the new level is soon what it
expects. Ranks of innovations date a step poorly for that reason; the series itself shows it from its first sample to
its last. Two means with one variance, all unknown, give every split k the profile likelihood of normal errors
(Hinkley, Inference about the change-point in a sequence of random variables, Biometrika 57, 1970) against one mean,

    l(k) = -n/2 log(S_k / S),

S sums of squares about the means on both sides, and about one mean. Errors that are dependent say less than n
independent ones: l is multiplied by (1 - r) / (1 + r), the share of n that an autoregression of r leaves for a mean.
Less 1/2 log n for the mean that is fitted more (Schwarz, Estimating the dimension of a model, Annals of Statistics 6,
1978), it compares with likelihoods that fit nothing.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

LEAST = 2  # samples on each side
_FARTHEST = 6.0  # spreads beyond which a value does not count further
_EXACT = 1e-6  # of the variance, that errors have at least
_MOST_ALIKE = 0.99  # the largest r


@jit
def split_levels(x: np.ndarray, likelihood: np.ndarray) -> float:
    """l of every split of a series.

    Args:
        x: float64[n], finite; changed.
        likelihood: float64[n], filled: l of a change before each sample, minus infinity where fewer than two are on a
            side, or all are equal.

    Returns:
        the largest of them.
    """
    n = len(x)
    likelihood[:] = -math.inf
    _center(x)
    total = 0.0
    whole = 0.0
    for i in range(n):
        total += x[i]
        whole += x[i] * x[i]
    whole -= total * total / n
    if n < 2 * LEAST or not whole > 0.0:
        return -math.inf
    best = LEAST
    first = x[0]
    for k in range(LEAST, n - LEAST + 1):
        first += x[k - 1]
        explained = (first * n - total * k) ** 2 / (1.0 * n * k * (n - k))
        likelihood[k] = -0.5 * n * log(max(1.0 - explained / whole, _EXACT))
        if likelihood[k] > likelihood[best]:
            best = k
    worth = _worth(x, best)
    for k in range(LEAST, n - LEAST + 1):
        likelihood[k] = worth * likelihood[k] - 0.5 * log(1.0 * n)
    return float(likelihood[best])


@inline
def _center(x: np.ndarray) -> None:
    """In spreads from the median, six at most."""
    center, spread = scaling.center_and_scale(x.copy(), len(x))
    for i in range(len(x)):
        x[i] = min(max((x[i] - center) / spread, -_FARTHEST), _FARTHEST)


@inline
def _worth(x: np.ndarray, split: int) -> float:
    """(1 - r) / (1 + r), r the correlation of neighbours about the means of both sides, if positive."""
    n = len(x)
    before = 0.0
    after = 0.0
    for i in range(n):
        if i < split:
            before += x[i] / split
        else:
            after += x[i] / (n - split)
    power = 0.0
    product = 0.0
    last = 0.0
    for i in range(n):
        off = x[i] - (before if i < split else after)
        power += off * off
        product += off * last
        last = off
    r = min(max(product / power, 0.0), _MOST_ALIKE) if power > 0.0 else 0.0
    return (1.0 - r) / (1.0 + r)
