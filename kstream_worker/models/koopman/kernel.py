"""The compiled walk of the Koopman bank: warm-up, prequential answers, one step of the operators a pair."""

from __future__ import annotations

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.models.cme import judge
from kstream_worker.models.cme import operator as cme
from kstream_worker.models.cme.judge import USUAL_ROWS
from kstream_worker.models.cme.layout import ATOMS, Work
from kstream_worker.models.koopman.arming import hold
from kstream_worker.models.koopman.layout import (
    ARMED,
    CHAIN,
    COUNTS,
    ETA,
    FINISHED,
    FOUND,
    FULL,
    LEARNED,
    NOVELTY,
    NOW,
    OPERATOR,
    PHASE,
    READY,
    REFRESH,
    SEQ,
    SPECTRAL,
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
from kstream_worker.models.koopman.shifts import spectral_change
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.outline import outline

_GAP = 3.0  # times the usual interval: the chain is broken
_INTERVAL_SHARE = 0.005  # of the running interval; a step is at most the interval itself, so that gaps move it little
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
def _judge(
    plan: Plan,
    row: np.ndarray,
    m: int,
    judged: int,
    rest_x: float,
    innovation: float,
    s: Scratch,
    w: Work,
    scores: np.ndarray,
) -> None:
    """The two scores of a pair; its errors are those of the steps."""
    outline()
    ahead = plan.op.room
    for j in range(plan.dims):
        s.judge.errors[j] = w.g[ahead + j]
    first, ready = ahead + plan.dims, (READY - 1) * plan.warmup
    x = s.lines[ZX]
    judge.judge(
        plan.op, row, plan.at_judge, m, first, judged, plan.warmup, ready, x, rest_x, innovation, w, s.judge, scores
    )


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
        for i in range(USUAL_ROWS):
            w.g[plan.op.room + plan.dims + i] = 0.0
        if not replay:
            innovation = rests[1] + rests[2]
            judged = whole[LEARNED] - plan.warmup
            compare(plan, row, whole, y[t], s.horizons)
            _judge(plan, row, m, judged, rests[0], innovation, s, w, scores[t])
            _note_misfit(plan, row, judged, w)
            values[t, 0] = innovation
            values[t, 1] = m
            say(plan, row, whole, s, w.powers, values[t])
            values[t, SPECTRAL] = spectral_change(plan, row, whole[FOUND], w.p, s.lines[NOW])
            report_errors(plan, row, whole, values[t])
            remember(plan, row, whole[SEQ], y[t], values[t], s.horizons)
        zx, zy = s.lines[ZX], s.lines[ZY]
        cme.absorb(plan.op, row, whole[OPERATOR:COUNTS], ETA * NOVELTY, zx, zy, rests[0], rests[1], rests[2], w)
        whole[LEARNED] += 1
        if not replay and whole[LEARNED] % REFRESH == 0:
            return STALE, t
    return FINISHED, slots.shape[0]
