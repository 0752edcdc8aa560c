"""Lasting shifts of features that return slowly to their level. Compiled.

Whitened by an autoregression with lag coefficients of sum s, a shift of the level is a jump of one innovation and from
then on a shift by (1 - s) of its size: of AR(1) .9 and one standard deviation, .23 of the innovations'. Three things
hide so little from ranks: the bag takes it in (of 1,000 samples a quarter after 300), so does the autoregression (the
younger, the faster), and bets made for it share their weight with many. Each such feature therefore has a column of two
bets that are made for that size,

    R <- (R + a) (1 +- c z - c t),

z the error of a prediction by *former* coefficients, those of 256 to 511 samples ago (as far as there were any), in
units of its root mean square m, within +-.96 / c, and c = .85 (1 - s) / m, the shift by .85 warm-up scales (.2 at
most).

As far as coefficients are true, errors have the mean 0 given the past whatever the law, z nearly, and the multipliers
the mean 1 - c t. (Of a skewed law z has less of the long tail than of the short one: a mean of -.0022 for exponential
innovations and c = .2, -.029 for those that are lognormal; for c = .1 +.001 and -.004. Within +-4 whatever c is, it
would be -.007 and -.045: next to a small c that is a shift.)
The level, learned from n samples, has in units of innovations the standard error 1 / sqrt(n), and what one bet must
reach, X, may be reached by an error as well: the likelier, the larger log X is against c sqrt(n). So t sqrt(n) is the
larger one of .7 and .072 (log X - 10.2) / c: simulated for autoregressions of .6 to .95, normal and t3, between 600 and
5,000 samples and with X up to 1e7, a bet then raises at most two and a half times as many false alarms as one of mean 1
that must reach X, and the detector as a whole fewer than stated. n counts up to 8,192: a mean of z that is not quite 0
does not vanish with more samples, and t must not, either.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.ranks_layout import (
    AT_COEF,
    AT_FAIR_FACTORS,
    AT_LEVELS,
    AT_R,
    AT_RAW_CENTER,
    AT_RAW_SCALE,
    AT_RING,
    AT_VALUES,
    AT_VOLATILITY,
    BETS,
    FACTORS,
    FAIR,
    LEVEL,
    LEVEL_BETS,
    LEVEL_COUNT,
    LEVEL_HEADER,
    LEVEL_TERMS,
    LEVEL_WEIGHT,
    PAYOFFS,
    PERSISTENT,
    R_LEVEL,
    UPWARD,
    singles,
)
from kstream_worker.detectors.ranks_sample import clip_raw
from kstream_worker.detectors.volatility import MEAN_VARIANCE, VARIANCE, VOL_TERMS
from kstream_worker.detectors.whitening import AR_ORDER, AR_TERMS
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

# Behind PERSISTENT: samples that were whitened, those that the coefficients in use and the next ones have learned.
SEEN, USED, NEXT = 1, 2, 3
STAKE, POWER, OLD, NEW = 0, 1, 2, 11  # of a feature: c, 0 where there are no bets; m^2; coefficients in use, next ones

RENEWED = 256  # samples from one copy to the next
SHIFT = 0.85  # warm-up scales
MOST_STAKE = 0.2
FASTEST, SLOWEST = 0.7, 0.05  # of (1 - s) / m: above, ranks do as well; below, nothing would be seen
MOST_LOSS = 0.96  # of a bet by one sample: no multiplier is below 0
TOLERANCE, RARER, COMMON = 0.7, 0.072, 10.2  # t sqrt(n), see above
MEMORY = 8192.0  # samples that m^2 follows, and that a level is known by at most
LEAST_POWER = 1e-24  # a feature that stands still
FEWEST = 300  # samples of a warm-up: before, a level is not known well enough


@inline
def of_feature(j: int, row: np.ndarray, plan: np.ndarray) -> np.ndarray:
    """float32[LEVEL_TERMS], a view: what bets on the level of feature j need."""
    at = plan[AT_LEVELS] + LEVEL_HEADER
    return singles(row, at, LEVEL_TERMS * plan[LEVEL_COUNT])[LEVEL_TERMS * j : LEVEL_TERMS * (j + 1)]


@inline
def start_levels(
    samples: np.ndarray, first: int, n: int, rooted: np.ndarray, row: np.ndarray, plan: np.ndarray
) -> None:
    """From a whitened warm-up choose the features whose level is bet on, and the stakes.

    Args:
        samples: float64[n * d], what is ranked: innovations, or those in units of their predicted size.
        first: the first sample whose autoregression had been taught.
        n: samples.
        rooted: bool[d], whether a unit root was not rejected: there is no level then.
        row: the key's floats.
        plan: layout.
    """
    d = plan[LEVEL_COUNT]
    row[plan[AT_LEVELS] : plan[AT_LEVELS] + LEVEL_HEADER] = 0.0
    for j in range(d):
        own = of_feature(j, row, plan)
        own[:] = 0.0
        power = 0.0
        for i in range(first, n):
            power += samples[i * d + j] * samples[i * d + j]
        power /= n - first
        if rooted[j] or n < FEWEST or power <= LEAST_POWER:
            continue
        variance = row[plan[AT_VOLATILITY] + j * VOL_TERMS + MEAN_VARIANCE]
        pull = 1.0
        for i in range(1, AR_TERMS):
            pull -= row[plan[AT_COEF] + j * AR_TERMS + i]
        pull /= math.sqrt(variance if variance > 0.0 else power)
        if SLOWEST <= pull < FASTEST:
            own[STAKE] = min(SHIFT * pull, MOST_STAKE)
            own[POWER] = power
            row[plan[AT_LEVELS] + PERSISTENT] += 1.0
    row[plan[AT_LEVELS] + SEEN] = n
    _copy(row, plan)
    _copy(row, plan)


@inline
def _copy(row: np.ndarray, plan: np.ndarray) -> None:
    """The next coefficients come into use, the present ones are the next."""
    levels = row[plan[AT_LEVELS] : plan[AT_LEVELS] + LEVEL_HEADER]
    levels[USED] = levels[NEXT]
    levels[NEXT] = levels[SEEN]
    for j in range(plan[LEVEL_COUNT]):
        own = of_feature(j, row, plan)
        for i in range(AR_TERMS):
            own[OLD + i] = own[NEW + i]
            own[NEW + i] = row[plan[AT_COEF] + j * AR_TERMS + i]


@jit
def stop_levels(row: np.ndarray, plan: np.ndarray) -> None:
    """No bets on levels until the next arming: after a held alarm the coefficients do not know the new level."""
    if plan[LEVEL_COUNT] > 0:
        row[plan[AT_LEVELS] + PERSISTENT] = 0.0


@inline
def measure_levels(raw: np.ndarray, row: np.ndarray, plan: np.ndarray, errors: np.ndarray) -> None:
    """z of each feature whose level is bet on, before its autoregression learns the sample.

    Args:
        raw: float64[>= d], roots taken, without seasons.
        row: the key's floats.
        plan: layout.
        errors: float64[>= d], filled.
    """
    levels = row[plan[AT_LEVELS] : plan[AT_LEVELS] + LEVEL_HEADER]
    for j in range(plan[LEVEL_COUNT]):
        own = of_feature(j, row, plan)
        errors[j] = 0.0
        if own[STAKE] == 0.0:
            continue
        e = clip_raw(raw[j], row[plan[AT_RAW_CENTER] + j], row[plan[AT_RAW_SCALE] + j]) - own[OLD]
        for i in range(AR_ORDER):
            e -= own[OLD + 1 + i] * row[plan[AT_RING] + j * AR_ORDER + i]
        vol = plan[AT_VOLATILITY] + j * VOL_TERMS
        if row[vol + MEAN_VARIANCE] > 0.0:
            e /= math.sqrt(row[vol + VARIANCE])
        power = 1.0 * own[POWER]
        if power <= LEAST_POWER:
            continue
        most = MOST_LOSS / own[STAKE]
        e = min(max(e / math.sqrt(power), -most), most)
        errors[j] = e
        own[POWER] = power * (1.0 + (e * e - 1.0) / min(levels[SEEN], MEMORY))
    levels[SEEN] += 1.0
    if levels[SEEN] - levels[NEXT] >= RENEWED:
        _copy(row, plan)


@inline
def bet_on_levels(
    credit: float, threshold: float, row: np.ndarray, state: np.ndarray, plan: np.ndarray, errors: np.ndarray
) -> None:
    """One test of each column of levels.

    Args:
        credit: samples since the last test.
        threshold: that the evidence must reach.
        row: the key's floats.
        state: the key's integers.
        plan: layout.
        errors: float64[>= d], as `measure_levels` filled it.
    """
    R = singles(row, plan[AT_R], plan[BETS])
    factors = singles(row, plan[AT_FAIR_FACTORS], FACTORS * plan[PAYOFFS])
    # What a bet must reach, on its own, for an alarm.
    reach = LEVEL_BETS / LEVEL_WEIGHT * row[plan[AT_LEVELS] + PERSISTENT] * threshold
    rarer = RARER * (log(reach) - COMMON) if reach > 1.0 else 0.0
    error = 1.0 / math.sqrt(min(row[plan[AT_LEVELS] + USED], MEMORY))
    for j in range(plan[LEVEL_COUNT]):
        stake = 1.0 * of_feature(j, row, plan)[STAKE]
        at = plan[R_LEVEL] + LEVEL_BETS * j
        if stake == 0.0:
            R[at] = 0.0
            R[at + 1] = 0.0
        else:
            # Half the variance of the coordinate's bet of stake .5, which is 1/12, is no smaller than c^2.
            fair = math.sqrt(1.0 * factors[FACTORS * j + 2]) if state[FAIR] == 1 else 1.0
            cost = error * max(stake * TOLERANCE, rarer)
            R[at] = (R[at] + credit) * max(0.0, 1.0 + stake * errors[j] - cost) * fair
            R[at + 1] = (R[at + 1] + credit) * max(0.0, 1.0 - stake * errors[j] - cost) * fair
            if plan[UPWARD] == 1:
                R[at + 1] = 0.0
        row[plan[AT_VALUES] + plan[LEVEL] + j] = (1.0 * R[at] + 1.0 * R[at + 1]) / LEVEL_BETS
