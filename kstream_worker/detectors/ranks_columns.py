"""The columns of the rank detector: a rank, bets on it, and the sample joins the bag it was ranked in."""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.bets import ONE_SIDED, TWO_SIDED, one_sided, shiryaev_roberts, two_sided, upward
from kstream_worker.detectors.ranking import count, count_products, count_scores, p_value, place, product
from kstream_worker.detectors.ranks_fairness import pay_one_sided, pay_two_sided
from kstream_worker.detectors.ranks_hidden import rank_pick
from kstream_worker.detectors.ranks_layout import (
    AT_H_BAG,
    AT_H_SCORES,
    AT_R,
    AT_RUN_PRODUCT,
    AT_RUN_SEQ,
    AT_RUN_TIME,
    AT_S_BAG,
    AT_STEPS,
    AT_T_RING,
    AT_V_BAG,
    AT_VALUES,
    ATOM_COUNT,
    BETS,
    BLOCK,
    BLOCK_SUM,
    BLOCK_TIME,
    COUNT,
    DIMS,
    FIXED,
    FIXED_SEQ,
    GAINS,
    H_COUNT,
    H_ROOM,
    H_SIZE,
    HIDDEN_COUNT,
    LEARNED,
    LEARNED_SEQ,
    LOCATED,
    LOCATORS,
    MEANS_SEQ,
    ONE_SIDED_LOCATORS,
    R_LEARNED,
    RUN_LEARNED,
    S_ROOM,
    S_SIZE,
    SEQ,
    SPIKE_COUNT,
    TWO_SIDED_LOCATORS,
    UPWARD,
    V_ROOM,
    V_ROWS,
    V_SIZE,
    singles,
)
from kstream_worker.detectors.ranks_learned import REFRESH, refresh, score
from kstream_worker.detectors.ranks_spikes import rank_spikes
from kstream_worker.detectors.report import advance_runs
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.random import below, uniform

# Roles of random draws; their counter is the sample's number within the key.
RANK, REMOVE, RANK_LEARNED, REMOVE_LEARNED, PICK, REPLACE, RANK_SLOW, REMOVE_SLOW, RANK_PICK = range(9)


@inline
def credit_from_now(state: np.ndarray) -> None:
    """The next test of every column is credited with the samples after the last one seen."""
    state[FIXED_SEQ] = state[SEQ]
    state[LEARNED_SEQ] = state[SEQ]
    state[MEANS_SEQ] = state[SEQ]


@inline
def credit_nothing(state: np.ndarray) -> None:
    """A sample without values: no test is credited with it; state[SEQ] is its number already."""
    state[FIXED_SEQ] += 1
    state[LEARNED_SEQ] += 1
    state[MEANS_SEQ] += 1


