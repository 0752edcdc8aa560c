"""The compiled walk of the rank detector: warm-up, whitening, ranks, bets, evidence.

Column i has its own filtration and its own Shiryaev-Roberts statistics R_i. Under no change P(max_{s<=t} w_i mean R_i
>= 2A) is at most w_i t / (2A) by Doob's inequality, and the weights sum to 1: whatever the dependence between
columns, the probability of an alarm within the first t samples is at most t / (2A), and the mean time to one at least
A.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.history import UNRANKED, remember, remember_nothing, start_memory
from kstream_worker.detectors.ranks_columns import (
    PICK,
    REPLACE,
    credit_from_now,
    credit_nothing,
    rank_fixed,
    rank_learned,
    rank_means,
)
from kstream_worker.detectors.ranks_fairness import close_sample
from kstream_worker.detectors.ranks_hidden import look
from kstream_worker.detectors.ranks_keeping import kept, put_sample, warm_up_again
from kstream_worker.detectors.ranks_layout import (
    ALARM,
    ALARM_TIME,
    ARMED,
    AT_LEVELS,
    AT_R,
    AT_RUN_PRODUCT,
    AT_VALUES,
    ATOM_COUNT,
    BEST,
    BETS,
    CLOCK,
    COLUMNS,
    COUNT,
    DIMS,
    ERRORS,
    ESCALATION,
    FIXED_SEQ,
    H_ROOM,
    HELD,
    HIDDEN_COUNT,
    KEPT_SIZE,
    LAST_RATIO,
    LEVEL,
    LEVEL_WEIGHT,
    LOCATORS,
    NEED,
    NOT_STATIONARY,
    PERIODS,
    PERSISTENT,
    PHASE,
    PHI_X,
    PHI_Z,
    PX,
    PZ,
    RAISED,
    RATE,
    ROOT,
    SEASON_STARTED,
    SEQ,
    SETTLING,
    STATIONARY,
    STEPS_SEQ,
    T_SIZE,
    TOLD,
    UNTIL,
    V_ROOM,
    WARM_TIME,
    WARMING,
    WARMUP,
    WHITENED,
    X,
    Z,
    singles,
)
from kstream_worker.detectors.ranks_layout import DIVERGENCE as AT_DIVERGENCE
from kstream_worker.detectors.ranks_learned import ratio, train
from kstream_worker.detectors.ranks_levels import bet_on_levels, measure_levels
from kstream_worker.detectors.ranks_recovery import watch
from kstream_worker.detectors.ranks_sample import take_roots, to_steps, whiten_sample
from kstream_worker.detectors.recovery import SLIGHT
from kstream_worker.detectors.season_search import find_seasons, test_is_due
from kstream_worker.detectors.seasons import learn_season, seen_once, take_season_out
from kstream_worker.detectors.thresholds import LARGEST, threshold_of
from kstream_worker.models.bank import STREAM
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log
from kstream_worker.numerics.random import below

RATIO_FLOOR = 1e-6

RENEWED = 2  # bags' rooms of samples after which a held regime has become their own

FINISHED = 0  # no sample is left
CLEARED = 1  # this sample finds the alarm over; it has not been looked at yet
FULL = 2  # this sample completed a warm-up: the caller arms the key
CROSSED = 3  # a column has reached the threshold: the caller re-arms the key
NOTICED = 4  # this sample finds the key not stationary; it has not been looked at yet
CALM = 5  # an alarm that was held has not come again for as long as bags take to be renewed
RECOVERED = 6  # an alarm is up, and the regime from before it is back

LOG_RATIO, DIVERGENCE, EVIDENCE, THRESHOLD = 0, 1, 2, 3  # rows of the answers
STATES, NUMBERS, CLIPPED = 0, 1, 2  # rows of the integer answers


@jit
def walk(
    first: int,
    slots: np.ndarray,
    y: np.ndarray,
    times: np.ndarray,
    civil: np.ndarray,
    floats: np.ndarray,
    ints: np.ndarray,
    shorts: np.ndarray,
    plan: np.ndarray,
    weights: np.ndarray,
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
        y: float64[n, d], finite; a row of NaN is a sample without a score: it counts, and is not looked at.
        times: int64[n].
        civil: int64[n], times as clocks on the wall show them; read where there are seasons.
        floats: float64[slots, plan[FLOATS]], state.
        ints: int64[slots, plan[INTS]], state.
        shorts: int16[slots, plan[SHORTS]], state.
        plan: layout.
        weights: float64[columns].
        rule: float64[4], what makes the threshold of the largest weighted column (`thresholds.threshold_of`).
        counts: int64[3, n], filled: state and number of each sample; whether its ratio was set to the floor.
        answers: float64[4, n], filled: log ratio, divergence, evidence, threshold.
        q: int16[> d + 1], scratch.
        work: scratch matrix.
        powers: int64[plan[ATOM_ROOM]], scratch.

    Returns:
        what ended the walk (FINISHED, CLEARED, FULL, CROSSED, NOTICED, CALM or RECOVERED), and the row of the batch
        where.
    """
    for i in range(first, len(slots)):
        slot = slots[i]
        row = floats[slot]
        state = ints[slot]
        if state[STATIONARY] == NOT_STATIONARY and state[PHASE] != WARMING:
            state[STATIONARY] = TOLD
            return NOTICED, i
        clock = times[i] if state[SEQ] == 0 else max(state[CLOCK], times[i])
        if state[PHASE] == RAISED and clock >= state[UNTIL] and _arm_again(clock, state):
            return CLEARED, i
        state[CLOCK] = clock
        state[SEQ] += 1
        counts[STATES, i] = state[PHASE]
        counts[NUMBERS, i] = state[SEQ]
        threshold = threshold_of(row[RATE], row[ESCALATION], state[ALARM_TIME], clock, rule)
        answers[THRESHOLD, i] = threshold
        if math.isnan(y[i, 0]):
            remember_nothing(times[i], shorts[slot], state, plan)
            credit_nothing(state)
            if state[PHASE] == ARMED:
                answers[EVIDENCE, i] = largest_column(row, state, plan, weights)
        elif state[PHASE] == WARMING:
            if _warm(y[i], times[i], civil[i], row, shorts[slot], state, plan, q, work):
                return FULL, i
        else:
            ranked = _take_in(
                i, y[i], row, shorts[slot], state, times[i], civil[i], plan, counts, answers, q, work, powers
            )
            if state[PHASE] == ARMED:
                answers[EVIDENCE, i] = evidence_of(row, state, plan, weights, threshold)
                if ranked and answers[EVIDENCE, i] >= threshold:
                    return CROSSED, i
            if plan[PERIODS] > 0:
                _learn_season(y[i], civil[i], row, shorts[slot], state, plan, work)
        event = _after_alarm(y[i], answers[EVIDENCE, i], threshold, row, state, plan)
        if event != FINISHED:
            return event, i
    return FINISHED, len(slots)


