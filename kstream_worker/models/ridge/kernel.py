"""The compiled walk of the ridge bank: warm-up, prequential prediction, one slot of the window replaced a pair."""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.models.nystrom import dot, fade_and_subtract, gaussian
from kstream_worker.models.ridge.certificate import ULP, certify, magnitude
from kstream_worker.models.ridge.layout import (
    CLIPPED,
    FAILED,
    NEXT,
    PHASE,
    SEQ,
    STATUS,
    WARMING,
    Plan,
    Scratch,
)
from kstream_worker.models.ridge.packed import get_column, set_column, symmetric_times
from kstream_worker.numerics.jit import inline, jit

HEAD = 3  # columns before those of the outputs: status, tau, novelty
EACH = 6  # columns of an output: prediction, error, residual, bounds of coefficients, fit and prediction
FARTHEST = 1e6  # standardised errors beyond are set to it
FADE = 0.95  # of what drives the misfit, a pair


@jit
def walk(
    at: int,
    plan: Plan,
    floats: np.ndarray,
    ints: np.ndarray,
    slots: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    s: Scratch,
    values: np.ndarray,
    scores: np.ndarray,
) -> int:
    """Answer for each pair, then learn from it; stop where a key's warm-up is full, which `arm` and `certify` settle.

    Args:
        at: row to begin with.
        plan: of the bank.
        floats: float64[capacity, plan.floats].
        ints: int64[capacity, INTS].
        slots: int64[n].
        x: float64[n, dx].
        y: float64[n, dy].
        s: work space.
        values: float64[n, HEAD + EACH dy], NaN on entry, result.
        scores: float64[n, 2 dy + 1, dy (above 1) or 1], NaN on entry, result.

    Returns:
        the row that filled a window, n where none did.
    """
    for t in range(at, slots.shape[0]):
        row = floats[slots[t]]
        whole = ints[slots[t]]
        whole[SEQ] += 1
        if whole[PHASE] == WARMING:
            if _hold(plan, row, whole, x[t], y[t]):
                return t
            continue
        _look(plan, row, x[t], s)
        _answer(plan, row, whole, y[t], values[t], scores[t], s)
        certify(plan, row, whole, _learn(plan, row, whole, y[t], s), s)
    return int(slots.shape[0])


@inline
def _hold(plan: Plan, row: np.ndarray, whole: np.ndarray, x: np.ndarray, y: np.ndarray) -> bool:
    """Keep one pair of the warm-up; True when it was the last one."""
    p = whole[NEXT]
    for j in range(plan.dx):
        row[plan.at_x + j * plan.room + p] = x[j]
    for j in range(plan.dy):
        row[plan.at_y + j * plan.room + p] = y[j]
    whole[NEXT] = (p + 1) % plan.room
    return bool(whole[NEXT] == 0)


@inline
def _look(plan: Plan, row: np.ndarray, x: np.ndarray, s: Scratch) -> None:
    """s.zx <- x scaled, s.k <- its kernel values, s.w <- (K + tau I)^-1 k."""
    m = plan.room
    scaling.scale_sample(x, row, row[plan.dx :], plan.dx, s.zx)
    gaussian(s.zx, row[plan.at_x :], m, m, plan.dx, row[plan.at_gain], s.k, s.powers)
    symmetric_times(row[plan.at_inverse : plan.floats], m, s.k, s.w)


@inline
def _answer(
    plan: Plan,
    row: np.ndarray,
    whole: np.ndarray,
    y: np.ndarray,
    values: np.ndarray,
    scores: np.ndarray,
    s: Scratch,
) -> None:
    """What is published of a pair before it is learned."""
    m = plan.room
    tau = row[plan.at_tau]
    novelty = min(max(1.0 - dot(s.k, s.w, m), 0.0), 1.0)
    values[0] = whole[STATUS]
    values[1] = tau
    values[2] = novelty
    spread = math.sqrt(novelty + tau)
    combined = 0.0
    for o in range(plan.dy):
        b = row[plan.at_b + o * m : plan.at_b + (o + 1) * m]
        center = row[plan.at_y_center + o]
        scale = row[plan.at_y_scale + o]
        f = dot(s.k, b, m)
        column = HEAD + o * EACH
        values[column] = _finite(center + scale * f)
        values[column + 1] = _finite(y[o] - (center + scale * f))
        _publish_bounds(plan, row, o, f, magnitude(b, m), values[column + 2 : column + EACH])
        error = min(max(((y[o] - center) / scale - f) / spread, -FARTHEST), FARTHEST)
        row[plan.at_misfit + o] = FADE * row[plan.at_misfit + o] + error * error
        combined += error * error
        if scores.shape[0] > plan.dy:
            scores[2 * o] = error
            scores[2 * o + 1] = -error
        elif scores.shape[0] == plan.dy:
            scores[o] = abs(error)
    if scores.shape[0] != plan.dy:
        scores[scores.shape[0] - 1] = math.sqrt(combined / plan.dy)
    if whole[FAILED]:  # without an inverse nobody knows what error to expect
        scores[:] = math.nan


