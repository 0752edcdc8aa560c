"""Whether a key whose alarm is up is back in the regime that it left. Compiled.

At an alarm the older samples that the key remembers (`history`) are frozen, filled up with those from before the
change: they stand for the old regime. A raw sample's score (a feature, its distance from the old median, the product
of two such differences) has the payoff b = P(old < score) - P(old > score) over them, within +-1 and about 0 in the
mean in the old regime, whatever its law. The score that lies farthest off from the change to the alarm is the *lead*,
its mean payoff theta (turned so that it is positive). Bets (`recovery`) are against "the mean is still at least m", m
half of theta or what two standard errors leave of it. When these have paid, and no score of the latest samples lies
more than three standard errors off (rank sums, Mann and Whitney), the old regime is back.

Where neighbours are correlated, b is the mean of a stretch of samples, two correlation times long, and standard errors
are wider. Where too few samples have changed for an m of `LEAST_MARGIN`, theta is measured again with twice as many, up
to those that are remembered. A change whose m stays below that, too weak to be told from the noise of the old samples,
is never said to be over; nor is any of a key whose season is taken out, as old and new samples were not seen at the
same hours.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.ranks_layout import (
    ALARM,
    AT_HISTORY,
    AT_KEPT,
    AT_ORIGIN,
    AT_UNION,
    BACK,
    DIMS,
    DUE,
    FIRST_NEW,
    KEPT_ROOM,
    KEPT_SIZE,
    LEAD,
    LENGTH,
    MARGIN,
    MAX_PRODUCT_DIMS,
    MIDDLE_1,
    MIDDLE_2,
    SEASONS,
    SEQ,
    SETTLING,
    SIDE,
    STRETCH,
    STRETCH_N,
    STRETCH_SUM,
    WARM_SEQ,
)
from kstream_worker.detectors.recovery import WRONG_EVERY, has_paid, stake
from kstream_worker.models.scaling import select
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

LEAST_MARGIN = 0.1
FEWEST = 32  # samples of an old regime that is told from others, and of a look at the latest
FEWEST_NEW = 8  # stretches since the change of a crossing that can tell whether the old regime is back
ERRORS = 3.0  # standard errors
SURE = 2.0  # of theta
LONGEST = 64  # stretch
UNKNOWN, OLD, NEW, OTHER = range(4)  # regimes: NEW is the one that raised the alarm
ROUNDING = 1e-6  # of the largest of the old values: these are 32-bit floats, whose origin has moved once
_NOT_CORRELATED = 0.1
_UNIFORM = 1.0 / 3.0  # variance of b in the old regime


@jit
def start_watch(changed: int, last: int, anew: bool, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """At the first alarm of an incident: freeze the old regime, and measure how the new one shows.

    Args:
        changed: number of the first sample that has changed, most likely.
        last: number of the last one that has not.
        anew: whether the older samples that are kept are of yet another regime.
        row: the key's floats.
        state: the key's integers.
        plan: layout.
    """
    state[LEAD] = state[DUE] = 0
    if plan[LENGTH] == 0 or state[SEASONS] != 0:
        return
    d = plan[DIMS]
    before = np.empty((d, plan[LENGTH]))
    n = _gather(max(state[WARM_SEQ], 1), last, plan[LENGTH], before, row, state, plan)
    if anew and n >= FEWEST:
        state[KEPT_SIZE] = 0
    _fill_up(before, n, row, state, plan)
    state[STRETCH] = 1
    for j in range(d):
        state[STRETCH] = max(state[STRETCH], _stretch(before[j][:n]))
    state[FIRST_NEW] = changed
    if state[KEPT_SIZE] >= FEWEST:
        _find_lead(row, state, plan)


@jit
def _find_lead(row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Measure how the samples since the change lie off the old ones; if they are too few, later with twice as many."""
    d = plan[DIMS]
    state[LEAD] = 0
    after = np.empty((d, plan[LENGTH]))
    n = _gather(state[FIRST_NEW], state[SEQ], plan[LENGTH], after, row, state, plan)
    old, middles = _old(row, state, plan)
    furthest = 0.0
    for score in range(_scores(d)):
        theta = _theta(score, after, n, old, middles) if n > 0 else 0.0
        if abs(theta) > abs(furthest):
            furthest = theta
            state[LEAD] = score + 1
    if state[LEAD] > 0:
        state[SIDE] = 1 if furthest > 0.0 else -1
        first, second = _members(state[LEAD] - 1, d)
        row[MIDDLE_1], row[MIDDLE_2] = middles[first], middles[max(second, 0)]
        _set_margin(abs(furthest), n, row, state)
    state[DUE] = state[SEQ] + max(n, FEWEST) if state[LEAD] == 0 and 2 * n <= plan[LENGTH] else 0


