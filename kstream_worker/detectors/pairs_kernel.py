"""The compiled walk of the pair detector: learned ensemble, battery, evidence.

Three estimators of the relative ratio f = 1 + u share their atoms and one exponential per atom and point, since their
widths differ by factors of two: stochastic gradients at 1.4 and .35 median distances (wide and narrow), recursive least
squares with forgetting at .7 (middle). Each is a column of the battery: its D is f(y) - f(x), f before the pair.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors import battery
from kstream_worker.detectors.history import narrow
from kstream_worker.detectors.pairs_state import (
    ALARM,
    ALARM_TIME,
    ARMED,
    AT_ATOMS,
    AT_CENTER,
    AT_COV,
    AT_DIVERGENCE,
    AT_GAIN,
    AT_MIDDLE,
    AT_NARROW,
    AT_RECENT,
    AT_RUN_SEQ,
    AT_RUN_TIME,
    AT_RUNS,
    AT_SCALE,
    AT_SQUARES,
    AT_STATISTIC,
    AT_W,
    AT_WEIGHT,
    AT_WIDE,
    ATOMS,
    BACK,
    CLOCK,
    COLUMNS,
    COUNT,
    DIMS,
    ESCALATION,
    ESTIMATORS,
    FIXED,
    INTS,
    LEAD,
    LENGTH,
    MARGIN,
    MIDDLE,
    NARROW,
    PHASE,
    PRODUCTS,
    RAISED,
    RATE,
    ROOM,
    RUNS,
    SEQ,
    SIDE,
    SINCE,
    UNTIL,
    WARM_TIME,
    WARMING,
    WARMUP,
    WIDE,
    Plan,
)
from kstream_worker.detectors.recovery import is_over
from kstream_worker.detectors.report import advance_runs
from kstream_worker.detectors.thresholds import LARGEST, threshold_of
from kstream_worker.models import nystrom, scaling
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

WIDE_ETA, WIDE_DECAY = 0.3, 0.05
NARROW_ETA, NARROW_DECAY = 0.1, 0.02
FORGETTING = 0.995
RIDGE = 1.0
RATIO_FLOOR = 1e-6
VARIANCE = 0.4  # of the payoff of a score of pairs that are alike

FINISHED = 0  # no pair is left
RECOVERED = 1  # an alarm is up, and the sides are alike again
FULL = 2  # this pair completed a warm-up: the caller fits the key
CROSSED = 3  # the evidence has reached the threshold: the caller re-arms the key

LOG_RATIO, DIVERGENCE, EVIDENCE, THRESHOLD = 0, 1, 2, 3  # rows of the answers

# Rows of the scratch matrix.
_ZX, _ZY, _KX, _KY, _PX, _PY, _SX, _SY, _PAYOFF, _RUN, _GP, _GQ = 0, 1, 2, 3, 4, 7, 10, 11, 12, 13, 14, 15
_SCRATCH_ROWS = 16


def make_scratch(plan: Plan) -> np.ndarray:
    """float64 working memory of a walk; nothing in it outlives a pair."""
    return np.zeros((_SCRATCH_ROWS, max(plan.room, plan.runs)))


@jit
def walk(
    first: int,
    slots: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    times: np.ndarray,
    floats: np.ndarray,
    ints: np.ndarray,
    at: np.ndarray,
    weights: np.ndarray,
    alpha: float,
    rule: np.ndarray,
    state_seq: np.ndarray,
    answers: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> tuple[int, int]:
    """Walk pairs from row `first` on, up to the end or to the first event.

    Args:
        first: row of the batch to begin with.
        slots: int64[n].
        x: float64[n, d], finite.
        y: float64[n, d], finite.
        times: int64[n].
        floats: float64[slots, plan.floats], state.
        ints: int64[slots, INTS + plan.length], state.
        at: the plan's table.
        weights: float64[columns], of one bet of each column.
        alpha: weight of the live side in the relative ratio.
        rule: float64[4], what makes the threshold of the evidence (`thresholds.threshold_of`).
        state_seq: int64[2, n], phase before and number of each pair, filled.
        answers: float64[4, n], log ratio, divergence and evidence, filled from the first armed pair on; threshold.
        work: scratch.
        powers: int64[>= width of work], scratch.

    Returns:
        what ended the walk (FINISHED, RECOVERED, FULL, CROSSED), and the row of the batch where.
    """
    for i in range(first, len(slots)):
        row = floats[slots[i]]
        state = ints[slots[i]]
        clock = times[i] if state[SEQ] == 0 else max(state[CLOCK], times[i])
        state[CLOCK] = clock
        if state[PHASE] == RAISED and clock >= state[UNTIL]:
            state[PHASE] = ARMED
            state[SINCE] = state[SEQ]
        state[SEQ] += 1
        state_seq[0, i] = state[PHASE]
        state_seq[1, i] = state[SEQ]
        threshold = threshold_of(row[RATE], row[ESCALATION], state[ALARM_TIME], clock, rule)
        answers[THRESHOLD, i] = threshold
        if state[PHASE] == WARMING:
            if state[COUNT] == 0:
                state[WARM_TIME] = clock
            _keep(row, state, x[i], y[i], at)
            if state[COUNT] == at[WARMUP]:
                return FULL, i
        else:
            _remember(row, state, x[i], y[i], times[i], at)
            fy, divergence, evidence = _judge(row, state, x[i], y[i], times[i], at, weights, alpha, work, powers)
            answers[LOG_RATIO, i] = fy
            answers[DIVERGENCE, i] = divergence
            answers[EVIDENCE, i] = evidence
            if evidence >= LARGEST and threshold > LARGEST:
                row[at[AT_STATISTIC] : at[AT_RUN_SEQ]] = 0.0  # as large as evidence gets: all bets begin anew
                state[SINCE] = state[SEQ]
                answers[EVIDENCE, i] = LARGEST
            elif evidence >= threshold:
                return CROSSED, i
            if state[ALARM] == 1 and state[PHASE] == ARMED:
                payoff = state[SIDE] * work[_PAYOFF, state[LEAD]]
                if is_over(row, BACK, row[MARGIN], VARIANCE, payoff, evidence, threshold):
                    return RECOVERED, i
    return FINISHED, len(slots)


@jit
def log_ratios(values: np.ndarray) -> int:
    """Ratios to their logarithms, in place; NaN stays. The number of ratios that had to be set to the floor."""
    clipped = 0
    for i in range(len(values)):
        if values[i] < RATIO_FLOOR:
            values[i] = RATIO_FLOOR
            clipped += 1
        values[i] = log(values[i])
    return clipped


@inline
def _keep(row: np.ndarray, state: np.ndarray, x: np.ndarray, y: np.ndarray, at: np.ndarray) -> None:
    """Keep one pair of the warm-up."""
    d = at[DIMS]
    start = at[AT_ATOMS] + 2 * d * state[COUNT]
    for j in range(d):
        row[start + j] = x[j]
        row[start + d + j] = y[j]
    state[COUNT] += 1


@inline
def _remember(row: np.ndarray, state: np.ndarray, x: np.ndarray, y: np.ndarray, time: int, at: np.ndarray) -> None:
    """Put a pair into the ring of the last ones, for explanations; state[SEQ] is its number already."""
    d = at[DIMS]
    k = state[SEQ] % at[LENGTH]
    ring = row[at[AT_RECENT] : at[AT_GAIN]].view(np.float32)
    center = row[at[AT_CENTER] :]
    for j in range(d):
        ring[2 * k * d + j] = narrow(x[j] - center[j])
        ring[(2 * k + 1) * d + j] = narrow(y[j] - center[j])
    state[INTS + k] = time


@inline
def _judge(
    row: np.ndarray,
    state: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    time: int,
    at: np.ndarray,
    weights: np.ndarray,
    alpha: float,
    work: np.ndarray,
    powers: np.ndarray,
) -> tuple[float, float, float]:
    """Score a pair and let the estimators learn from it: ratio at y and divergence before, evidence after."""
    d = at[DIMS]
    m = state[ATOMS]
    scaling.scale_sample(x, row[at[AT_CENTER] :], row[at[AT_SCALE] :], d, work[_ZX])
    scaling.scale_sample(y, row[at[AT_CENTER] :], row[at[AT_SCALE] :], d, work[_ZY])
    _whiten(row, m, at, work, powers)
    fx, fy = _differences(row, m, at, work)
    divergence = _divergence(row, at[AT_DIVERGENCE], alpha, fx, fy)
    state[COUNT] += 1
    _learn(row, m, state[COUNT], at, alpha, work)
    return fy, divergence, _bet(row, state, time, at, weights, work, powers)


@inline
def _whiten(row: np.ndarray, m: int, at: np.ndarray, work: np.ndarray, powers: np.ndarray) -> None:
    """Whitened features of both sides for the three widths, from one exponential per atom and point."""
    atoms = row[at[AT_ATOMS] :]
    kx = work[_KX]
    ky = work[_KY]
    nystrom.gaussian(work[_ZX], atoms, at[ROOM], m, at[DIMS], row[at[AT_GAIN]], kx, powers)
    nystrom.gaussian(work[_ZY], atoms, at[ROOM], m, at[DIMS], row[at[AT_GAIN]], ky, powers)
    for estimator, start in ((WIDE, AT_WIDE), (MIDDLE, AT_MIDDLE), (NARROW, AT_NARROW)):
        if estimator != WIDE:
            nystrom.fourth_power(kx, m, kx)
            nystrom.fourth_power(ky, m, ky)
        nystrom.whiten_pair(row[at[start] :], m, kx, ky, work[_PX + estimator], work[_PY + estimator])


@inline
def _differences(row: np.ndarray, m: int, at: np.ndarray, work: np.ndarray) -> tuple[float, float]:
    """D = s(y) - s(x) of all columns into `work[_SX]`; the middle estimate of the ratio at x and at y."""
    sx = work[_SX]
    sy = work[_SY]
    battery.fixed_scores(work[_ZX], at[DIMS], at[PRODUCTS] == 1, sx)
    battery.fixed_scores(work[_ZY], at[DIMS], at[PRODUCTS] == 1, sy)
    learned = at[FIXED]
    for e in range(ESTIMATORS):
        w = row[at[AT_W] + e * at[ROOM] :]
        sx[learned + e] = 1.0 + nystrom.dot(w, work[_PX + e], m)
        sy[learned + e] = 1.0 + nystrom.dot(w, work[_PY + e], m)
    fx = sx[learned + MIDDLE]
    fy = sy[learned + MIDDLE]
    for k in range(at[COLUMNS]):
        sx[k] = sy[k] - sx[k]
    return fx, fy


@inline
def _divergence(row: np.ndarray, start: int, alpha: float, fx: float, fy: float) -> float:
    """Relative Pearson divergence (paper 004, eq. 8c), as a faded mean over pairs with f before each pair."""
    term = fy - 0.5 * (alpha * fy * fy + (1.0 - alpha) * fx * fx) - 0.5
    row[start] = FORGETTING * row[start] + term
    row[start + 1] = FORGETTING * row[start + 1] + 1.0
    divergence: float = row[start] / row[start + 1]
    return divergence


@inline
def _learn(row: np.ndarray, m: int, step: int, at: np.ndarray, alpha: float, work: np.ndarray) -> None:
    """One step of each estimator."""
    w = row[at[AT_W] : at[AT_ATOMS]]
    room = at[ROOM]
    nystrom.sgd_step(w[WIDE * room :], m, work[_PX + WIDE], work[_PY + WIDE], alpha, WIDE_ETA, WIDE_DECAY)
    nystrom.sgd_step(w[NARROW * room :], m, work[_PX + NARROW], work[_PY + NARROW], alpha, NARROW_ETA, NARROW_DECAY)
    nystrom.rls_step(
        row[at[AT_COV] :],
        m,
        w[MIDDLE * room :],
        work[_PX + MIDDLE],
        work[_PY + MIDDLE],
        alpha,
        FORGETTING,
        RIDGE,
        step,
        work[_GP],
        work[_GQ],
    )


@inline
def _bet(
    row: np.ndarray,
    state: np.ndarray,
    time: int,
    at: np.ndarray,
    weights: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> float:
    """Bets on the differences in `work[_SX]`: the evidence after this pair, 0 while the alarm is held."""
    columns = at[COLUMNS]
    squares = row[at[AT_SQUARES] :]
    weight = row[at[AT_WEIGHT]]
    payoff = work[_PAYOFF]
    armed = state[PHASE] == ARMED
    if armed:
        battery.payoffs(work[_SX], squares, weight, columns, payoff, powers)
    battery.remember(work[_SX], squares, columns)
    row[at[AT_WEIGHT]] = battery.next_weight(weight)
    if not armed:
        return 0.0
    battery.run_multipliers(payoff, at[FIXED], columns, work[_RUN])
    advance_runs(
        row[at[AT_RUNS] :],
        row[at[AT_RUN_SEQ] :],
        row[at[AT_RUN_TIME] :],
        work[_RUN],
        at[RUNS],
        state[SEQ],
        time,
    )
    return battery.bet(row[at[AT_STATISTIC] :], payoff, weights, at[FIXED], columns)
