"""The compiled walk of the Koopman bank: warm-up, prequential answers, one step of the operators a pair."""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.models.cme import operator as cme
from kstream_worker.models.cme.layout import ATOMS, Work
from kstream_worker.models.koopman.arming import hold
from kstream_worker.models.koopman.layout import (
    ARMED,
    CHAIN,
    COUNTS,
    ETA,
    FAST,
    FAST_STEP,
    FINISHED,
    FULL,
    LEARNED,
    LINE,
    NOVELTY,
    OPERATOR,
    PHASE,
    READY,
    REFRESH,
    SCORES,
    SEQ,
    STALE,
    TIME,
    WARM,
    WARMING,
    ZX,
    ZY,
    Plan,
    Scratch,
)
from kstream_worker.models.koopman.reports import compare, remember, report_errors, say
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.outline import outline

_GAP = 3.0  # times the usual interval: the chain is broken
_INTERVAL_SHARE = 0.005  # of the running interval; a step is at most the interval itself, so that gaps move it little
_LEAST_VARIANCE = 0.1  # of a score: a learned one is at least this share of the running one
_NO_DIRECTION = 1e-30
_RECENT = 0.05  # share of a pair in the recent misfit of a feature
_USUAL = 0.002  # and in what is usual


@inline
def _pass_time(plan: Plan, row: np.ndarray, ints: np.ndarray, time: int) -> float:
    """Time since the latest pair, milliseconds; moves the running interval."""
    passed = np.float64(time - ints[TIME])
    ints[TIME] = time
    usual = row[plan.at_interval]
    if ints[PHASE] == ARMED and passed > 0.0:
        row[plan.at_interval] = usual + _INTERVAL_SHARE * min(passed - usual, usual) if usual > 0.0 else passed
    return passed


@inline
def _chain(plan: Plan, row: np.ndarray, ints: np.ndarray, x: np.ndarray, passed: float) -> None:
    """Count the pairs in a row whose x is the y of `lag` pairs before; a gap in time begins anew."""
    usual = row[plan.at_interval]
    joined = ints[SEQ] > plan.lag and not (usual > 0.0 and passed > _GAP * usual)
    at = plan.at_past + (ints[SEQ] - plan.lag) % (plan.longest * plan.lag) * plan.dims
    for j in range(plan.dims):
        joined = joined and x[j] == row[at + j]
    ints[CHAIN] = ints[CHAIN] + 1 if joined else 0


@inline
def _observe(
    plan: Plan, row: np.ndarray, m: int, x: np.ndarray, y: np.ndarray, s: Scratch, w: Work
) -> tuple[float, float, float]:
    """w <- what the pair is to the slow operator, and what its further functions miss."""
    outline()
    d = plan.dims
    scale = row[plan.at_scale : plan.at_scale + d]
    zx, zy = s.lines[ZX], s.lines[ZY]
    scaling.scale_sample(x, row, scale, d, zx)
    scaling.scale_sample(y, row, scale, d, zy)
    gain = row[plan.at_gain]
    rests = cme.observe(plan.op, row, m, gain, gain, zx, zy, w)
    ahead = plan.op.room  # learned beside the operator: the mean step of each feature from x to y, in scaled units
    for j in range(d):
        w.g[ahead + j] = zy[j] - zx[j] - w.c[ahead + j]
    return rests


@inline
def _learn(
    plan: Plan,
    row: np.ndarray,
    ints: np.ndarray,
    rests: tuple[float, float, float],
    s: Scratch,
    w: Work,
) -> None:
    """Both operators learn from the pair."""
    op = plan.op
    state = ints[OPERATOR:COUNTS]
    cme.absorb(op, row, state, ETA * NOVELTY, s.lines[ZX], s.lines[ZY], rests[0], rests[1], rests[2], w)
    m = state[ATOMS]
    fast = cme.matrix(op, row, 1)
    predicted = s.lines[FAST]
    cme.apply(op, m, fast, w.p, predicted)
    for i in range(op.room):
        w.g[i] = w.q[i] - predicted[i] if i < m else 0.0
    for i in range(op.extra):
        w.g[op.room + i] = 0.0
    cme.add_outer(op, m, fast, 1.0, w.g, FAST_STEP, w.p)
    ints[LEARNED] += 1