@inline
def _set_margin(theta: float, n: int, row: np.ndarray, state: np.ndarray) -> None:
    row[MARGIN] = min(0.5 * theta, theta - SURE * math.sqrt(_UNIFORM * state[STRETCH] / n))
    row[STRETCH_SUM] = 0.0
    row[BACK] = 0.0
    state[STRETCH_N] = 0
    if row[MARGIN] < LEAST_MARGIN:
        state[LEAD] = 0


@inline
def watch(raw: np.ndarray, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> bool:
    """After each sample of a key whose alarm is up: whether the old regime is back.

    Args:
        raw: float64[d], the sample, which the history holds already.
        row: the key's floats.
        state: the key's integers.
        plan: layout.
    """
    if state[LEAD] == 0:
        if state[DUE] > 0 and state[SEQ] >= state[DUE]:
            _find_lead(row, state, plan)
        return False
    row[STRETCH_SUM] += state[SIDE] * _payoff(raw, row, state, plan)
    state[STRETCH_N] += 1
    if state[STRETCH_N] < state[STRETCH]:
        return False
    margin = row[MARGIN]
    mean = row[STRETCH_SUM] / state[STRETCH_N]
    paid = has_paid(row, BACK, state[STRETCH_N], margin, _UNIFORM, mean)
    row[STRETCH_SUM] = 0.0
    state[STRETCH_N] = 0
    return paid and _latest_are_old(row, state, plan)


@jit
def _latest_are_old(row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> bool:
    """Half of as many as the bets take in the old regime."""
    tests = math.ceil(log(WRONG_EVERY) / (stake(row[MARGIN], _UNIFORM) * row[MARGIN]))
    window = min(max(FEWEST, tests * state[STRETCH]), plan[LENGTH])
    samples = np.empty((plan[DIMS], window))
    n = _gather(state[SEQ] - window + 1, state[SEQ], window, samples, row, state, plan)
    return _are_old(samples, n, row, state, plan)


@jit
def where_now(first: int, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> int:
    """Where the samples from number `first` on are, those since a crossing's change: UNKNOWN, OLD, NEW or OTHER.

    UNKNOWN too where neither an alarm is up nor one is settling.

    Args:
        first: number of a sample.
        row: the key's floats.
        state: the key's integers.
        plan: layout.
    """
    if state[LEAD] == 0 or (state[ALARM] == 0 and state[SETTLING] == 0):
        return UNKNOWN
    samples = np.empty((plan[DIMS], plan[LENGTH]))
    n = _gather(first, state[SEQ], plan[LENGTH], samples, row, state, plan)
    if n < (FEWEST_NEW if state[ALARM] == 1 else FEWEST) * state[STRETCH]:
        return UNKNOWN
    old, middles = _old(row, state, plan)
    if state[SIDE] * _theta(state[LEAD] - 1, samples, n, old, middles) >= row[MARGIN]:
        return NEW
    return OLD if _are_old(samples, n, row, state, plan) else OTHER


@inline
def _are_old(samples: np.ndarray, n: int, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> bool:
    """Whether no score of n samples, float64[d, >= n], lies far off."""
    old, middles = _old(row, state, plan)
    m = old.shape[1]
    error = math.sqrt((n + m + 1.0) / (3.0 * n * m) * state[STRETCH])
    furthest = 0.0
    for score in range(_scores(plan[DIMS])):
        furthest = max(furthest, abs(_theta(score, samples, n, old, middles)))
    return furthest <= ERRORS * error


@inline
def _payoff(raw: np.ndarray, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> float:
    """b of the lead's score of a raw sample."""
    d = plan[DIMS]
    kept = row[plan[AT_KEPT] : plan[AT_UNION]].view(np.float32)
    first, second = _members(state[LEAD] - 1, d)
    other = max(second, 0)
    middles = row[MIDDLE_1], row[MIDDLE_2]
    a = np.float64(np.float32(raw[first] - row[plan[AT_ORIGIN] + first]))
    b = np.float64(np.float32(raw[other] - row[plan[AT_ORIGIN] + other]))
    own = np.empty(1)
    own[0] = _score(a, b, first, second, *middles)
    old = np.empty(state[KEPT_SIZE])
    for i in range(len(old)):
        old[i] = _score(np.float64(kept[i * d + first]), np.float64(kept[i * d + other]), first, second, *middles)
    return _balance(own, old)


@inline
def _scores(d: int) -> int:
    """Each feature, its distance from the old median and, for d <= 10, the products of each two."""
    return 2 * d + (d * (d - 1) // 2 if d <= MAX_PRODUCT_DIMS else 0)


@inline
def _members(score: int, d: int) -> tuple[int, int]:
    """The features of a score: the second is -1 for a feature itself, the first again for its distance."""
    if score < d:
        return score, -1
    if score < 2 * d:
        return score - d, score - d
    first = 0
    left = score - 2 * d
    while left >= d - 1 - first:
        left -= d - 1 - first
        first += 1
    return first, first + 1 + left


@inline
def _score(a: float, b: float, first: int, second: int, middle_1: float, middle_2: float) -> float:
    if second < 0:
        return a
    if second == first:
        return abs(a - middle_1)
    return (a - middle_1) * (b - middle_2)


@inline
def _values(score: int, x: np.ndarray, n: int, middles: np.ndarray) -> np.ndarray:
    """float64[n], a score of the first n of samples, float64[d, >= n]."""
    first, second = _members(score, x.shape[0])
    other = max(second, 0)
    out = np.empty(n)
    for i in range(n):
        out[i] = _score(x[first, i], x[other, i], first, second, middles[first], middles[other])
    return out


@inline
def _theta(score: int, x: np.ndarray, n: int, old: np.ndarray, middles: np.ndarray) -> float:
    """Mean payoff of a score of the first n of samples, float64[d, >= n]: 2 / (n m) times the rank sum, centred."""
    return _balance(_values(score, x, n, middles), _values(score, old, old.shape[1], middles))


@jit
def _balance(new: np.ndarray, old: np.ndarray) -> float:
    """P(old < new) - P(old > new), float64[n] against float64[m]; what differs by no more than rounding is equal."""
    equal = 0.0
    for k in range(len(old)):
        equal = max(equal, ROUNDING * abs(old[k]))
    total = 0
    for i in range(len(new)):
        for k in range(len(old)):
            total += (1 if new[i] > old[k] + equal else 0) - (1 if new[i] < old[k] - equal else 0)
    return total / (len(new) * len(old))


@inline
def _gather(
    first: int, last: int, most: int, out: np.ndarray, row: np.ndarray, state: np.ndarray, plan: np.ndarray
) -> int:
    """The last raw samples between two numbers, oldest first; how many there are.

    Args:
        first: number of the first that may be taken.
        last: and of the last.
        most: how many at most.
        out: float64[d, >= most], filled, relative to the key's origin.
        row: the key's floats.
        state: the key's integers.
        plan: layout.
    """
    d = plan[DIMS]
    history = row[plan[AT_HISTORY] : plan[AT_KEPT]].view(np.float32)
    start = max(first, state[SEQ] - plan[LENGTH] + 1, last - most + 1, 1)
    n: int = max(0, last - start + 1)
    for i in range(n):
        at = (start + i) % plan[LENGTH] * d
        for j in range(d):
            out[j, i] = np.float64(history[at + j])
    return n


@inline
def _old(row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The old regime, float64[d, m], and its medians."""
    d = plan[DIMS]
    m = state[KEPT_SIZE]
    kept = row[plan[AT_KEPT] : plan[AT_UNION]].view(np.float32)
    old = np.empty((d, m))
    middles = np.empty(d)
    work = np.empty(m)
    for j in range(d):
        for i in range(m):
            old[j, i] = np.float64(kept[i * d + j])
            work[i] = old[j, i]
        middles[j] = select(work, m, m // 2)
    return old, middles


@inline
def _fill_up(before: np.ndarray, n: int, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Where older samples leave room, n samples from before the change take it, evenly."""
    d = plan[DIMS]
    kept = row[plan[AT_KEPT] : plan[AT_UNION]].view(np.float32)
    size = state[KEPT_SIZE]
    more = min(n, plan[KEPT_ROOM] - size)
    for i in range(more):
        for j in range(d):
            kept[(size + i) * d + j] = np.float32(before[j, i * n // more])
    state[KEPT_SIZE] = size + more


@inline
def _stretch(values: np.ndarray) -> int:
    """Samples in two correlation times, 2 (1 + r) / (1 - r), r the correlation of neighbours; 1 where there is none."""
    n = len(values)
    if n < FEWEST:
        return 1
    mean = 0.0
    for i in range(n):
        mean += values[i] / n
    power = 0.0
    product = 0.0
    for i in range(n):
        power += (values[i] - mean) * (values[i] - mean)
        if i > 0:
            product += (values[i] - mean) * (values[i - 1] - mean)
    if not (0.0 < power < math.inf and product > max(_NOT_CORRELATED, 2.0 / math.sqrt(n)) * power):
        return 1
    r = min(product / power, 0.99)
    return min(math.ceil(2.0 * (1.0 + r) / (1.0 - r)), LONGEST)
