"""The compiled walk of the detector against a frozen reference: collecting it, ranks, bets, evidence.

As in the rank detector, column i has Shiryaev-Roberts statistics R_i of its own, weights sum to 1, and the alarm comes
when the largest w_i mean R_i reaches 2A. Where every bet's mean given the reference and the past is at most 1, the
probability of an alarm within the first t samples is at most t / (2A). No sample joins the reference: so each one is
ranked first, and trains the learned score after that.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.bets import shiryaev_roberts
from kstream_worker.detectors.history import remember_steps
from kstream_worker.detectors.ranking import count, count_products, count_scores, p_value, product
from kstream_worker.detectors.ranks_columns import PICK, RANK, RANK_LEARNED, advance
from kstream_worker.detectors.ranks_kernel import (
    CLIPPED,
    CROSSED,
    DIVERGENCE,
    EVIDENCE,
    FINISHED,
    FULL,
    LOG_RATIO,
    NUMBERS,
    RATIO_FLOOR,
    RECOVERED,
    STATES,
    THRESHOLD,
    evidence_of,
)
from kstream_worker.detectors.ranks_layout import (
    ALARM,
    ALARM_TIME,
    ARMED,
    AT_H_BAG,
    AT_H_SCORES,
    AT_R,
    AT_V_BAG,
    AT_VALUES,
    ATOM_COUNT,
    BACK,
    BETS,
    CLOCK,
    COUNT,
    DIMS,
    ESCALATION,
    FIXED,
    GAINS,
    H_COUNT,
    H_SIZE,
    LEAD,
    LOCATED,
    PHASE,
    PHI_Z,
    RAISED,
    RATE,
    SEQ,
    T_SIZE,
    UNTIL,
    V_ROOM,
    V_ROWS,
    V_SIZE,
    WARMING,
    Z,
    singles,
    warmup_room,
)
from kstream_worker.detectors.ranks_layout import DIVERGENCE as AT_DIVERGENCE
from kstream_worker.detectors.ranks_learned import REFRESH, learn, ratio, refresh, score
from kstream_worker.detectors.ranks_sample import to_steps
from kstream_worker.detectors.recovery import is_over
from kstream_worker.detectors.reference_bets import (
    LEARNED_BETS,
    LINEAR,
    PAYOFFS,
    SIDED_BETS,
    STAKES,
    one_sided,
    payoff,
    sided,
)
from kstream_worker.detectors.reference_layout import GOAL, LATE
from kstream_worker.detectors.thresholds import threshold_of
from kstream_worker.models.bank import STREAM
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log
from kstream_worker.numerics.random import below, uniform

START, END, ENOUGH = 0, 1, 2  # entries of `span`
BEYOND = 1.5  # mean payoff of a drift that lasts, in tolerances


@jit
def walk(
    first: int,
    slots: np.ndarray,
    y: np.ndarray,
    times: np.ndarray,
    floats: np.ndarray,
    ints: np.ndarray,
    shorts: np.ndarray,
    plan: np.ndarray,
    weights: np.ndarray,
    span: np.ndarray,
    z: float,
    rule: np.ndarray,
    counts: np.ndarray,
    answers: np.ndarray,
    q: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> tuple[int, int]:
    """Walk samples from row `first` on, up to the end or to the first event.

    Args:
        first: row of the batch to begin with.
        slots: int64[n].
        y: float64[n, d], finite.
        times: int64[n].
        floats: float64[slots, plan[FLOATS]], state.
        ints: int64[slots, plan[INTS]], state.
        shorts: int16[slots, plan[SHORTS]], state.
        plan: layout.
        weights: float64[columns].
        span: int64[3], event times between which samples join the reference, and how many are enough at the end.
        z: tolerance in standard deviations.
        rule: float64[4], what makes the threshold of the largest weighted column (`thresholds.threshold_of`).
        counts: int64[3, n], filled: state and number of each sample; whether its ratio was set to the floor.
        answers: float64[4, n], filled: log ratio, divergence, evidence, threshold.
        q: int16[d + 1], scratch.
        work: scratch matrix.
        powers: int64[ATOMS], scratch.

    Returns:
        what ended the walk (FINISHED; FULL: before the row's sample was looked at; CROSSED or RECOVERED: after it), and
        the row of the batch where.
    """
    for i in range(first, len(slots)):
        row = floats[slots[i]]
        state = ints[slots[i]]
        clock = times[i] if state[SEQ] == 0 else max(state[CLOCK], times[i])
        if state[PHASE] == WARMING and _is_complete(state, clock, span):
            return FULL, i
        if state[PHASE] == RAISED and clock >= state[UNTIL]:
            state[PHASE] = ARMED
        state[CLOCK] = clock
        state[SEQ] += 1
        counts[STATES, i] = state[PHASE]
        counts[NUMBERS, i] = state[SEQ]
        threshold = threshold_of(row[RATE], row[ESCALATION], state[ALARM_TIME], clock, rule)
        answers[THRESHOLD, i] = threshold
        if state[PHASE] == WARMING:
            _collect(y[i], times[i], row, shorts[slots[i]], state, span, plan)
        else:
            to_steps(y[i], row, plan, q, work[Z])
            remember_steps(times[i], shorts[slots[i]], state, q, plan)
            _judge(i, row, shorts[slots[i]], state, times[i], z, plan, counts, answers, q, work, powers)
            if state[PHASE] == ARMED:
                answers[EVIDENCE, i] = evidence_of(row, state, plan, weights, threshold)
                if answers[EVIDENCE, i] >= threshold:
                    return CROSSED, i
                if state[ALARM] == 1:
                    margin = _margin(state, z, plan)
                    payoff = work[LOCATED, PAYOFFS]
                    if is_over(row, BACK, margin, LINEAR * LINEAR, payoff, answers[EVIDENCE, i], threshold):
                        return RECOVERED, i
    return FINISHED, len(slots)


@inline
def _margin(state: np.ndarray, z: float, plan: np.ndarray) -> float:
    """Mean payoff of a drift that lasts, of the score that leads the alarm."""
    n = state[V_SIZE] if state[LEAD] < plan[DIMS] * PAYOFFS else state[V_SIZE] - state[V_SIZE] // 2
    return BEYOND * z * LINEAR / math.sqrt(1.0 * n)


@inline
def _is_complete(state: np.ndarray, clock: int, span: np.ndarray) -> bool:
    """Whether the reference is full, or the time range for it is over and enough samples lay in it."""
    if clock > span[END] and state[LATE] == 0 and state[COUNT] >= span[ENOUGH]:
        return True
    return bool(state[COUNT] >= state[GOAL])


@inline
def _collect(
    sample: np.ndarray,
    time: int,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    span: np.ndarray,
    plan: np.ndarray,
) -> None:
    """Let the sample join the reference, unless it is older than the time range."""
    if time < span[START]:
        return
    if time > span[END]:
        state[LATE] = 1
    for j in range(plan[DIMS]):
        room, at = warmup_room(row, shorts, plan[DIMS] * state[COUNT] + j, plan)
        room[at] = sample[j]
    state[COUNT] += 1


@inline
def _judge(
    i: int,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    time: int,
    z: float,
    plan: np.ndarray,
    counts: np.ndarray,
    answers: np.ndarray,
    q: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> None:
    """Score the sample in q, bet on its ranks in the reference, then let the learned score take it in."""
    stream = np.uint64(state[STREAM])
    bet = state[PHASE] == ARMED
    answers[DIVERGENCE, i] = row[AT_DIVERGENCE]
    f = ratio(row, state[ATOM_COUNT], Z, PHI_Z, plan, work, powers)
    if f < RATIO_FLOOR:
        counts[CLIPPED, i] = 1
    answers[LOG_RATIO, i] = log(max(f, RATIO_FLOOR))
    if bet:
        _rank_fixed(row, shorts, state, stream, time, z, q, plan, work)
    _rank_learned(row, shorts, state, stream, bet, time, z, plan, work)
    learn(row, shorts, state, f, below(stream, PICK, state[SEQ], state[T_SIZE]), plan, work, powers)


@inline
def _rank_fixed(
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    stream: np.uint64,
    time: int,
    z: float,
    q: np.ndarray,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """Rank coordinates in the whole reference, radius and products in its second half, and bet on the ranks."""
    room = plan[V_ROOM]
    n = state[V_SIZE]
    half = n // 2
    own = plan[V_ROWS]
    d = plan[DIMS]
    bag = shorts[plan[AT_V_BAG] : plan[AT_H_BAG]]
    u = uniform(stream, RANK, state[SEQ])
    narrow = z / math.sqrt(1.0 * n)
    wide = z / math.sqrt(1.0 * (n - half))
    a = 0
    b = 0
    for column in range(plan[FIXED]):
        start = column * room
        if column < d:
            larger, equal = count(bag[start : start + n], q[column])
            _bet(row, column, p_value(larger, equal, n, u), narrow, state, time, plan, work)
            continue
        if column < own:
            larger, equal = count(bag[start + half : start + n], q[column])
        else:
            b += 1
            if b == d:
                a += 1
                b = a + 1
            first, second = bag[a * room + half : a * room + n], bag[b * room + half : b * room + n]
            larger, equal = count_products(first, second, product(q[a], q[b]))
        _bet(row, column, p_value(larger, equal, n - half, u), wide, state, time, plan, work)


@inline
def _rank_learned(
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    stream: np.uint64,
    bet: bool,
    time: int,
    z: float,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """Rank the sample by the learned score in the second half of the reference, and bet that it is high.

    Weights are copied at every 16th sample, and the reference is scored afresh with the copy: it and the sample are
    always scored by one function, which the sample has had no part in.
    """
    if state[H_COUNT] % REFRESH == 0:
        refresh(row, shorts, state, plan, work)
    state[H_COUNT] += 1
    if not bet:
        return
    n = state[H_SIZE]
    own = score(row, state[ATOM_COUNT], plan, work)
    larger, equal = count_scores(singles(row, plan[AT_H_SCORES], n), own)
    g = work[GAINS]
    p = p_value(larger, equal, n, uniform(stream, RANK_LEARNED, state[SEQ]))
    one_sided(p, z / math.sqrt(1.0 * n), g)
    at = plan[FIXED]
    if state[LEAD] == at * PAYOFFS:
        work[LOCATED, PAYOFFS] = 1.0 - 2.0 * p
    R = singles(row, plan[AT_R], plan[BETS])
    row[plan[AT_VALUES] + at] = shiryaev_roberts(R, g, at * SIDED_BETS, LEARNED_BETS, 1.0)
    work[LOCATED, 0] = g[STAKES - 1]
    advance(row, at * PAYOFFS, 1, state[SEQ], time, plan, work)


@inline
def _bet(
    row: np.ndarray,
    column: int,
    p: float,
    off: float,
    state: np.ndarray,
    time: int,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """One test of a fixed score: 16 statistics, and the runs of the boldest bet of each payoff."""
    g = work[GAINS]
    sided(p, off, g)
    if state[LEAD] // PAYOFFS == column:
        work[LOCATED, PAYOFFS] = payoff(p, state[LEAD] % PAYOFFS)
    R = singles(row, plan[AT_R], plan[BETS])
    row[plan[AT_VALUES] + column] = shiryaev_roberts(R, g, column * SIDED_BETS, SIDED_BETS, 1.0)
    for k in range(PAYOFFS):
        work[LOCATED, k] = g[k * STAKES + STAKES - 1]
    advance(row, column * PAYOFFS, PAYOFFS, state[SEQ], time, plan, work)