@inline
def _publish_bounds(plan: Plan, row: np.ndarray, o: int, f: float, size: float, out: np.ndarray) -> None:
    """Residual, and the bounds of coefficients, fit and prediction that follow from it, in units of y.

    K is the Gaussian kernel's matrix up to `rounding` in each entry (a distance of dx terms, an exponential), so that
    its smallest eigenvalue is not below -room rounding; k(x*, x*) = 1. The prediction is centre + scale f, rounded.
    """
    m = plan.room
    tau = row[plan.at_tau]
    norm = row[plan.at_norms + o]
    scale = row[plan.at_y_scale + o]
    rounding = (plan.dx + 16.0) * ULP
    below = m * rounding
    floor = tau - below
    up = (1.0 + 16.0 * ULP) * scale
    out[0] = _finite(norm * up)
    if not floor > 0.0:
        return
    out[1] = _finite(norm / floor * up)
    out[2] = _finite(norm * max(m / (m + tau), below / floor) * up)
    lever = math.sqrt(0.25 / tau + below / (floor * floor)) + math.sqrt(float(m)) * rounding / floor
    shown = 2.0 * ULP * (abs(row[plan.at_y_center + o]) + scale * abs(f))
    out[3] = _finite((norm * lever + (m + 8.0) * ULP * size) * up + shown)


@inline
def _finite(value: float) -> float:
    """The value, NaN where it overflowed."""
    return value if abs(value) < math.inf else math.nan


@inline
def _learn(plan: Plan, row: np.ndarray, whole: np.ndarray, y: np.ndarray, s: Scratch) -> bool:
    """The oldest slot of the window becomes this pair's; True where a factorisation is due.

    A key that outgrew its scales warms up again.
    """
    m = plan.room
    p = whole[NEXT]
    scaling.scale_sample(y, row[plan.at_y_center :], row[plan.at_y_scale :], plan.dy, s.zy)
    whole[CLIPPED] += _is_clipped(s.zx, plan.dx) or _is_clipped(s.zy, plan.dy)
    for j in range(plan.dx):
        row[plan.at_x + j * m + p] = s.zx[j]
    sound = _project(plan, row, p, s)
    s.k[p] = 1.0
    set_column(row[plan.at_kernel : plan.at_inverse], m, p, s.k)
    _replace(plan, row, p, sound, s)
    whole[NEXT] = (p + 1) % m
    if whole[NEXT] == 0:
        if 2 * whole[CLIPPED] > m:
            whole[PHASE] = WARMING
        whole[CLIPPED] = 0
    return not sound


@inline
def _is_clipped(z: np.ndarray, d: int) -> bool:
    found = False
    for j in range(d):
        found = found or abs(z[j]) >= scaling.CLIP
    return found


@inline
def _project(plan: Plan, row: np.ndarray, p: int, s: Scratch) -> bool:
    """What the rank-2 update needs: whether it can be made.

    With P = (K + tau I)^-1 before and g = P e_p, taking slot p out gives P1 = P - g g' / g_p; putting the new pair in
    gives P1 + z z' / pivot with w = P1 k, pivot = 1 + tau - k' w and z = w - e_p, all with k_p = 0. On return s.g is g,
    s.w is z with -1 at p, s.r[0] is g_p, s.r[1] the pivot.
    """
    m = plan.room
    tau = row[plan.at_tau]
    get_column(row[plan.at_inverse : plan.floats], m, p, s.g)
    own = s.g[p]
    along = -s.k[p]
    s.k[p] = 0.0
    for i in range(m):
        s.w[i] += along * s.g[i]
    along = -dot(s.g, s.k, m) / own
    for i in range(m):
        s.w[i] += along * s.g[i]
    s.w[p] = 0.0
    pivot = 1.0 + tau - dot(s.k, s.w, m)
    s.w[p] = -1.0
    s.r[0] = own
    s.r[1] = pivot
    return bool(own >= 0.5 / (1.0 + tau) and pivot >= 0.5 * tau)  # exactly: own >= 1 / (1 + tau), pivot >= tau


@inline
def _replace(plan: Plan, row: np.ndarray, p: int, sound: bool, s: Scratch) -> None:
    """The outputs of slot p, and, where the update can be made, coefficients and inverse."""
    m = plan.room
    own = s.r[0]
    pivot = s.r[1]
    for o in range(plan.dy):
        y = row[plan.at_y + o * m : plan.at_y + (o + 1) * m]
        b = row[plan.at_b + o * m : plan.at_b + (o + 1) * m]
        change = s.zy[o] - y[p]
        y[p] = s.zy[o]
        if sound:
            on_g = change - dot(s.g, y, m) / own
            on_z = dot(s.w, y, m) / pivot
            for i in range(m):
                b[i] += on_g * s.g[i] + on_z * s.w[i]
    if sound:
        inverse = row[plan.at_inverse : plan.floats]
        fade_and_subtract(inverse, m, 1.0, 1.0 / own, s.g, -1.0 / pivot, s.w)
        for i in range(m):
            s.r[i] = -s.w[i] / pivot
        set_column(inverse, m, p, s.r)
