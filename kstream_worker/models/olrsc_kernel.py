"""The compiled walk of the low-rank bank: warm-up, arming, code and scores of each sample, one step of the basis."""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.models.lowrank.basis import accumulate, balance, gram, improve_basis
from kstream_worker.models.lowrank.cluster import MOST, Space, cluster, make_space, nearest
from kstream_worker.models.lowrank.code import MISSING, OUTSIDE, SEEN, TOLERANCE, code
from kstream_worker.models.lowrank.layout import (
    ARMED,
    CLUSTERS,
    DRAWS,
    EXPRESSED,
    FILLED,
    LENGTH,
    NAMES,
    PHASE,
    RATIO,
    SEQ,
    SHARE,
    SIZE,
    SUBSPACE,
    SUMS,
    VARIANCE,
    WARM,
    WARMING,
    WEIGHT,
    Plan,
    Scratch,
)
from kstream_worker.models.lowrank.linear import cholesky, solve_lower
from kstream_worker.models.nystrom.features import dot
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log
from kstream_worker.numerics.random import below, uniform

# Roles of the key's random draws.
BASIS = 0
JOIN = 1
PLACE = 2

INITIAL_SCALE = 0.1  # of the entries of D_0, as in the printed form
PASSES = 5  # over the warm-up
CLIP = 100.0  # scaled entries are clipped to +-100: finite whatever comes, and far beyond the corruption's threshold
MIN_VALUES = 10  # a sensor with fewer values in its warm-up has no scale and is left out
RECENT = 0.1  # weight of a sample in the recent corruption of a sensor
USUAL = 0.005  # in its usual corruption


@inline
def _scale(plan: Plan, row: np.ndarray, y: np.ndarray, s: Scratch) -> int:
    """s.z and the work's status of a sample; how many of its entries are seen."""
    seen = 0
    for i in range(plan.dims):
        scale = row[plan.at_scale + i]
        if math.isnan(y[i]) or scale == 0.0:
            s.work.status[i] = MISSING
            s.z[i] = 0.0
        else:
            s.work.status[i] = SEEN
            s.z[i] = min(max((y[i] - row[plan.at_center + i]) / scale, -CLIP), CLIP)
            seen += 1
    return seen


@inline
def _code(plan: Plan, row: np.ndarray, s: Scratch) -> None:
    """Code of s.z with the present basis; s.cleaned and s.corruption follow."""
    p, d = plan.dims, plan.rank
    basis = row[plan.at_basis : plan.at_basis + d * p]
    w = s.work
    delta = plan.lambda2 / plan.lambda1
    gram(basis, p, d, w.gram)
    code(basis, p, d, s.z, plan.lambda1, plan.lambda2, TOLERANCE, w)
    for i in range(p):
        s.cleaned[i] = 0.0
    for j in range(d):
        for i in range(p):
            s.cleaned[i] += w.v[j] * basis[j * p + i]
    for i in range(p):
        if w.status[i] == MISSING:
            s.corruption[i] = math.nan
        else:
            kept = min(max(w.residual[i], -delta), delta)
            s.cleaned[i] += kept
            s.corruption[i] = w.residual[i] - kept if w.status[i] == OUTSIDE else 0.0


@inline
def _express(plan: Plan, row: np.ndarray, s: Scratch) -> None:
    """Add the cleaned sample's share in span D to the sums."""
    p, d = plan.dims, plan.rank
    cholesky(s.work.gram, d, s.lower, 1e-10)
    for j in range(d):
        s.projected[j] = dot(row[plan.at_basis + j * p : plan.at_basis + (j + 1) * p], s.cleaned, p)
    solve_lower(s.lower, d, s.projected)
    sums = row[plan.at_sums : plan.at_sums + SUMS]
    sums[EXPRESSED] = plan.gamma * sums[EXPRESSED] + dot(s.projected, s.projected, d)
    sums[LENGTH] = plan.gamma * sums[LENGTH] + dot(s.cleaned, s.cleaned, p)