@inline
def _arm_again(clock: int, state: np.ndarray) -> bool:
    """The dead time is over: bets begin; whether the alarm is over too, as it is unless it is held."""
    state[PHASE] = ARMED
    state[CLOCK] = clock
    # Blocks and the turns of T and H begin anew: a test is credited with samples since arming alone.
    state[COUNT] = 0
    state[STEPS_SEQ] = state[SEQ]
    credit_from_now(state)
    over = state[ALARM] == 1 and state[HELD] == 0
    if over:
        state[ALARM] = 0
        state[KEPT_SIZE] = 0
    return bool(over)


@inline
def _after_alarm(
    raw: np.ndarray, evidence: float, threshold: float, row: np.ndarray, state: np.ndarray, plan: np.ndarray
) -> int:
    """What a sample says of an alarm that is up: nothing (FINISHED), CALM or RECOVERED."""
    unsettled = state[ALARM] == 1 or state[SETTLING] == 1
    renewed = state[PHASE] == ARMED and state[SEQ] - state[STEPS_SEQ] >= RENEWED * plan[V_ROOM]
    if unsettled and renewed and evidence < SLIGHT * threshold:
        return CALM
    return RECOVERED if state[ALARM] == 1 and watch(raw, row, state, plan) else FINISHED


@inline
def _warm(
    raw: np.ndarray,
    time: int,
    civil: int,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    q: np.ndarray,
    work: np.ndarray,
) -> bool:
    """One sample of the warm-up; True where it is full."""
    if state[COUNT] == 0:
        state[WARM_TIME] = state[CLOCK]
        start_memory(raw, row, state, plan)
    q[: plan[DIMS]] = 0  # there are no steps yet
    remember(raw, time, row, shorts, state, q, plan)
    if state[SEASON_STARTED] == 1:
        take_roots(raw, state, plan, work[ROOT])
        learn_season(work[ROOT], civil, row, shorts, state, plan, work[PHI_X], work[PZ])
    if not kept(raw, row, state, plan, work[X]):
        return False
    need = state[NEED] if state[NEED] > 0 else plan[WARMUP]
    put_sample(state[COUNT] % need, work[X], civil, row, shorts, plan)
    state[COUNT] += 1
    return bool(state[COUNT] >= need and seen_once(civil, state, plan))