@inline
def rank_fixed(
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    stream: np.uint64,
    bet: bool,
    time: int,
    q: np.ndarray,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """Rank all fixed scores in the rolling bag V, bet on them, and let the sample join the bag.

    Args:
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers.
        stream: the key's random stream.
        bet: whether there are bets (not while an alarm is up).
        time: of the sample.
        q: int16[>= d + 1], the sample in steps and its radius, then scratch.
        plan: layout.
        work: scratch matrix.
    """
    n = state[V_SIZE]
    seq = state[SEQ]
    bag = shorts[plan[AT_V_BAG] : plan[AT_H_BAG]]
    own = plan[V_ROWS]
    room = plan[V_ROOM]
    credit = 1.0 * (seq - state[FIXED_SEQ])
    u = uniform(stream, RANK, seq)
    a = 0
    b = 0
    for column in range(plan[FIXED]):
        if column < own:
            larger, equal = count(bag[column * room : column * room + n], q[column])
        else:
            b += 1
            if b == plan[DIMS]:
                a += 1
                b = a + 1
            first, second = bag[a * room : a * room + n], bag[b * room : b * room + n]
            larger, equal = count_products(first, second, product(q[a], q[b]))
        p = p_value(larger, equal, n, u)
        _multipliers(p, plan, work[GAINS])
        pay_two_sided(row, state, column, p, plan, work[GAINS])
        if bet:
            bet_two_sided(row, column, credit, seq, time, plan, work)
    if plan[SPIKE_COUNT] > 0:
        rank_spikes(row, bag.reshape(own, room), state, bet, credit, time, seq, q, plan)
    place(bag, room, own, n, below(stream, REMOVE, seq, room + 1), q)
    state[V_SIZE] = min(n + 1, room)
    state[FIXED_SEQ] = seq


@inline
def rank_learned(
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    stream: np.uint64,
    bet: bool,
    time: int,
    q: np.ndarray,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """Rank the sample by the pick and by the learned score in the bag H of odd samples, bet, and let it join the bag.

    Arguments as of `rank_fixed`.
    """
    if plan[HIDDEN_COUNT] > 0:
        bag = shorts[plan[AT_H_BAG] : plan[AT_T_RING]].reshape(plan[DIMS], plan[H_ROOM])
        rank_pick(row, bag, state, bet, uniform(stream, RANK_PICK, state[SEQ]), time, q, plan, work)
    if state[H_COUNT] % REFRESH == 0:
        refresh(row, shorts, state, plan, work)
    n = state[H_SIZE]
    seq = state[SEQ]
    room = plan[H_ROOM]
    scores = singles(row, plan[AT_H_SCORES], room)
    own = score(row, state[ATOM_COUNT], plan, work)
    larger, equal = count_scores(scores[:n], own)
    g = work[GAINS]
    p = p_value(larger, equal, n, uniform(stream, RANK_LEARNED, seq))
    one_sided(p, g)
    pay_one_sided(row, state, plan[FIXED], p, plan, g)
    if bet:
        credit = 1.0 * (seq - state[LEARNED_SEQ])
        mean = shiryaev_roberts(singles(row, plan[AT_R], plan[BETS]), g, plan[R_LEARNED], ONE_SIDED, credit)
        row[plan[AT_VALUES] + plan[LEARNED]] = mean
        work[LOCATED, 0] = g[3]
        work[LOCATED, 1] = g[4]
        advance(row, plan[RUN_LEARNED], ONE_SIDED_LOCATORS, seq, time, plan, work)
    removed = below(stream, REMOVE_LEARNED, seq, room + 1)
    at = place(shorts[plan[AT_H_BAG] : plan[AT_T_RING]], room, plan[DIMS], n, removed, q)
    if at >= 0:
        scores[at] = own
    state[H_SIZE] = min(n + 1, room)
    state[H_COUNT] += 1
    state[LEARNED_SEQ] = seq


@inline
def rank_means(
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    stream: np.uint64,
    bet: bool,
    time: int,
    q: np.ndarray,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """Add the sample to its block; at the block's end rank its means, bet on them, and let them join their bag.

    Arguments as of `rank_fixed`; q is overwritten.
    """
    d = plan[DIMS]
    within = state[COUNT] % BLOCK
    if within == 0:
        state[BLOCK_TIME] = time
        for j in range(d):
            state[BLOCK_SUM + j] = 0
    for j in range(d):
        state[BLOCK_SUM + j] += q[j]
    if within < BLOCK - 1:
        return
    n = state[S_SIZE]
    seq = state[SEQ]
    bag = shorts[plan[AT_S_BAG] : plan[AT_STEPS]]
    room = plan[S_ROOM]
    u = uniform(stream, RANK_SLOW, seq)
    for j in range(d):
        # rounded half up, in integers: a fixed function of the samples
        q[j] = np.int16((2 * state[BLOCK_SUM + j] + BLOCK) // (2 * BLOCK))
        if bet:
            larger, equal = count(bag[j * room : j * room + n], q[j])
            _multipliers(p_value(larger, equal, n, u), plan, work[GAINS])
            credit, first = 1.0 * (seq - state[MEANS_SEQ]), state[MEANS_SEQ] + 1
            bet_two_sided(row, plan[FIXED] + j, credit, first, state[BLOCK_TIME], plan, work)
    place(bag, room, d, n, below(stream, REMOVE_SLOW, seq, room + 1), q)
    state[S_SIZE] = min(n + 1, room)
    state[MEANS_SEQ] = seq


@inline
def _multipliers(p: float, plan: np.ndarray, g: np.ndarray) -> None:
    if plan[UPWARD] == 1:
        upward(p, g)
    else:
        two_sided(p, g)


@inline
def bet_two_sided(
    row: np.ndarray, column: int, a: float, seq: int, time: int, plan: np.ndarray, work: np.ndarray
) -> None:
    """One test of a two-sided column, its multipliers in `work[GAINS]`: 14 statistics, 5 runs.

    Args:
        row: the key's floats.
        column: its number.
        a: samples per test.
        seq: number of the test's first sample.
        time: of that sample.
        plan: layout.
        work: scratch matrix.
    """
    g = work[GAINS]
    R = singles(row, plan[AT_R], plan[BETS])
    row[plan[AT_VALUES] + column] = shiryaev_roberts(R, g, column * TWO_SIDED, TWO_SIDED, a)
    located = work[LOCATED]  # the boldest of each direction: their runs end soonest when nothing has changed
    located[0] = g[3]
    located[1] = g[7]
    located[2] = g[9]
    located[3] = g[11]
    located[4] = g[12]
    advance(row, column * TWO_SIDED_LOCATORS, TWO_SIDED_LOCATORS, seq, time, plan, work)


@inline
def advance(row: np.ndarray, first: int, n: int, seq: int, time: int, plan: np.ndarray, work: np.ndarray) -> None:
    """One step of n runs from run `first` on, with the multipliers in `work[LOCATED]`."""
    advance_runs(
        singles(row, plan[AT_RUN_PRODUCT], plan[LOCATORS])[first:],
        singles(row, plan[AT_RUN_SEQ], plan[LOCATORS]).view(np.uint32)[first:],
        row[plan[AT_RUN_TIME] + first :],
        work[LOCATED],
        n,
        seq,
        time,
    )
