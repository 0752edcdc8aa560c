"""Seasons of a key: sines and cosines of its event time, learned from means of slots. Compiled.

Each period P has three harmonics sin, cos 2 pi h t / P, h = 1, 2, 3, of civil time t, so that gaps do no harm.
Samples are averaged over slots of a 24th of the shortest period; with every slot that ends, recursive least squares
learn it (all features share one covariance, as their regressors are the same). A slot counts once however many samples
it has: neighbouring samples are dependent, and a part of the day that was seen more often must not outweigh the rest.
For sines, least squares that ignore the dependence of what is left are asymptotically as good as any (Grenander,
Rosenblatt, Statistical Analysis of Stationary Time Series, 1957); an autoregression then takes that dependence out.

`SEASON_AUTO`: the hourly means of three weeks are kept, and a day, then a week, is tested for once three of it were
seen: F statistic of its six terms in a regression on an intercept, two former means, and the terms of the day when the
week is tested. Besides, its terms must have made the predictions of the last period better by a tenth.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.ranks_layout import (
    AT_SEASON_CENTER,
    AT_SEASON_COEF,
    AT_SEASON_COV,
    AT_SEASON_HISTORY,
    AT_SEASON_SCALE,
    AT_SLOT,
    DIMS,
    PERIOD,
    PERIODS,
    SEASON_AUTO,
    SEASON_FIRST,
    SEASON_SLOTS,
    SEASON_STARTED,
    SEASON_TERMS,
    SEASON_TESTED,
    SEASONS,
    SLOT,
    SLOT_LATEST,
    SLOT_MS,
    SLOT_N,
    TERMS_PER_PERIOD,
)
from kstream_worker.models import scaling
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log, sincos_of_turns

PRIOR = 1.0  # variance of a coefficient in scales before anything was seen; of the intercept 100
INTERCEPT_PRIOR = 100.0
CLIP = 6.0
MISSING = -32768
UNIT = 4096.0  # steps in which hourly means are kept
LAGS = 2  # former hourly means in the regression that tests
DAY_SPAN = 3 * 24  # hours that must have been seen: three whole periods
WEEK_SPAN = 3 * 168
GAIN = 0.9  # over the last period, squared errors with the season may be so much of those without it
LEVEL = 1e-4  # of each test, for normal autoregressive noise


@inline
def season_terms(civil: int, plan: np.ndarray, terms: np.ndarray) -> None:
    """Fill 1 and the harmonics of all periods at a civil time.

    Args:
        civil: milliseconds.
        plan: layout.
        terms: float64[>= plan[SEASON_TERMS]], filled.
    """
    terms[0] = 1.0
    for p in range(plan[PERIODS]):
        period = plan[PERIOD + p]
        s1, c1 = sincos_of_turns((civil % period) / period)
        at = 1 + p * TERMS_PER_PERIOD
        terms[at] = s1
        terms[at + 1] = c1
        terms[at + 2] = 2.0 * s1 * c1
        terms[at + 3] = c1 * c1 - s1 * s1
        terms[at + 4] = terms[at + 2] * c1 + terms[at + 3] * s1
        terms[at + 5] = terms[at + 3] * c1 - terms[at + 2] * s1


@inline
def take_season_out(
    raw: np.ndarray, civil: int, row: np.ndarray, state: np.ndarray, plan: np.ndarray, terms: np.ndarray
) -> None:
    """raw[j] <- raw[j] less the season of feature j at that time, as far as seasons are in use.

    Args:
        raw: float64[>= d], changed.
        civil: milliseconds.
        row: the key's floats.
        state: the key's integers.
        plan: layout.
        terms: scratch.
    """
    if state[SEASONS] == 0:
        return
    season_terms(civil, plan, terms)
    for j in range(plan[DIMS]):
        coef = plan[AT_SEASON_COEF] + j * plan[SEASON_TERMS]
        value = 0.0
        for p in range(plan[PERIODS]):
            if state[SEASONS] >> p & 1:
                for i in range(1 + p * TERMS_PER_PERIOD, 1 + (p + 1) * TERMS_PER_PERIOD):
                    value += row[coef + i] * terms[i]
        raw[j] -= row[plan[AT_SEASON_SCALE] + j] * value


@inline
def start_seasons(
    samples: np.ndarray, n: int, first: int, row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray
) -> None:
    """Fix the units of the seasons from a first warm-up; nothing is learned yet.

    Args:
        samples: float64[n * d].
        n: samples.
        first: civil time of the first, milliseconds.
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers.
        plan: layout.
    """
    d = plan[DIMS]
    values = np.empty(n)
    for j in range(d):
        for i in range(n):
            values[i] = samples[i * d + j]
        row[plan[AT_SEASON_CENTER] + j], row[plan[AT_SEASON_SCALE] + j] = scaling.center_and_scale(values, n)
    terms = plan[SEASON_TERMS]
    reset_least_squares(row[plan[AT_SEASON_COV] :], terms, PRIOR)
    row[plan[AT_SEASON_COV]] = INTERCEPT_PRIOR
    for i in range(d * terms):
        row[plan[AT_SEASON_COEF] + i] = 0.0
    for i in range(d + 1):
        row[plan[AT_SLOT] + i] = 0.0
    state[SEASON_STARTED] = 1
    state[SEASON_FIRST] = first
    state[SEASON_TESTED] = 0
    state[SLOT] = first // plan[SLOT_MS]
    state[SLOT_LATEST] = state[SLOT] - 1
    state[SLOT_N] = 0
    state[SEASONS] = 0
    if plan[SEASON_AUTO] == 1:
        for i in range(d * SEASON_SLOTS):
            shorts[plan[AT_SEASON_HISTORY] + i] = MISSING
    else:
        state[SEASONS] = (1 << plan[PERIODS]) - 1


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
def seen_once(civil: int, state: np.ndarray, plan: np.ndarray) -> bool:
    """Whether the longest given period has passed since the key's first sample; True before there are seasons."""
    longest = 0
    for p in range(plan[PERIODS]):
        longest = max(longest, plan[PERIOD + p])
    waits = plan[PERIODS] > 0 and plan[SEASON_AUTO] == 0 and state[SEASON_STARTED] == 1
    return bool(not waits or civil >= state[SEASON_FIRST] + longest)


