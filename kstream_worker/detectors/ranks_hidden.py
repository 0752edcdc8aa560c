"""A column for changes that leave means, spreads and correlations as they are: one score of many, picked by looking.

Candidates, with e(z) = |z| - .6745 (about the median of |z| in units of the scale): up to ten features e(z_i) z_j,
which sees a dependence of one feature's level on another's size, such as a quadratic one; up to five features also
e(z_i) e(z_j), sizes that go together, and z_i z_j z_k, parity. Above ten features, where to test all products of two at
every sample would cost too much, the products z_i z_j instead.

Even samples (T) look: of each candidate's sign two means are kept, a short one and a long one, and the candidate whose
short mean has moved farthest from its long mean is the pick. Odd samples (H) test: the pick is ranked in the bag H, by
which side it had moved to. As with the learned score, at every moment the pick is a function of T alone, and bag and
newcomer are scored by the same function: the p are exact. One column thus sees at half the rate what a column for each
candidate would see, without sharing its weight among them.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.bets import ONE_SIDED, one_sided, shiryaev_roberts
from kstream_worker.detectors.ranking import STEPS, count_products, p_value, product
from kstream_worker.detectors.ranks_fairness import pay_one_sided
from kstream_worker.detectors.ranks_layout import (
    AT_LONG_MEANS,
    AT_R,
    AT_RUN_PRODUCT,
    AT_RUN_SEQ,
    AT_RUN_TIME,
    AT_SHORT_MEANS,
    AT_VALUES,
    DIMS,
    EVEN_EVEN,
    EVEN_ODD,
    FIXED,
    GAINS,
    H_SIZE,
    HIDDEN,
    HIDDEN_COUNT,
    HIDDEN_TABLE,
    LEARNED_SEQ,
    LOCATED,
    LOCATORS,
    ODD_ODD,
    ODD_ODD_ODD,
    ONE_SIDED_LOCATORS,
    PICKED,
    PICKED_SIDE,
    PX,
    R_HIDDEN,
    RUN_HIDDEN,
    SEQ,
    T_COUNT,
    X,
    singles,
)
from kstream_worker.detectors.report import advance_runs
from kstream_worker.numerics.jit import inline

SHORT, LONG = 0.01, 0.001  # weights of an even sample in the two means
MEDIAN_SIZE = np.int16(math.floor(0.67449 * STEPS))  # of a normal variable, in steps


@inline
def count_hidden(kind: int, x: np.ndarray, y: np.ndarray, z: np.ndarray, q: np.ndarray) -> tuple[np.int16, np.int16]:
    """How many members of the bag have a larger score than the sample, how many the same.

    Args:
        kind: of the score.
        x: int16[n], the bag's first coordinate of the score.
        y: the second.
        z: the third.
        q: int16[3], the sample's.
    """
    if kind == ODD_ODD:
        return count_products(x, y, product(q[0], q[1]))
    if kind == EVEN_ODD:
        return _count_even_odd(x, y, product(_even(q[0]), q[1]))
    if kind == EVEN_EVEN:
        return _count_even_even(x, y, product(_even(q[0]), _even(q[1])))
    pair = np.int16(np.int32(np.int32(q[0]) * np.int32(q[1])) >> 15)
    return _count_triples(x, y, z, np.int16(np.int32(np.int32(pair) * np.int32(q[2])) >> 15))


# Written out, since LLVM vectorises these loops only where nothing is called in them.


@inline
def _count_even_odd(x: np.ndarray, y: np.ndarray, own: np.int16) -> tuple[np.int16, np.int16]:
    larger = np.int16(0)
    equal = np.int16(0)
    for i in range(len(x)):
        size = np.int16(abs(x[i]) - MEDIAN_SIZE)
        value = np.int16(np.int32(np.int32(size) * np.int32(y[i])) >> 16)
        larger = np.int16(larger + np.int16(value > own))
        equal = np.int16(equal + np.int16(value == own))
    return larger, equal


@inline
def _count_even_even(x: np.ndarray, y: np.ndarray, own: np.int16) -> tuple[np.int16, np.int16]:
    larger = np.int16(0)
    equal = np.int16(0)
    for i in range(len(x)):
        first = np.int16(abs(x[i]) - MEDIAN_SIZE)
        second = np.int16(abs(y[i]) - MEDIAN_SIZE)
        value = np.int16(np.int32(np.int32(first) * np.int32(second)) >> 16)
        larger = np.int16(larger + np.int16(value > own))
        equal = np.int16(equal + np.int16(value == own))
    return larger, equal


@inline
def _count_triples(x: np.ndarray, y: np.ndarray, z: np.ndarray, own: np.int16) -> tuple[np.int16, np.int16]:
    larger = np.int16(0)
    equal = np.int16(0)
    for i in range(len(x)):
        pair = np.int16(np.int32(np.int32(x[i]) * np.int32(y[i])) >> 15)
        value = np.int16(np.int32(np.int32(pair) * np.int32(z[i])) >> 15)
        larger = np.int16(larger + np.int16(value > own))
        equal = np.int16(equal + np.int16(value == own))
    return larger, equal


@inline
def _even(z: np.int16) -> np.int16:
    """|z| - .6745, in steps."""
    return np.int16(abs(z) - MEDIAN_SIZE)


@inline
def look(row: np.ndarray, state: np.ndarray, q: np.ndarray, plan: np.ndarray, work: np.ndarray) -> None:
    """Let an even sample count, and pick.

    Args:
        row: the key's floats.
        state: the key's integers; `T_COUNT` counts this sample already.
        q: int16[>= d], the sample in steps.
        plan: layout.
        work: scratch matrix.
    """
    odd, even = work[X], work[PX]
    for j in range(plan[DIMS]):
        odd[j] = 1.0 if q[j] > 0 else -1.0
        even[j] = 1.0 if abs(q[j]) > MEDIAN_SIZE else -1.0
    n = plan[HIDDEN_COUNT]
    short, long = singles(row, plan[AT_SHORT_MEANS], n), singles(row, plan[AT_LONG_MEANS], n)
    first = 1.0 / state[T_COUNT]
    quick, slow = max(first, SHORT), max(first, LONG)
    farthest = -1.0
    for h in range(n):
        entry = plan[HIDDEN_TABLE + 4 * h : HIDDEN_TABLE + 4 * h + 4]
        kind, a, b = entry[0], entry[1], entry[2]
        sign = even[a] if EVEN_ODD <= kind <= EVEN_EVEN else odd[a]
        sign *= even[b] if kind == EVEN_EVEN else odd[b]
        if kind == ODD_ODD_ODD:
            sign *= odd[entry[3]]
        short[h] += quick * (sign - short[h])
        long[h] += slow * (sign - long[h])
        moved = 1.0 * short[h] - 1.0 * long[h]
        if abs(moved) > farthest:
            farthest = abs(moved)
            state[PICKED] = h
            state[PICKED_SIDE] = 1 if moved > 0.0 else -1


@inline
def rank_pick(
    row: np.ndarray,
    bags: np.ndarray,
    state: np.ndarray,
    bet: bool,
    u: float,
    time: int,
    q: np.ndarray,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """Rank an odd sample by the pick and bet that it lies on the side to which that moved; before it joins the bag.

    Args:
        row: the key's floats.
        bags: int16[d, room], the bag H.
        state: the key's integers.
        bet: whether there are bets.
        u: the sample's uniform draw for this column.
        time: of the sample.
        q: int16[>= d + 3], the sample in steps; the last three entries are scratch.
        plan: layout.
        work: scratch matrix.
    """
    n = state[H_SIZE]
    at = HIDDEN_TABLE + 4 * state[PICKED]
    entry = plan[at : at + 4]
    own = q[len(q) - 3 :]
    for f in range(3):
        own[f] = q[entry[1 + f]]
    larger, equal = count_hidden(entry[0], bags[entry[1], :n], bags[entry[2], :n], bags[entry[3], :n], own)
    p = p_value(larger, equal, n, u)
    g = work[GAINS]
    p = p if state[PICKED_SIDE] >= 0 else 1.0 - p
    one_sided(p, g)
    pay_one_sided(row, state, plan[FIXED] + 1, p, plan, g)
    if not bet:
        return
    credit = 1.0 * (state[SEQ] - state[LEARNED_SEQ])
    R = singles(row, plan[AT_R], plan[R_HIDDEN] + ONE_SIDED)
    row[plan[AT_VALUES] + plan[HIDDEN]] = shiryaev_roberts(R, g, plan[R_HIDDEN], ONE_SIDED, credit)
    work[LOCATED, 0] = g[3]
    work[LOCATED, 1] = g[4]
    first = plan[RUN_HIDDEN]
    advance_runs(
        singles(row, plan[AT_RUN_PRODUCT], plan[LOCATORS])[first:],
        singles(row, plan[AT_RUN_SEQ], plan[LOCATORS]).view(np.uint32)[first:],
        row[plan[AT_RUN_TIME] + first :],
        work[LOCATED],
        ONE_SIDED_LOCATORS,
        state[SEQ],
        time,
    )
