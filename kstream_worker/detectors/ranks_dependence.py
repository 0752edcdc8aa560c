"""What the rank detector does about serial dependence when it is armed: tests, autoregressions, sizes. Compiled.

The first two thirds of a warm-up are tested, feature by feature. With `auto`, where levels or squares are dependent
in any feature, all pass through autoregressions. Where volatility comes in clusters, innovations are divided by a
predicted size, if that takes the clusters away: where it does not, size is not what goes on as predicted, and to divide
by it would only hide changes. What is left is tested again, and said.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.dependence import ENOUGH, INNOVATIONS, RAW, SQUARES, critical, unit_root_critical
from kstream_worker.detectors.ranks_layout import (
    AT_AR_COV,
    AT_COEF,
    AT_RAW_CENTER,
    AT_RAW_SCALE,
    AT_RING,
    AT_VOLATILITY,
    AUTO,
    DEPENDENCE,
    DIMS,
    LEFT_OVER,
    LEVELS_LEFT,
    NOT_STATIONARY,
    NOTHING_LEFT,
    SEASONS,
    SQUARES_LEFT,
    STATIONARY,
    UNIT_ROOTS,
    VOLATILE,
    WHITEN,
    WHITENED,
)
from kstream_worker.detectors.ranks_levels import start_levels
from kstream_worker.detectors.ranks_sample import clip_raw, whiten_sample
from kstream_worker.detectors.volatility import MEAN_VARIANCE, VOL_TERMS, start_volatility, volatility_step
from kstream_worker.detectors.whitening import (
    AR_COV,
    AR_ORDER,
    AR_TERMS,
    ar_reset,
    clipped_squares,
    ljung_box,
    unit_root_t,
)
from kstream_worker.models import scaling
from kstream_worker.numerics.jit import inline, jit

WHITEN_LEVEL = 0.2  # lenient: to whiten independent samples by mistake costs nothing measurable
CLUSTERS_LEVEL = 0.02  # of squares: a stricter test of a few hundred samples misses clusters often
OTHERS_LEVEL = 0.2  # of the squares of other features, once some have clusters
WITHOUT_TEST = 1.0  # once more than half have them
LEVELS_LEVEL = 0.001  # of what is left
WORSE = 3.0  # standard deviations of a fair coin's heads
SQUARES_LEVEL = 0.01


@jit
def whiten_warmup(samples: np.ndarray, n: int, test: int, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Test a warm-up; where it is to be whitened, replace the samples by innovations. Notes what was done and is left.

    Args:
        samples: float64[n * d], those that are kept; overwritten where they are whitened.
        n: their number.
        test: how many of the first are tested.
        row: the key's floats.
        state: the key's integers.
        plan: layout.
    """
    values = np.empty(n)
    dependent = _dependent(samples, test, row, plan, values)
    state[VOLATILE] = 0
    state[UNIT_ROOTS] = 0
    whitened = plan[DEPENDENCE] == WHITEN or (plan[DEPENDENCE] == AUTO and (dependent or state[SEASONS] != 0))
    state[WHITENED] = 1 if whitened else 0
    # Of innovations the second half of the tested part and the rest: the first are those of a model yet untaught.
    first = 0
    if whitened:
        first = test // 2
        _whiten(samples, n, row, plan)
        rooted = np.zeros(plan[DIMS], dtype=np.bool_)
        _find_unit_roots(samples, first, n, rooted, row, state, plan, values)
        if plan[DEPENDENCE] == AUTO:
            _scale_sizes(samples, first, n, CLUSTERS_LEVEL / plan[DIMS], row, state, plan, values)
            if state[VOLATILE] > 0:
                _scale_sizes(samples, first, n, OTHERS_LEVEL, row, state, plan, values)
            if 2 * state[VOLATILE] > plan[DIMS]:
                _scale_sizes(samples, first, n, WITHOUT_TEST, row, state, plan, values)
        start_levels(samples, first, n, rooted, row, plan)
    state[LEFT_OVER] = _left_over(samples, first, n if whitened else test, row, state, plan, values)


@jit
def season_harms(
    without: np.ndarray, samples: np.ndarray, n: int, test: int, row: np.ndarray, plan: np.ndarray
) -> bool:
    """Whether taking a season out makes innovations larger at most samples of more features than it makes them smaller.

    Harmonics cut the corners of a day that has edges: where the series itself was level, and easily predicted, they
    leave a wave. By how much a sample's innovation is larger does not count (an edge less than an hour wide is large
    either way), only at how many samples, beyond `WORSE` standard deviations of chance.

    Args:
        without: float64[n * d], a warm-up less the season.
        samples: float64[n * d], with it.
        n: samples.
        test: how many of the first are tested; the first half of these teaches the autoregressions.
        row: the key's floats; scales and autoregressions are overwritten.
        plan: layout.
    """
    d = plan[DIMS]
    first = test // 2
    sizes = _sizes(samples, n, test, row, plan)
    others = _sizes(without, n, test, row, plan)
    harmed = 0
    for j in range(d):
        larger = 0
        for i in range(first, n):
            larger += (1 if others[i, j] > sizes[i, j] else 0) - (1 if others[i, j] < sizes[i, j] else 0)
        if abs(larger) > WORSE * math.sqrt(1.0 * (n - first)):
            harmed += 1 if larger > 0 else -1
    return harmed > 0


@inline
def _sizes(samples: np.ndarray, n: int, test: int, row: np.ndarray, plan: np.ndarray) -> np.ndarray:
    """Sizes of innovations in the samples' own units, float64[n, d]."""
    d = plan[DIMS]
    _dependent(samples, test, row, plan, np.empty(n))
    innovations = samples.copy()
    _whiten(innovations, n, row, plan)
    sizes = np.empty((n, d))
    for i in range(n):
        for j in range(d):
            sizes[i, j] = abs(innovations[i * d + j]) * row[plan[AT_RAW_SCALE] + j]
    return sizes