@inline
def forget_half(row: np.ndarray, plan: np.ndarray) -> None:
    """After an alarm: what was learned counts half, and the level is open again. The shape of the season stays."""
    terms = plan[SEASON_TERMS]
    cov = row[plan[AT_SEASON_COV] : plan[AT_SEASON_COEF]]
    for i in range(1, terms):
        if cov[i * (i + 1) // 2 + i] > 0.5 * PRIOR:
            return
    for i in range(terms * (terms + 1) // 2):
        cov[i] *= 2.0
    cov[0] = INTERCEPT_PRIOR


@inline
def learn_season(
    raw: np.ndarray,
    civil: int,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    terms: np.ndarray,
    gain: np.ndarray,
) -> bool:
    """Add a sample to its slot; the slot before it is learned when it ends.

    Args:
        raw: float64[>= d].
        civil: milliseconds.
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers.
        plan: layout.
        terms: scratch.
        gain: scratch.

    Returns:
        whether a slot ended.
    """
    d = plan[DIMS]
    slot = civil // plan[SLOT_MS]
    ended = state[SLOT_N] > 0 and slot != state[SLOT]
    if ended:
        _end_slot(row, shorts, state, plan, terms, gain)
    state[SLOT] = slot
    state[SLOT_N] += 1
    for j in range(d):
        z = (raw[j] - row[plan[AT_SEASON_CENTER] + j]) / row[plan[AT_SEASON_SCALE] + j]
        row[plan[AT_SLOT] + j] += min(max(z, -CLIP), CLIP)
    row[plan[AT_SLOT] + d] += civil - slot * plan[SLOT_MS]
    return bool(ended)


@inline
def _end_slot(
    row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray, terms: np.ndarray, gain: np.ndarray
) -> None:
    d = plan[DIMS]
    n = plan[SEASON_TERMS]
    sums = row[plan[AT_SLOT] : plan[AT_SLOT] + d + 1]
    cov = row[plan[AT_SEASON_COV] : plan[AT_SEASON_COEF]]
    season_terms(state[SLOT] * plan[SLOT_MS] + int(sums[d] / state[SLOT_N]), plan, terms)
    spread = gain_of(cov, terms, n, gain)
    newest = plan[SEASON_AUTO] == 1 and state[SLOT] > state[SLOT_LATEST]
    if newest:
        _open_history(shorts, state, plan)
    for j in range(d):
        mean = sums[j] / state[SLOT_N]
        coef = row[plan[AT_SEASON_COEF] + j * n : plan[AT_SEASON_COEF] + (j + 1) * n]
        error = mean
        for i in range(n):
            error -= coef[i] * terms[i]
        for i in range(n):
            coef[i] += gain[i] * error / spread
        if newest:
            at = plan[AT_SEASON_HISTORY] + j * SEASON_SLOTS + state[SLOT] % SEASON_SLOTS
            shorts[at] = np.int16(math.floor(mean * UNIT + 0.5))
    shrink(cov, gain, spread, n)
    for j in range(d + 1):
        sums[j] = 0.0
    state[SLOT_N] = 0


@inline
def _open_history(shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Slots that were skipped hold nothing."""
    skipped = min(state[SLOT] - state[SLOT_LATEST] - 1, SEASON_SLOTS)
    for k in range(skipped):
        at = (state[SLOT] - 1 - k) % SEASON_SLOTS
        for j in range(plan[DIMS]):
            shorts[plan[AT_SEASON_HISTORY] + j * SEASON_SLOTS + at] = MISSING
    state[SLOT_LATEST] = state[SLOT]


@inline
def reset_least_squares(cov: np.ndarray, n: int, prior: float) -> None:
    """P = prior I, lower triangle by rows."""
    for i in range(n * (n + 1) // 2):
        cov[i] = 0.0
    for i in range(n):
        cov[i * (i + 1) // 2 + i] = prior


@inline
def gain_of(cov: np.ndarray, h: np.ndarray, n: int, gain: np.ndarray) -> float:
    """gain <- P h; returns 1 + h' P h.

    Args:
        cov: float64[>= n (n + 1) / 2], P, lower triangle by rows.
        h: float64[>= n].
        n: regressors.
        gain: float64[>= n], filled.
    """
    at = 0
    for i in range(n):
        total = 0.0
        for j in range(i + 1):
            total += cov[at + j] * h[j]
        gain[i] = total
        for j in range(i):
            gain[j] += cov[at + j] * h[i]
        at += i + 1
    spread = 1.0
    for i in range(n):
        spread += h[i] * gain[i]
    return spread


@inline
def shrink(cov: np.ndarray, gain: np.ndarray, spread: float, n: int) -> None:
    """P <- P - gain gain' / spread."""
    at = 0
    for i in range(n):
        a = gain[i] / spread
        for j in range(i + 1):
            cov[at + j] -= a * gain[j]
        at += i + 1


@inline
def test_is_due(state: np.ndarray, plan: np.ndarray) -> bool:
    """Whether so much more was seen that a season may show: after 3 and 7 days, then every week."""
    if plan[SEASON_AUTO] == 0 or state[SEASONS] == 3:
        return False
    tested = state[SEASON_TESTED]
    due = DAY_SPAN if tested < DAY_SPAN else tested // 168 * 168 + 168
    return bool(state[SLOT_LATEST] - state[SEASON_FIRST] // plan[SLOT_MS] >= due)


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
    if free < 10 or rss[1] <= 1e-12 * used:
        return bool(free >= 10 and rss[0] > 1e-9 * used)
    f = (rss[0] - rss[1]) / TERMS_PER_PERIOD / (rss[1] / free)
    # The chi-square quantile of 6 degrees at 1e-4 / d, and what an F quantile adds to it at so few degrees.
    limit = (27.86 + 2.3 * log(1.0 * plan[DIMS])) / TERMS_PER_PERIOD * (1.0 + 13.0 / free)
    return bool(f > limit and missed[1] < GAIN * missed[0])