@inline
def _learn(plan: Plan, row: np.ndarray, s: Scratch) -> None:
    """Steps 3 (u), 4 and 5 of Algorithm 1 on the code in `s`; the centres follow the mean of what is left over.

    Args:
        plan: of the bank.
        row: of the key.
        s: holds the code.
    """
    p, d = plan.dims, plan.rank
    sums = row[plan.at_sums : plan.at_sums + SUMS]
    sums[WEIGHT] = plan.gamma * sums[WEIGHT] + 1.0
    lambda3 = math.sqrt(sums[WEIGHT] / p)
    basis = row[plan.at_basis : plan.at_basis + d * p]
    a = row[plan.at_a : plan.at_a + d * d]
    b = row[plan.at_b : plan.at_b + d * p]
    m = row[plan.at_m : plan.at_m + d * p]
    accumulate(basis, p, d, s.z, s.cleaned, s.work.v, plan.gamma, lambda3, a, b, m)
    improve_basis(basis, p, d, a, b, m, plan.lambda1, lambda3, _ridge(plan, row), s.column)
    delta = plan.lambda2 / plan.lambda1
    for i in range(p):  # the residual is 0 where missing
        kept = min(max(s.work.residual[i], -delta), delta)
        row[plan.at_center + i] += row[plan.at_scale + i] * kept / sums[WEIGHT]


@inline
def _ridge(plan: Plan, row: np.ndarray) -> float:
    return float(plan.shrinkage * plan.shrinkage * row[plan.at_sums + WEIGHT])


@inline
def _settle(plan: Plan, row: np.ndarray) -> None:
    """A pass over the warm-up ends: D and V are balanced."""
    p, d = plan.dims, plan.rank
    basis = row[plan.at_basis : plan.at_basis + d * p]
    a = row[plan.at_a : plan.at_a + d * d]
    b = row[plan.at_b : plan.at_b + d * p]
    m = row[plan.at_m : plan.at_m + d * p]
    balance(basis, p, d, a, b, m, _ridge(plan, row))


@inline
def _draw_basis(plan: Plan, row: np.ndarray, stream: int) -> None:
    """D_0: independent normal entries (Box and Muller's polar method)."""
    counter = 0
    key = np.uint64(stream)
    for k in range(plan.rank * plan.dims):
        while True:
            a = 2.0 * uniform(key, BASIS, counter) - 1.0
            b = 2.0 * uniform(key, BASIS, counter + 1) - 1.0
            counter += 2
            r = a * a + b * b
            if 0.0 < r < 1.0:
                break
        row[plan.at_basis + k] = INITIAL_SCALE * a * math.sqrt(-2.0 * log(r) / r)


@inline
def _set_scale(plan: Plan, row: np.ndarray, s: Scratch) -> None:
    """Centre and scale of each sensor from what the warm-up has of it."""
    p = plan.dims
    for i in range(p):
        n = 0
        for t in range(plan.warmup):
            value = s.held[t * p + i]
            if not math.isnan(value):
                s.column[n] = value
                n += 1
        if n < MIN_VALUES:
            row[plan.at_center + i], row[plan.at_scale + i] = 0.0, 0.0
        else:
            row[plan.at_center + i], row[plan.at_scale + i] = scaling.center_and_scale(s.column, n)


@inline
def _hold(plan: Plan, row: np.ndarray, whole: np.ndarray, y: np.ndarray, s: Scratch) -> int:
    """Keep one sample of the warm-up; the last one arms. How many samples of s.held are to be learned from now."""
    p = plan.dims
    at = plan.at_held + p * whole[WARM]
    for i in range(p):
        row[at + i] = y[i]
    whole[WARM] += 1
    if whole[WARM] < plan.warmup:
        return 0
    for i in range(plan.warmup * p):
        s.held[i] = row[plan.at_held + i]
        row[plan.at_held + i] = 0.0
    _set_scale(plan, row, s)
    _draw_basis(plan, row, whole[0])
    whole[PHASE] = ARMED
    return PASSES * plan.warmup


@inline
def _keep(plan: Plan, row: np.ndarray, whole: np.ndarray, s: Scratch) -> None:
    """The cleaned sample may take a place in the reservoir, so that this holds about the samples that D remembers."""
    at = whole[FILLED]
    if at < plan.reservoir:
        whole[FILLED] += 1
    else:
        whole[DRAWS] += 1
        key = np.uint64(whole[0])
        if uniform(key, JOIN, whole[DRAWS]) * row[plan.at_sums + WEIGHT] >= plan.reservoir:
            return
        at = below(key, PLACE, whole[DRAWS], plan.reservoir)
    for i in range(plan.dims):
        row[plan.at_held + at * plan.dims + i] = s.cleaned[i]


@inline
def _remember(plan: Plan, row: np.ndarray, s: Scratch) -> None:
    """Recent and usual corruption of each sensor seen."""
    for i in range(plan.dims):
        if s.work.status[i] != MISSING:
            size = abs(s.corruption[i])
            row[plan.at_recent + i] += RECENT * (size - row[plan.at_recent + i])
            row[plan.at_usual + i] += USUAL * (size - row[plan.at_usual + i])