@inline
def _dependent(samples: np.ndarray, n: int, row: np.ndarray, plan: np.ndarray, values: np.ndarray) -> bool:
    """Fix the scales that the tests use; whether levels or squares of any feature are dependent in the first n."""
    d = plan[DIMS]
    found = False
    work = np.empty(n)
    for j in range(d):
        for i in range(n):
            values[i] = samples[i * d + j]
        center, scale = scaling.center_and_scale(values, n)
        row[plan[AT_RAW_CENTER] + j] = center
        row[plan[AT_RAW_SCALE] + j] = scale
        for i in range(n):
            values[i] = clip_raw(samples[i * d + j], center, scale)
        if ljung_box(values, n) > critical(RAW, n, WHITEN_LEVEL / d):
            found = True
        clipped_squares(values, n, work)
        if ljung_box(values, n) > critical(SQUARES, n, CLUSTERS_LEVEL / d):
            found = True
    return found


@inline
def _whiten(samples: np.ndarray, n: int, row: np.ndarray, plan: np.ndarray) -> None:
    """All samples through fresh autoregressions."""
    d = plan[DIMS]
    for j in range(d):
        ring = plan[AT_RING] + j * AR_ORDER
        coef = plan[AT_COEF] + j * AR_TERMS
        cov = plan[AT_AR_COV] + j * AR_COV
        for k in range(VOL_TERMS):
            row[plan[AT_VOLATILITY] + j * VOL_TERMS + k] = 0.0
        ar_reset(row[ring : ring + AR_ORDER], row[coef : coef + AR_TERMS], row[cov : cov + AR_COV])
    gain = np.empty(AR_TERMS)
    for i in range(n):
        sample = samples[i * d : (i + 1) * d]
        whiten_sample(sample, i >= AR_ORDER, row, plan, sample, gain)


@inline
def _find_unit_roots(
    samples: np.ndarray,
    first: int,
    n: int,
    rooted: np.ndarray,
    row: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    values: np.ndarray,
) -> None:
    """Note the features whose autoregression may have a unit root; their innovations are ranked all the same."""
    d = plan[DIMS]
    if n < ENOUGH:
        return
    limit = unit_root_critical(n)
    for j in range(d):
        for i in range(first, n):
            values[i - first] = samples[i * d + j]
        coef = plan[AT_COEF] + j * AR_TERMS
        cov = plan[AT_AR_COV] + j * AR_COV
        t = unit_root_t(row[coef : coef + AR_TERMS], row[cov : cov + AR_COV], values, n - first)
        if t >= limit:
            rooted[j] = True
            state[UNIT_ROOTS] += 1
    if state[UNIT_ROOTS] > 0:
        state[STATIONARY] = max(state[STATIONARY], NOT_STATIONARY)


@inline
def _scale_sizes(
    samples: np.ndarray,
    first: int,
    n: int,
    level: float,
    row: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    values: np.ndarray,
) -> None:
    """Divide the innovations of features whose squares are dependent by their predicted size, if it makes them good."""
    d = plan[DIMS]
    m = n - first
    work = np.empty(m)
    scaled = np.empty(n)
    for j in range(d):
        vol = row[plan[AT_VOLATILITY] + j * VOL_TERMS : plan[AT_VOLATILITY] + (j + 1) * VOL_TERMS]
        for i in range(m):
            values[i] = samples[(first + i) * d + j]
        clipped_squares(values, m, work)
        limit = critical(SQUARES, m, level) if level < WITHOUT_TEST else 0.0
        if vol[MEAN_VARIANCE] > 0.0 or ljung_box(values, m) <= limit:
            continue
        for i in range(m):
            values[i] = samples[(first + i) * d + j]
        start_volatility(values, m, vol)
        if vol[MEAN_VARIANCE] == 0.0:
            continue
        for i in range(n):
            scaled[i] = volatility_step(samples[i * d + j], vol)
        for i in range(m):
            values[i] = scaled[first + i]
        clipped_squares(values, m, work)
        if ljung_box(values, m) > critical(SQUARES, m, CLUSTERS_LEVEL / d):
            vol[:] = 0.0
            continue
        for i in range(n):
            samples[i * d + j] = scaled[i]
        state[VOLATILE] += 1


@inline
def _left_over(
    samples: np.ndarray,
    first: int,
    last: int,
    row: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    values: np.ndarray,
) -> int:
    """What the series that will be ranked still show: dependence of levels, of squares, or nothing."""
    d = plan[DIMS]
    m = last - first
    work = np.empty(m)
    found = NOTHING_LEFT
    for j in range(d):
        for i in range(m):
            value = samples[(first + i) * d + j]
            if state[WHITENED] == 0:
                value = clip_raw(value, row[plan[AT_RAW_CENTER] + j], row[plan[AT_RAW_SCALE] + j])
            values[i] = value
        # Levels that `auto` left as they are were found independent already, at a more lenient level.
        if plan[DEPENDENCE] != AUTO or state[WHITENED] == 1:
            limit = critical(INNOVATIONS if state[WHITENED] == 1 else RAW, m, LEVELS_LEVEL / d)
            if ljung_box(values, m) > limit:
                return LEVELS_LEFT
        clipped_squares(values, m, work)
        if ljung_box(values, m) > critical(SQUARES, m, SQUARES_LEVEL / d):
            found = SQUARES_LEFT
    return found
