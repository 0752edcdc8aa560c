"""Seasons are looked for, where none are given, and taken out of a warm-up. Compiled.

The hourly means of three weeks are kept, and a day, then a week, is tested for once three of it were seen: F statistic
of its six terms in a regression on an intercept, two former means, and the terms of the day when the week is tested.
Besides, its terms must have made the predictions of the last period better by a tenth.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.ranks_layout import (
    AT_SEASON_HISTORY,
    DIMS,
    LEFT_IN,
    PERIOD,
    SEASON_AUTO,
    SEASON_FIRST,
    SEASON_SLOTS,
    SEASON_STARTED,
    SEASON_TERMS,
    SEASON_TESTED,
    SEASONS,
    SLOT_LATEST,
    SLOT_MS,
    TERMS_PER_PERIOD,
)
from kstream_worker.detectors.seasons import (
    MISSING,
    UNIT,
    gain_of,
    learn_season,
    reset_least_squares,
    season_terms,
    seen_once,
    shrink,
    start_seasons,
    take_season_out,
)
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

LAGS = 2  # former hourly means in the regression that tests
DAY_SPAN = 3 * 24  # hours that must have been seen: three whole periods
WEEK_SPAN = 3 * 168
LEAST_FREE = 48  # degrees of freedom of a test: with fewer its limit is too low, by half at 12
GAIN = 0.9  # over the last period, squared errors with the season may be so much of those without it


@jit
def take_seasons_out(
    samples: np.ndarray, times: np.ndarray, row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray
) -> bool:
    """Take seasons out of a warm-up; False where given ones have not been seen once, and it must go on.

    Args:
        samples: float64[n * d], changed.
        times: int64[n], their civil times.
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers.
        plan: layout.
    """
    d = plan[DIMS]
    terms, gain = np.empty(plan[SEASON_TERMS]), np.empty(plan[SEASON_TERMS])
    if state[SEASON_STARTED] == 0:
        start_seasons(samples, len(times), times[0], row, shorts, state, plan)
        for i in range(len(times)):
            learn_season(samples[i * d : (i + 1) * d], times[i], row, shorts, state, plan, terms, gain)
    if plan[SEASON_AUTO] == 1:
        if test_is_due(state, plan):
            find_seasons(shorts, state, plan)
    elif not seen_once(times[-1], state, plan):
        return False
    for i in range(len(times)):
        take_season_out(samples[i * d : (i + 1) * d], times[i], row, state, plan, terms)
    return True


@inline
def test_is_due(state: np.ndarray, plan: np.ndarray) -> bool:
    """Whether so much more was seen that a season may show: after 3 and 7 days, then every week."""
    if plan[SEASON_AUTO] == 0 or state[SEASONS] == 3:
        return False
    tested = state[SEASON_TESTED]
    due = DAY_SPAN if tested < DAY_SPAN else tested // 168 * 168 + 168
    return bool(state[SLOT_LATEST] - state[SEASON_FIRST] // plan[SLOT_MS] >= due)


@inline
def leave_in(state: np.ndarray) -> None:
    """What was found is of no use: it stays in, and is not looked for again."""
    state[SEASONS] = 0
    state[SEASON_TESTED] = LEFT_IN


@jit
def find_seasons(shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> bool:
    """Test the history for a day and a week; what is found is in use from now on. Returns whether something was."""
    seen = state[SLOT_LATEST] - state[SEASON_FIRST] // plan[SLOT_MS]
    state[SEASON_TESTED] = seen
    former = state[SEASONS]
    for p in range(2):
        span = DAY_SPAN if p == 0 else WEEK_SPAN
        if seen < span or former >> p & 1:
            continue
        for j in range(plan[DIMS]):
            if _shows(shorts, j, p, state, plan):
                state[SEASONS] |= 1 << p
    return bool(state[SEASONS] != former)


@inline
def _shows(shorts: np.ndarray, j: int, p: int, state: np.ndarray, plan: np.ndarray) -> bool:
    """Whether period p shows in the history of feature j: beyond chance, and by better predictions of the last one."""
    small = 1 + LAGS + p * TERMS_PER_PERIOD
    large = small + TERMS_PER_PERIOD
    rss = np.zeros(2)
    missed = np.zeros(2)
    period = plan[PERIOD + p] // plan[SLOT_MS]
    cov = np.zeros((2, large * (large + 1) // 2))
    coef = np.zeros((2, large))
    h, gain, terms = np.empty(large), np.empty(large), np.empty(plan[SEASON_TERMS])
    for k in range(2):
        reset_least_squares(cov[k], small if k == 0 else large, 100.0)
    former = np.zeros(LAGS)
    used = -LAGS
    for back in range(SEASON_SLOTS - 1, -1, -1):
        slot = state[SLOT_LATEST] - back
        step = shorts[plan[AT_SEASON_HISTORY] + j * SEASON_SLOTS + slot % SEASON_SLOTS]
        if step == MISSING:
            continue
        y = step / UNIT
        if used >= 0:
            season_terms(slot * plan[SLOT_MS] + plan[SLOT_MS] // 2, plan, terms)
            h[0] = 1.0
            h[1 : 1 + LAGS] = former
            h[1 + LAGS :] = terms[1 : 1 + (p + 1) * TERMS_PER_PERIOD]
            for k in range(2):
                n = small if k == 0 else large
                spread = gain_of(cov[k], h, n, gain)
                error = y
                for i in range(n):
                    error -= coef[k, i] * h[i]
                for i in range(n):
                    coef[k, i] += gain[i] * error / spread
                shrink(cov[k], gain, spread, n)
                rss[k] += error * error / spread
                if back < period:
                    missed[k] += error * error
        used += 1
        former[1] = former[0]
        former[0] = y
    free = used - large
    if free < LEAST_FREE or rss[1] <= 1e-12 * used:
        return bool(free >= LEAST_FREE and rss[0] > 1e-9 * used)
    f = (rss[0] - rss[1]) / TERMS_PER_PERIOD / (rss[1] / free)
    # The chi-square quantile of 6 degrees at 1e-4 / d, and what an F quantile adds to it at so few degrees.
    limit = (27.86 + 2.3 * log(1.0 * plan[DIMS])) / TERMS_PER_PERIOD * (1.0 + 13.0 / free)
    return bool(f > limit and missed[1] < GAIN * missed[0])