@inline
def _take_in(
    i: int,
    raw: np.ndarray,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    time: int,
    civil: int,
    plan: np.ndarray,
    counts: np.ndarray,
    answers: np.ndarray,
    q: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> bool:
    """One sample after the warm-up; whether it is ranked. If not, the next one that is stands for it too."""
    ranked: bool = kept(raw, row, state, plan, work[ROOT])
    if ranked:
        _sample(civil, row, state, plan, q, work)
        remember(raw, time, row, shorts, state, q, plan)
        _judge(i, row, shorts, state, time, plan, counts, answers, q, work, powers)
        return True
    q[: plan[DIMS]] = UNRANKED
    remember(raw, time, row, shorts, state, q, plan)
    answers[LOG_RATIO, i] = row[LAST_RATIO]
    answers[DIVERGENCE, i] = row[AT_DIVERGENCE]
    return False


@inline
def _sample(civil: int, row: np.ndarray, state: np.ndarray, plan: np.ndarray, q: np.ndarray, work: np.ndarray) -> None:
    """The sample in `work[ROOT]` into q and `work[Z]`, through seasons and autoregressions where they are needed."""
    take_roots(work[ROOT], state, plan, work[ROOT])
    if plan[PERIODS] > 0:
        take_season_out(work[ROOT], civil, row, state, plan, work[PX])
    if state[WHITENED] == 1:
        if row[plan[AT_LEVELS] + PERSISTENT] > 0.0:
            measure_levels(work[ROOT], row, plan, work[ERRORS])
        whiten_sample(work[ROOT], True, row, plan, work[X], work[PX])
    else:
        for j in range(plan[DIMS]):
            work[X, j] = work[ROOT, j]
    to_steps(work[X], row, plan, q, work[Z])


@inline
def _learn_season(
    raw: np.ndarray,
    civil: int,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    work: np.ndarray,
) -> None:
    """A sample into its slot; where a season is found the key warms up anew, without it."""
    take_roots(raw, state, plan, work[ROOT])
    ended = learn_season(work[ROOT], civil, row, shorts, state, plan, work[PHI_X], work[PZ])
    if ended and state[PHASE] == ARMED and test_is_due(state, plan) and find_seasons(shorts, state, plan):
        warm_up_again(row, state, plan)


@inline
def _judge(
    i: int,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    time: int,
    plan: np.ndarray,
    counts: np.ndarray,
    answers: np.ndarray,
    q: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> None:
    """Score the sample in q, bet on its ranks, let bags and learned score take it in."""
    stream = np.uint64(state[STREAM])
    bet = state[PHASE] == ARMED
    answers[DIVERGENCE, i] = row[AT_DIVERGENCE]
    f = ratio(row, state[ATOM_COUNT], Z, PHI_Z, plan, work, powers)
    if f < RATIO_FLOOR:
        counts[CLIPPED, i] = 1
    row[LAST_RATIO] = log(max(f, RATIO_FLOOR))
    answers[LOG_RATIO, i] = row[LAST_RATIO]
    if bet and state[WHITENED] == 1 and row[plan[AT_LEVELS] + PERSISTENT] > 0.0:
        credit = 1.0 * (state[SEQ] - state[FIXED_SEQ])
        bet_on_levels(credit, answers[THRESHOLD, i], row, state, plan, work[ERRORS])
    rank_fixed(row, shorts, state, stream, bet, time, q, plan, work)
    if state[COUNT] % 2 == 0:
        pick = below(stream, PICK, state[SEQ], state[T_SIZE])
        replaced = below(stream, REPLACE, state[SEQ], plan[H_ROOM])
        train(row, shorts, state, f, pick, replaced, q, plan, work, powers)
        if plan[HIDDEN_COUNT] > 0:
            look(row, state, q, plan, work)
    else:
        rank_learned(row, shorts, state, stream, bet, time, q, plan, work)
    rank_means(row, shorts, state, stream, bet, time, q, plan, work)
    close_sample(row, state, plan)
    state[COUNT] += 1


@inline
def evidence_of(row: np.ndarray, state: np.ndarray, plan: np.ndarray, weights: np.ndarray, threshold: float) -> float:
    """The largest column; where it is as large as evidence gets and the threshold lies above, all bets begin anew."""
    evidence = largest_column(row, state, plan, weights)
    if evidence >= LARGEST and threshold > LARGEST:
        singles(row, plan[AT_R], plan[BETS])[:] = 0.0
        row[plan[AT_VALUES] : plan[AT_VALUES] + plan[COLUMNS]] = 0.0
        singles(row, plan[AT_RUN_PRODUCT], plan[LOCATORS])[:] = 0.0
        return LARGEST
    return evidence


@inline
def largest_column(row: np.ndarray, state: np.ndarray, plan: np.ndarray, weights: np.ndarray) -> float:
    """The largest w mean R of all columns; notes which column it is.

    Where there are features whose level is bet on, these share half of the weight, and all others have the other half.
    """
    largest = -1.0
    values = row[plan[AT_VALUES] : plan[AT_VALUES] + plan[COLUMNS]]
    persistent = row[plan[AT_LEVELS] + PERSISTENT] if plan[LEVEL] < plan[COLUMNS] else 0.0
    others = 1.0 - LEVEL_WEIGHT if persistent > 0.0 else 1.0
    for c in range(len(values)):
        value = weights[c] * values[c]
        if c < plan[LEVEL]:
            value *= others
        else:
            value = value / persistent if persistent > 0.0 else 0.0
        if value > largest:
            largest = value
            state[BEST] = c
    return largest
