"""Bets that stay fair where payoffs depend on former ones: less is paid to those that vary too much over long blocks.

What no autoregression takes out (volatility with a daily shape, slow wandering) makes p-values that are uniform one by
one but go together for a hundred samples. The sum of a payoff with variance s^2 then varies v times as much as it
should over a block, and the logarithm of a bet 1 + c x, whose mean is -c^2 s^2 / 2 a sample, rises by chance as if it
had v times the variance. Multiplied by about exp(-c^2 s^2 (v - 1) / 2) it is fair again.

v is the mean of squared sums of b = 1 - 2p, and of u = 1.5 b^2 - .5, over blocks of 64 samples, divided by their
variance for independent samples. A block counts at most nine times the mean so far: one event is not the rule. v is
divided by 1 and two of its standard errors, and is at least 1: it has to be sure. It is taken from samples before the
last generation of blocks (4, 4, 8, 16, 32, then 64 each), so that a change under way does not disarm its own detection.

Every factor is at most 1 and a function of the column's former p-values: independent samples keep their guarantee,
whatever the factors are, and where v = 1 there are none.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.ranks_layout import (
    AT_FAIR_FACTORS,
    AT_FAIR_FORMER,
    AT_FAIR_SQUARES,
    AT_FAIR_SUMS,
    FACTORS,
    FAIR,
    FAIR_AT,
    FAIR_BLOCKS,
    FAIR_FORMER,
    FAIR_NEXT,
    FIXED,
    PAYOFFS,
    UPWARD,
    singles,
)
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import load, store
from kstream_worker.numerics.math import exp

SPAN = 64  # samples of a block
FIRST = 4  # blocks of the first generation
LONGEST = 64  # of a later one
LARGEST = 9.0  # a block counts at most so many times the mean so far
ERRORS = 2.0  # standard errors of the mean of squares of normal variables, sqrt(2 / blocks)
_B_VARIANCE, _U_VARIANCE = 1.0 / 3.0, 1.0 / 5.0  # for uniform p

# Half the variance of the logarithm of each bet, about: c^2 s^2 / 2 for b and u, a^2 / 2 for p^-a.
_HALF_VARIANCES = (0.01 / 6, 0.0625 / 6, 0.25 / 6, 0.9025 / 6, 0.16 / 10, 0.9025 / 10, 0.125, 0.28125)


@inline
def pay_two_sided(row: np.ndarray, state: np.ndarray, score: int, p: float, plan: np.ndarray, g: np.ndarray) -> None:
    """Watch the payoffs of a two-sided test and make its 14 multipliers fair.

    Args:
        row: the key's floats.
        state: the key's integers.
        score: its number among those that are watched.
        p: p-value.
        plan: layout.
        g: float64[>= 14], changed.
    """
    b = 1.0 - 2.0 * p
    sums = singles(row, plan[AT_FAIR_SUMS], 2 * plan[PAYOFFS])
    sums[2 * score] += b
    sums[2 * score + 1] += 1.5 * b * b - 0.5
    if state[FAIR] == 0:
        return
    factors = singles(row, plan[AT_FAIR_FACTORS], FACTORS * plan[PAYOFFS])[FACTORS * score : FACTORS * (score + 1)]
    of_b = load(factors, 0)
    store(g, 0, load(g, 0) * of_b)
    store(g, 4, load(g, 4) * of_b)
    for k in range(2):
        g[8 + k] *= factors[4 + k]
        g[10 + k] *= factors[4 + k]
        g[12 + k] *= factors[6 + k]


@inline
def pay_one_sided(row: np.ndarray, state: np.ndarray, score: int, p: float, plan: np.ndarray, g: np.ndarray) -> None:
    """As `pay_two_sided`, for the 6 multipliers of a one-sided test."""
    singles(row, plan[AT_FAIR_SUMS], 2 * plan[PAYOFFS])[2 * score] += 1.0 - 2.0 * p
    if state[FAIR] == 0:
        return
    factors = singles(row, plan[AT_FAIR_FACTORS], FACTORS * plan[PAYOFFS])[FACTORS * score : FACTORS * (score + 1)]
    store(g, 0, load(g, 0) * load(factors, 0))
    for k in range(2):
        g[4 + k] *= factors[6 + k]


@inline
def close_sample(row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """After all tests of a sample: at a block's end its sums are squared, at a generation's end v is renewed."""
    state[FAIR_AT] += 1
    if state[FAIR_AT] < SPAN:
        return
    state[FAIR_AT] = 0
    n = 2 * plan[PAYOFFS]
    sums, squares = singles(row, plan[AT_FAIR_SUMS], n), singles(row, plan[AT_FAIR_SQUARES], n)
    for k in range(n):
        variance = _B_VARIANCE if k % 2 == 0 else _U_VARIANCE
        tests = SPAN if k < 2 * plan[FIXED] else SPAN // 2
        usual = squares[k] / state[FAIR_BLOCKS] if state[FAIR_BLOCKS] > 0 else 1.0
        squares[k] += min(1.0 * sums[k] * sums[k] / (variance * tests), LARGEST * max(1.0, usual))
        sums[k] = 0.0
    state[FAIR_BLOCKS] += 1
    if state[FAIR_BLOCKS] >= max(FIRST, state[FAIR_NEXT]):
        _renew(row, state, plan)


@inline
def _renew(row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """A generation of blocks is over: factors are those of the former ones, which these join."""
    n = 2 * plan[PAYOFFS]
    squares, former = singles(row, plan[AT_FAIR_SQUARES], n), singles(row, plan[AT_FAIR_FORMER], n)
    factors = singles(row, plan[AT_FAIR_FACTORS], FACTORS * plan[PAYOFFS])
    state[FAIR] = 0
    for score in range(plan[PAYOFFS]):
        of_b = _excess(1.0 * former[2 * score], state[FAIR_FORMER])
        of_u = _excess(1.0 * former[2 * score + 1], state[FAIR_FORMER])
        if of_b > 0.0 or of_u > 0.0:
            state[FAIR] = 1
        # A one-sided test has the payoff b alone.
        of_powers = of_b if plan[UPWARD] == 1 or score >= plan[FIXED] else of_u
        for k in range(FACTORS):
            excess = of_b if k < 4 else (of_u if k < 6 else of_powers)
            factors[FACTORS * score + k] = exp(-_HALF_VARIANCES[k] * excess)
    for k in range(n):
        former[k] = squares[k]
    state[FAIR_FORMER] = state[FAIR_BLOCKS]
    if state[FAIR_BLOCKS] >= 2 * LONGEST:
        for k in range(n):
            squares[k] *= 0.5
        state[FAIR_BLOCKS] //= 2
    state[FAIR_NEXT] = state[FAIR_BLOCKS] + min(state[FAIR_BLOCKS], LONGEST)


@inline
def _excess(squares: float, blocks: int) -> float:
    """v - 1, two standard errors less; 0 where it is not sure that there is any."""
    if blocks == 0:
        return 0.0
    result: float = max(0.0, squares / (blocks * (1.0 + ERRORS * math.sqrt(2.0 / blocks))) - 1.0)
    return result
