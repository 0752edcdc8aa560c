"""From a raw sample to what is ranked: square roots and innovations of autoregressions where needed, scaled, in integer
steps.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.ranking import STEPS, quantise, radius
from kstream_worker.detectors.ranks_layout import (
    AT_AR_COV,
    AT_CENTER,
    AT_COEF,
    AT_LEVELS,
    AT_OFF,
    AT_RAW_CENTER,
    AT_RAW_SCALE,
    AT_RING,
    AT_ROOTED,
    AT_SCALE,
    AT_VOLATILITY,
    DIMS,
    LEVEL_COUNT,
    LEVEL_HEADER,
    LEVEL_TERMS,
    V_ROWS,
    singles,
)
from kstream_worker.detectors.volatility import MEAN_VARIANCE, VOL_TERMS, volatility_step
from kstream_worker.detectors.whitening import AR_CLIP, AR_COV, AR_ORDER, AR_TERMS, ar_shift, ar_step
from kstream_worker.models.scaling import quantile
from kstream_worker.numerics.jit import inline

ZEROS = 0.02  # share of zeros that makes a feature a count
HALF_WAY = 0.5 * AR_CLIP  # nine samples in a row beyond it move the range: a drift does not reach the edge
MOST_OFF = 100.0  # samples in a row outside the range of an autoregression: as many as scales are taken from


@inline
def root(value: float) -> float:
    """The square root of the size, with the sign: counts below zero, should they come, stay below."""
    size = math.sqrt(abs(value))
    return -size if value < 0.0 else size


@inline
def take_roots(raw: np.ndarray, state: np.ndarray, plan: np.ndarray, out: np.ndarray) -> None:
    """out[j] <- raw[j], or its root where that was decided at arming. `out` may be `raw`."""
    for j in range(plan[DIMS]):
        out[j] = root(raw[j]) if state[plan[AT_ROOTED] + j] == 1 else raw[j]


@inline
def wants_root(values: np.ndarray, n: int) -> bool:
    """Whether the first n values (reordered) look like counts, or like others that cannot be negative.

    None is negative, they are not such that rise and never fall (a total is no count), and one of these holds: all are
    whole numbers; one in 50 is 0 (two at least); the right tail is the longer one, (q90 + q10 - 2 q50) / (q90 - q10) >
    .2, and by two standard errors, 2.5 / sqrt(m), where m = n (1 - r) / (1 + r), r the correlation of neighbours: a
    level that wanders is skewed by chance. A square root makes the spread of counts the same at every level; it leaves
    features alone that are far from 0.
    """
    zeros = 0
    rises = 0
    falls = 0
    whole = True
    largest = 0.0
    for i in range(n):
        if values[i] < 0.0:
            return False
        if i > 0:
            rises += values[i] > values[i - 1]
            falls += values[i] < values[i - 1]
        zeros += values[i] == 0.0
        whole = whole and values[i] == math.floor(values[i])
        largest = max(largest, values[i])
    if rises > 0 and falls == 0:
        return False
    if whole or zeros >= max(2.0, ZEROS * n):
        return True
    independent = n * _independent_share(values, n, largest)
    low, middle, high = quantile(values, n, 0.1), quantile(values, n, 0.5), quantile(values, n, 0.9)
    return (high - middle) - (middle - low) > max(0.2, 2.5 / math.sqrt(independent)) * (high - low)


@inline
def _independent_share(values: np.ndarray, n: int, unit: float) -> float:
    """(1 - r) / (1 + r), r the correlation of neighbours, if positive; above 0."""
    mean = 0.0
    for i in range(n):
        mean += values[i] / unit
    mean /= n
    power = 0.0
    product = 0.0
    for i in range(n):
        off = values[i] / unit - mean
        power += off * off
        if i > 0:
            product += off * (values[i - 1] / unit - mean)
    r = min(max(product / power, 0.0), 0.999) if power > 0.0 else 0.0
    return (1.0 - r) / (1.0 + r)


@inline
def to_steps(sample: np.ndarray, row: np.ndarray, plan: np.ndarray, q: np.ndarray, z: np.ndarray) -> None:
    """Scale and round one sample.

    Args:
        sample: float64[>= d].
        row: the key's floats.
        plan: layout.
        q: int16[d + 1], filled: the sample in steps and, for d > 1, its radius.
        z: float64[>= d], filled: the same in units of scale.
    """
    for j in range(plan[DIMS]):
        q[j] = quantise((sample[j] - row[plan[AT_CENTER] + j]) / row[plan[AT_SCALE] + j])
        z[j] = q[j] / STEPS
    if plan[V_ROWS] > plan[DIMS]:
        q[plan[DIMS]] = radius(q, plan[DIMS])


@inline
def clip_raw(value: float, center: float, scale: float) -> float:
    """What an autoregression sees of a raw value: scaled, within +-50."""
    return min(max((value - center) / scale, -AR_CLIP), AR_CLIP)


@inline
def _move_range(value: float, j: int, row: np.ndarray, plan: np.ndarray) -> None:
    """The range that an autoregression sees lies around `value` from now on.

    A feature that has drifted out of its range looks to its autoregression as if it stood still: innovations shrink for
    ever, which would be alarmed for ever, and no change of the feature is seen.
    """
    row[plan[AT_RAW_CENTER] + j] = value
    row[plan[AT_OFF] + j] = 0.0
    for k in range(AR_ORDER):
        row[plan[AT_RING] + j * AR_ORDER + k] = 0.0
    _drop_stake(j, row, plan)


@inline
def _drop_stake(j: int, row: np.ndarray, plan: np.ndarray) -> None:
    """A feature whose range moves has no level that former coefficients, in former units, could know."""
    singles(row, plan[AT_LEVELS] + LEVEL_HEADER, LEVEL_TERMS * plan[LEVEL_COUNT])[LEVEL_TERMS * j] = 0.0


@inline
def _stays_out(s: float, ring: np.ndarray) -> bool:
    """Whether this sample and all that are remembered lie in the outer half of the range, and not at its edge."""
    out = 1 if HALF_WAY <= abs(s) < AR_CLIP else 0
    for former in ring:
        out += 1 if HALF_WAY <= abs(former) < AR_CLIP else 0
    return out == AR_ORDER + 1


@inline
def whiten_sample(
    raw: np.ndarray, full: bool, row: np.ndarray, plan: np.ndarray, out: np.ndarray, gain: np.ndarray
) -> None:
    """out[j] <- innovation of feature j of a raw sample, which its autoregression then learns.

    Where volatility comes in clusters it is in units of its predicted size. The range that the autoregression sees
    follows a feature that drifts.

    Args:
        raw: float64[>= d].
        full: whether eight samples came before it.
        row: the key's floats.
        plan: layout.
        out: float64[>= d], may be `raw`.
        gain: float64[>= 9], scratch.
    """
    for j in range(plan[DIMS]):
        ring = plan[AT_RING] + j * AR_ORDER
        s = clip_raw(raw[j], row[plan[AT_RAW_CENTER] + j], row[plan[AT_RAW_SCALE] + j])
        row[plan[AT_OFF] + j] = row[plan[AT_OFF] + j] + 1.0 if abs(s) >= AR_CLIP else 0.0
        if row[plan[AT_OFF] + j] >= MOST_OFF:
            _move_range(raw[j], j, row, plan)
            s = 0.0
        coef = plan[AT_COEF] + j * AR_TERMS
        cov = plan[AT_AR_COV] + j * AR_COV
        if full and _stays_out(s, row[ring : ring + AR_ORDER]):
            row[plan[AT_RAW_CENTER] + j] += s * row[plan[AT_RAW_SCALE] + j]
            ar_shift(s, row[ring : ring + AR_ORDER], row[coef : coef + AR_TERMS], row[cov : cov + AR_COV])
            _drop_stake(j, row, plan)
            s = 0.0
        e = ar_step(s, full, row[ring : ring + AR_ORDER], row[coef : coef + AR_TERMS], row[cov : cov + AR_COV], gain)
        vol = plan[AT_VOLATILITY] + j * VOL_TERMS
        out[j] = volatility_step(e, row[vol : vol + VOL_TERMS]) if row[vol + MEAN_VARIANCE] > 0.0 else e
