"""Seasons of a key: sines and cosines of its event time, learned from means of slots. Compiled.

Each period P has three harmonics sin, cos 2 pi h t / P, h = 1, 2, 3, of civil time t, so that gaps do no harm.
Samples are averaged over slots of a 24th of the shortest period; with every slot that ends, recursive least squares
learn it (all features share one covariance, as their regressors are the same). A slot counts once however many samples
it has: neighbouring samples are dependent, and a part of the day that was seen more often must not outweigh the rest.
For sines, least squares that ignore the dependence of what is left are asymptotically as good as any (Grenander,
Rosenblatt, Statistical Analysis of Stationary Time Series, 1957); an autoregression then takes that dependence out.
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
    SLOTS_PER_PERIOD,
    TERMS_PER_PERIOD,
)
from kstream_worker.models import scaling
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.math import sincos_of_turns

PRIOR = 1.0  # variance of a coefficient in scales before anything was seen; of the intercept 100
INTERCEPT_PRIOR = 100.0
CLIP = 6.0
MISSING = -32768
UNIT = 4096.0  # steps in which hourly means are kept


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


@inline
def seen_once(civil: int, state: np.ndarray, plan: np.ndarray) -> bool:
    """Whether so much was seen as the longest given period is long; True before there are seasons."""
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
    if plan[SEASON_AUTO] == 0:
        # A gap shows nothing of a season, nor does a time far ahead, of which the next sample knows nothing.
        state[SEASON_FIRST] = min(state[SEASON_FIRST] + _unseen(slot - state[SLOT], plan), civil)
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
def _unseen(slots: int, plan: np.ndarray) -> int:
    """Milliseconds without a sample between two slots so far apart, where they are the shortest period at least."""
    return int((slots - 1) * plan[SLOT_MS]) if slots > SLOTS_PER_PERIOD else 0


@inline
def _open_history(shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Slots that were skipped hold nothing."""
    ahead = state[SLOT] - state[SLOT_LATEST]
    state[SEASON_FIRST] += _unseen(ahead, plan)
    skipped = min(ahead - 1, SEASON_SLOTS)
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
