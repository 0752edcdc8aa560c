"""Bets on p-values, and the Shiryaev-Roberts recursion over them.

A p-value that is uniform under no change is turned into multipliers of mean one (the floored power bets: .9995 and
.976), and each multiplier g_k into `R_k <- (R_k + a) g_k`. Under no change the mean of the R_k less the number of
samples is a supermartingale, so it rarely grows large (Shin, Ramdas, Rinaldo, "E-detectors", 2022; Vovk, "Testing
Randomness Online", Statistical Science 36(4), 2021, for bets on conformal p-values). `a` is the number of samples per
test.

With b = 1 - 2p, u = 1.5 b^2 - .5, r = 2 min(p, 1-p):

    two-sided  1 +- c b (c = .1, .25, .5, .95), 1 +- c u (c = .4, .95), .5 r^-.5, .25 r^-.75
    one-sided  1 + c b (c = .1, .25, .5, .95), .5 p^-.5, .25 p^-.75      (small p alone pays)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import fill, load, store, total

_STAKES = np.array([0.1, 0.25, 0.5, 0.95, 0.4, 0.95, -0.4, -0.95])

TWO_SIDED = 14
ONE_SIDED = 6
POWER_FLOOR = 1e-6  # of p and r, inside the power bets only

UP, DOWN, BOTH = 1, -1, 0

# How the score moved when bet k pays most: upwards (small p), downwards, or no single way.
TWO_SIDED_DIRECTION = (UP, UP, UP, UP, DOWN, DOWN, DOWN, DOWN, BOTH, BOTH, BOTH, BOTH, BOTH, BOTH)
DIRECTION_NAMES = {UP: "up", DOWN: "down", BOTH: "both"}


@inline
def two_sided(p: float, g: NDArray[np.float64]) -> None:
    """Write the 14 multipliers of p in [0, 1] to g (float64[>= 14]): +b, -b, +u, -u, powers of r."""
    b = 1.0 - 2.0 * p
    u = 1.5 * b * b - 0.5
    one = fill(1.0)
    staked = load(_STAKES, 0) * fill(b)
    store(g, 0, one + staked)
    store(g, 4, one - staked)
    store(g, 8, one + load(_STAKES, 4) * fill(u))
    root = math.sqrt(max(2.0 * min(p, 1.0 - p), POWER_FLOOR))
    g[12] = 0.5 / root
    g[13] = 0.25 / (root * math.sqrt(root))


@inline
def upward(p: float, g: NDArray[np.float64]) -> None:
    """As `two_sided`, but small p alone pays: the multipliers of `one_sided` in the places of their kind, 0 elsewhere.

    Their mean over 14 is 6/14 of what it is over the 6; weights make up for that.
    """
    g[:TWO_SIDED] = 0.0
    b = 1.0 - 2.0 * p
    g[0] = 1.0 + 0.1 * b
    g[1] = 1.0 + 0.25 * b
    g[2] = 1.0 + 0.5 * b
    g[3] = 1.0 + 0.95 * b
    root = math.sqrt(max(p, POWER_FLOOR))
    g[12] = 0.5 / root
    g[13] = 0.25 / (root * math.sqrt(root))


@inline
def one_sided(p: float, g: NDArray[np.float64]) -> None:
    """Write the 6 multipliers of p in [0, 1] to g (float64[>= 6])."""
    b = 1.0 - 2.0 * p
    store(g, 0, fill(1.0) + load(_STAKES, 0) * fill(b))
    root = math.sqrt(max(p, POWER_FLOOR))
    g[4] = 0.5 / root
    g[5] = 0.25 / (root * math.sqrt(root))


@inline
def shiryaev_roberts(R: NDArray[np.float64], g: NDArray[np.float64], first: int, n: int, a: float) -> float:
    """One step of n bets in place, `R[first + k] <- (R[first + k] + a) g[k]`; returns the mean of the new R.

    Args:
        R: float32 or float64[>= first + n], statistics of all columns.
        g: float64[>= n], multipliers.
        first: index of the column's first bet in R.
        n: number of bets of the column.
        a: samples per test, which is what every bet is credited with before it is paid.
    """
    reached = fill(0.0)
    credit = fill(a)
    whole = n - n % 4
    for k in range(0, whole, 4):
        values = (load(R, first + k) + credit) * load(g, k)
        store(R, first + k, values)
        reached = reached + values
    sum_of_R = total(reached)
    for k in range(whole, n):
        value = (R[first + k] + a) * g[k]
        R[first + k] = value
        sum_of_R += value
    return sum_of_R / n
