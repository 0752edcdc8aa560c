"""The certificate of a window's coefficients: residuals recomputed after every pair, and what repairs them.

The recomputed norm is an upper bound: each entry is enlarged by gamma = (m + 8) u / (1 - (m + 8) u), u = 2^-53, times
the magnitudes that it sums, which is what rounding can cause in a sum of m products, in any order (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1); the kernel's values are at most 1. So `certified` holds for the
numbers that K, y, tau and the coefficients are, not only up to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.nystrom import packed_start
from kstream_worker.models.ridge.layout import (
    CERTIFIED,
    EXHAUSTED,
    FACTORED,
    FAILED,
    REFINED,
    REPAIRED,
    SEQ,
    STATUS,
    UNCERTIFIED,
    Plan,
    Scratch,
)
from kstream_worker.models.ridge.packed import inverse_of_root, invert_root, symmetric_times
from kstream_worker.numerics.jit import inline, jit

REFINEMENTS = 4
ULP = 2.0**-52
ROUND = 1.01 * 2.0**-53  # a little more than u: it covers the bound's own rounding
TINY = 1e-300  # more than squares lose to underflow


@jit
def certify(plan: Plan, row: np.ndarray, whole: np.ndarray, stale: bool, s: Scratch) -> None:
    """Recompute the residuals, repair what exceeds the tolerance, and settle the status.

    Refinement first; then, once in a turn of the window at most, a new factorisation, which is the budget. `stale` asks
    for that at once.
    """
    done = False
    while not done:
        if stale:
            _rebuild(plan, row, whole, s)
        whole[STATUS] = CERTIFIED
        for o in range(plan.dy):
            if not _settle(plan, row, o, whole, s):
                whole[STATUS] = UNCERTIFIED if whole[FAILED] else EXHAUSTED
        done = whole[STATUS] == CERTIFIED or whole[SEQ] < whole[REPAIRED] + plan.room
        stale = True


@inline
def _rebuild(plan: Plan, row: np.ndarray, whole: np.ndarray, s: Scratch) -> None:
    """The inverse from K, a stand-in where that is not positive definite; coefficients 0, to be refined."""
    m = plan.room
    tau = row[plan.at_tau]
    inverse = row[plan.at_inverse : plan.floats]
    row[plan.at_b : plan.at_kernel] = 0.0
    inverse[:] = row[plan.at_kernel : plan.at_inverse]
    for i in range(m):
        inverse[packed_start(i, m)] += tau
    whole[FAILED] = 0
    if invert_root(inverse, m):
        inverse_of_root(inverse, m, s.trial)
    else:
        whole[FAILED] = 1
        inverse[:] = 0.0
        for i in range(m):
            inverse[packed_start(i, m)] = 1.0 / (1.0 + tau)
    whole[REPAIRED] = whole[SEQ]
    whole[FACTORED] += 1


@inline
def _settle(plan: Plan, row: np.ndarray, o: int, whole: np.ndarray, s: Scratch) -> bool:
    """Whether output o's residual is within the tolerance, after b += (K + tau I)^-1 r while that halves it.

    The coefficients with the smallest residual stay.
    """
    m = plan.room
    b = row[plan.at_b + o * m : plan.at_b + (o + 1) * m]
    best = math.inf
    for step in range(REFINEMENTS + 1):
        norm = residual(plan, row, o, s.r)
        if not norm < best:
            if step == 0:  # not finite
                s.trial[:] = 0.0
            for i in range(m):
                b[i] = s.trial[i]
            if step > 0:
                break
            continue
        stagnant = norm > 0.5 * best
        best = norm
        if norm <= plan.eta or stagnant or step == REFINEMENTS:
            break
        symmetric_times(row[plan.at_inverse : plan.floats], m, s.r, s.g)
        whole[REFINED] += 1
        for i in range(m):
            s.trial[i] = b[i]
            b[i] += s.g[i]
    row[plan.at_norms + o] = best
    return best <= plan.eta


@inline
def residual(plan: Plan, row: np.ndarray, o: int, r: np.ndarray) -> float:
    """r <- y - (K + tau I) b of output o; an upper bound of its Euclidean norm, rounding included.

    `r`: float64[room], result.
    """
    m = plan.room
    tau = row[plan.at_tau]
    b = row[plan.at_b + o * m : plan.at_b + (o + 1) * m]
    y = row[plan.at_y + o * m : plan.at_y + (o + 1) * m]
    symmetric_times(row[plan.at_kernel : plan.at_inverse], m, b, r)
    size = magnitude(b, m)
    square = 0.0
    for i in range(m):
        r[i] = (y[i] - r[i]) - tau * b[i]
        largest = abs(r[i]) + (m + 8.0) * ROUND * (size + (abs(y[i]) + tau * abs(b[i])))
        square += largest * largest
    return math.sqrt(square + TINY) * (1.0 + (m + 8.0) * ULP)


@inline
def magnitude(b: np.ndarray, m: int) -> float:
    """Sum of |b[i]|."""
    size = 0.0
    for i in range(m):
        size += abs(b[i])
    return size