@inline
def _publish(
    plan: Plan, row: np.ndarray, whole: np.ndarray, seen: int, s: Scratch, values: np.ndarray, scores: np.ndarray
) -> None:
    """Estimates of one sample in the sensors' units, and the scores whatever the phase."""
    p = plan.dims
    corrupted = 0
    size = 0.0
    length = 0.0
    for i in range(p):
        scale = row[plan.at_scale + i]
        if scale == 0.0:
            continue
        values[i] = row[plan.at_center + i] + scale * s.cleaned[i]
        values[p + i] = scale * s.corruption[i]
        if s.work.status[i] != MISSING:
            corrupted += s.work.status[i] == OUTSIDE
            size += abs(s.corruption[i])
            length += abs(s.z[i])
    if whole[CLUSTERS] > 0:
        k = nearest(s.cleaned, p, row[plan.at_pool :], whole[CLUSTERS], whole[SIZE])
        values[2 * p + SUBSPACE] = whole[NAMES + k]
    sums = row[plan.at_sums : plan.at_sums + SUMS]
    values[2 * p + VARIANCE] = sums[EXPRESSED] / sums[LENGTH] if sums[LENGTH] > 0.0 else math.nan
    values[2 * p + SHARE] = corrupted / seen
    values[2 * p + RATIO] = size / length if length > 0.0 else 0.0
    scores[0] = values[2 * p + RATIO]
    scores[1] = values[2 * p + SHARE]


@inline
def _tell(
    plan: Plan, row: np.ndarray, whole: np.ndarray, seen: int, s: Scratch, values: np.ndarray, scores: np.ndarray
) -> None:
    """Estimates and scores of one sample, and what it adds to the sums behind them."""
    _express(plan, row, s)
    _publish(plan, row, whole, seen, s, values, scores)
    if whole[SEQ] <= plan.warmup + plan.settle:
        scores[0], scores[1] = math.nan, math.nan
    _remember(plan, row, s)


def make_room(plan: Plan) -> Space:
    """Work space of `arrange`."""
    return make_space(max(1, plan.reservoir), plan.dims, plan.rank)


@jit
def walk(
    first: int,
    plan: Plan,
    floats: np.ndarray,
    ints: np.ndarray,
    slots: np.ndarray,
    y: np.ndarray,
    s: Scratch,
    values: np.ndarray,
    scores: np.ndarray,
) -> int:
    """Answer for each sample from `first` on, then learn from it, up to one after which its key is to be clustered.

    Args:
        first: row to begin with.
        plan: of the bank.
        floats: float64[capacity, plan.floats].
        ints: int64[capacity, INTS].
        slots: int64[n].
        y: float64[n, p], NaN where missing.
        s: work space.
        values: float64[n, 2 p + EXTRA], NaN, result.
        scores: float64[n, 2], NaN, result.

    Returns:
        the row after which `arrange` is due for its key; n where there is none.
    """
    p = plan.dims
    for t in range(first, slots.shape[0]):
        row = floats[slots[t]]
        whole = ints[slots[t]]
        whole[SEQ] += 1
        held = whole[PHASE] == WARMING
        count = _hold(plan, row, whole, y[t], s) if held else 1
        for k in range(count):
            at = p * (k % plan.warmup)
            seen = _scale(plan, row, s.held[at : at + p] if held else y[t], s)
            if seen > 0:
                _code(plan, row, s)
                if not held:
                    _tell(plan, row, whole, seen, s, values[t], scores[t])
                _learn(plan, row, s)
                if plan.reservoir > 0 and count - k <= plan.warmup:
                    _keep(plan, row, whole, s)
            if held and (k + 1) % plan.warmup == 0:
                _settle(plan, row)
        if count > 0 and plan.reservoir > 0 and (whole[SEQ] - plan.warmup) % plan.period == 0:
            return t
    return int(slots.shape[0])


@jit
def arrange(plan: Plan, row: np.ndarray, whole: np.ndarray, s: Scratch, space: Space) -> None:
    """Cluster the reservoir of a key anew.

    Args:
        plan: of the bank.
        row: float64[plan.floats].
        whole: int64[INTS].
        s: work space.
        space: work space.
    """
    p, d = plan.dims, plan.rank
    if whole[FILLED] == 0:
        return
    basis = row[plan.at_basis : plan.at_basis + d * p]
    gram(basis, p, d, s.work.gram)
    whole[CLUSTERS], whole[SIZE] = cluster(
        row[plan.at_held :],
        whole[FILLED],
        basis,
        p,
        d,
        s.work.gram,
        plan.subspaces,
        whole[CLUSTERS],
        whole[SIZE],
        row[plan.at_pool :],
        whole[NAMES : NAMES + MOST],
        space,
    )