@inline
def _score(
    plan: Plan, row: np.ndarray, m: int, judged: int, innovation: float, s: Scratch, w: Work, scores: np.ndarray
) -> None:
    """scores <- innovation and drift, each beyond what is usual in this state, in standard deviations usual there.

    Drift is the innovation along the direction in which the fast operator's expectation lies from the slow one's, of
    mean 0 given the past while the slow one is right: it sees changes that leave the innovation as large as it was.
    What is usual is learned beside the operator, beyond running means, by its mean and variance. Sets w.g of its rows.
    """
    outline()
    op = plan.op
    fast, raw = s.lines[FAST], s.lines[LINE]
    cme.apply(op, m, cme.matrix(op, row, 1), w.p, fast)
    along, apart = 0.0, 0.0
    for i in range(m):
        off = fast[i] - w.c[i]
        along += off * w.g[i]
        apart += off * off
    raw[0] = innovation
    raw[1] = along / math.sqrt(apart) if apart > _NO_DIRECTION else 0.0
    share = max(1.0 / (judged + 1), _USUAL)
    for k in range(SCORES):
        beside = op.room + plan.dims + 2 * k
        usual = plan.at_usual + 2 * k
        error = raw[k] - (row[usual] + w.c[beside])
        variance = max(row[usual + 1] + w.c[beside + 1], _LEAST_VARIANCE * row[usual + 1], 1e-30)
        w.g[beside] = error
        w.g[beside + 1] = error * error - (row[usual + 1] + w.c[beside + 1])
        scores[k] = error / math.sqrt(variance)
        row[usual] += share * (raw[k] - row[usual])
        row[usual + 1] += share * (error * error - row[usual + 1])


@inline
def _note_misfit(plan: Plan, row: np.ndarray, judged: int, w: Work) -> None:
    """Running squares of what the step's prediction misses, by feature: of late, and usual."""
    share = max(1.0 / (judged + 1), _USUAL)
    for j in range(plan.dims):
        missed = w.g[plan.op.room + j] * w.g[plan.op.room + j]
        at = plan.at_misfit + j
        row[at] += _RECENT * (missed - row[at])
        row[at + plan.dims] += share * (missed - row[at + plan.dims])


@jit
def walk(
    at: int,
    plan: Plan,
    floats: np.ndarray,
    ints: np.ndarray,
    slots: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    times: np.ndarray,
    replay: bool,
    s: Scratch,
    w: Work,
    values: np.ndarray,
    scores: np.ndarray,
) -> tuple[int, int]:
    """Answer for each pair from row `at` on, then learn from it; stop at the first event.

    Args:
        at: first row.
        plan: of the bank.
        floats: float64[capacity, plan.floats].
        ints: int64[capacity, COUNTS + horizons].
        slots: int64[n].
        x: float64[n, d].
        y: float64[n, d].
        times: int64[n], milliseconds.
        replay: whether these are the pairs of a warm-up again, from which an armed key learns without an answer.
        s: work space, as the next.
        w: of the operators.
        values: float64[n, columns], NaN, result.
        scores: float64[n, SCORES], NaN, result.

    Returns:
        the event, and its row, which is done: `FULL`, the warm-up is; `STALE`, modes are to be computed anew;
        `FINISHED` (and n), none.
    """
    for t in range(at, slots.shape[0]):
        row = floats[slots[t]]
        whole = ints[slots[t]]
        if not replay:
            whole[SEQ] += 1
            passed = _pass_time(plan, row, whole, times[t])
            _chain(plan, row, whole, x[t], passed)
            if whole[PHASE] == WARMING:
                remember(plan, row, whole[SEQ], y[t], values[t], s.horizons)
                hold(plan, row, whole[WARM], x[t], y[t], passed)
                whole[WARM] += 1
                if whole[WARM] == plan.warmup:
                    return FULL, t
                continue
        m = whole[OPERATOR + ATOMS]
        rests = _observe(plan, row, m, x[t], y[t], s, w)
        for i in range(2 * SCORES):
            w.g[plan.op.room + plan.dims + i] = 0.0
        if not replay:
            innovation = rests[1] + rests[2]
            compare(plan, row, whole, y[t], s.horizons)
            _note_misfit(plan, row, whole[LEARNED] - plan.warmup, w)
            values[t, 0] = innovation
            values[t, 1] = m
            say(plan, row, whole, s, w.powers, values[t])
            report_errors(plan, row, whole, values[t])
            judged = whole[LEARNED] - plan.warmup
            _score(plan, row, m, judged, innovation, s, w, scores[t])
            if whole[LEARNED] < READY * plan.warmup:
                scores[t] = math.nan
            remember(plan, row, whole[SEQ], y[t], values[t], s.horizons)
        _learn(plan, row, whole, rests, s, w)
        if not replay and whole[LEARNED] % REFRESH == 0:
            return STALE, t
    return FINISHED, slots.shape[0]
