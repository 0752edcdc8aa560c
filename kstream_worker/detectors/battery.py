"""Shiryaev-Roberts bets on differences of scores between the two sides of a pair: the parts of the pair detector.

A score s gives D = s(y) - s(x). If, given the past, the two sides may be swapped, D is symmetric about 0, so the
payoff b = tanh(D / rms), with an rms of past D alone, has mean 0 given the past, and so has every bet 1 + c b mean 1.
The statistic R <- (R + 1) (1 + c b) then grows by exactly 1 per pair in the mean, and so does every weighted mean of
such R: at the first time T at which it reaches A, E T = E R_T >= A, whatever the law of the data (Shin, Ramdas,
Rinaldo, E-detectors, 2022; Shekhar, Ramdas, Nonparametric two-sample testing by betting, 2021).

Columns come in blocks of four: S fixed scores (two-sided, 1 + c b and 1 - c b), filled up to a multiple of 4 with
columns that are always 0, then up to four learned ones (one-sided: a learned f is larger on the live side). A padding
column has weight 0. The statistics lie in one array: stakes by columns of 1 + c b, then stakes by fixed columns of
1 - c b.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import fill, load, store, total
from kstream_worker.numerics.math import exp_all

STAKES = (0.05, 0.1, 0.2, 0.4, 0.7)
RUN_STAKES = (0.4, 0.7)  # of the bets whose runs date a change; those of smaller stakes rarely pay best, and date worse
RMS_DECAY = 0.99
LEARNED = 4  # room for learned columns

_TANH_IS_ONE = 22.0


def count_scores(dims: int, products: bool) -> int:
    """Number S of fixed scores: coordinates, radius and, if asked, products z_i z_j with i <= j."""
    return dims + 1 + (dims * (dims + 1) // 2 if products else 0)


def padded(count: int) -> int:
    """The next multiple of 4."""
    return (count + 3) // 4 * 4


def bets_of(fixed: int) -> int:
    """Room for the statistics of `fixed` (a multiple of 4) two-sided and `LEARNED` one-sided columns."""
    return len(STAKES) * (2 * fixed + LEARNED)


def runs_of(fixed: int) -> int:
    """Number of runs that are followed."""
    return len(RUN_STAKES) * (2 * fixed + LEARNED)


@inline
def fixed_scores(z: np.ndarray, dims: int, products: bool, out: np.ndarray) -> None:
    """Coordinates, Euclidean length and products z_i z_j (i <= j, row by row) of one sample.

    Args:
        z: float64[dims].
        dims: number of features.
        products: whether products are wanted.
        out: float64[>= S], filled.
    """
    square = 0.0
    for j in range(dims):
        out[j] = z[j]
        square += z[j] * z[j]
    out[dims] = math.sqrt(square)
    if products:
        k = dims + 1
        for i in range(dims):
            for j in range(i, dims):
                out[k] = z[i] * z[j]
                k += 1


@inline
def payoffs(
    difference: np.ndarray,
    mean_square: np.ndarray,
    weight: float,
    n: int,
    out: np.ndarray,
    powers: np.ndarray,
) -> None:
    """b = tanh(D / rms) of n columns; 0 where the rms is 0. Changes nothing but `out` and the scratch.

    Args:
        difference: float64[>= n], D.
        mean_square: float64[>= n], exponentially weighted sum of past D^2.
        weight: sum of those weights (0 before the first pair); dividing by it removes the bias of a short past.
        n: number of columns.
        out: float64[>= n].
        powers: int64[>= n], scratch.
    """
    for k in range(n):
        past = mean_square[k] / weight
        ratio = abs(difference[k]) / math.sqrt(past)
        bounded = ratio if ratio < _TANH_IS_ONE else _TANH_IS_ONE
        out[k] = -2.0 * bounded if past > 0.0 else 0.0
    exp_all(out, powers, n)
    for k in range(n):
        size = (1.0 - out[k]) / (1.0 + out[k])
        out[k] = size if difference[k] > 0.0 else -size


@inline
def remember(difference: np.ndarray, mean_square: np.ndarray, n: int) -> None:
    """Add the D of this pair to the mean squares (the sum of their weights grows by `next_weight`)."""
    for k in range(n):
        mean_square[k] = RMS_DECAY * mean_square[k] + (1.0 - RMS_DECAY) * (difference[k] * difference[k])


@inline
def next_weight(weight: float) -> float:
    """The sum of weights after one more pair."""
    return RMS_DECAY * weight + (1.0 - RMS_DECAY)


@inline
def bet(statistic: np.ndarray, payoff: np.ndarray, weights: np.ndarray, fixed: int, columns: int) -> float:
    """R <- (R + 1) g for the bets of all columns; the weighted sum of R afterwards.

    Args:
        statistic: float64[bets_of(fixed)], R, changed.
        payoff: float64[>= columns], b.
        weights: float64[>= columns], of one bet of each column.
        fixed: two-sided columns, a multiple of 4.
        columns: all columns, fixed + LEARNED.
    """
    one = fill(1.0)
    evidence = fill(0.0)
    minus = len(STAKES) * columns
    for k in range(0, columns, 4):
        b = load(payoff, k)
        reached = fill(0.0)
        for c in range(len(STAKES)):
            at = c * columns + k
            r = (load(statistic, at) + one) * (one + fill(STAKES[c]) * b)
            store(statistic, at, r)
            reached = reached + r
        if k < fixed:
            for c in range(len(STAKES)):
                at = minus + c * fixed + k
                r = (load(statistic, at) + one) * (one - fill(STAKES[c]) * b)
                store(statistic, at, r)
                reached = reached + r
        evidence = evidence + load(weights, k) * reached
    return total(evidence)


@inline
def run_multipliers(payoff: np.ndarray, fixed: int, columns: int, out: np.ndarray) -> None:
    """What the bets whose runs are followed pay: by stake, 1 + c b of all columns, then 1 - c b of the fixed ones.

    Args:
        payoff: float64[>= columns], b.
        fixed: two-sided columns.
        columns: all columns.
        out: float64[>= runs_of(fixed)].
    """
    at = 0
    for c in range(len(RUN_STAKES)):
        stake = RUN_STAKES[c]
        for k in range(columns):
            out[at + k] = 1.0 + stake * payoff[k]
        at += columns
        for k in range(fixed):
            out[at + k] = 1.0 - stake * payoff[k]
        at += fixed
