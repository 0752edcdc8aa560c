"""Single samples far out: p-values beyond the bag, from a generalised Pareto tail.

A rank in a bag of n cannot be smaller than 1 / (n + 1), so that one sample, however far out, proves little. Here the
sizes |z| of the bag's tenth that is largest are taken to have a generalised Pareto tail, and p = mass x tail(|z|). The
tail is fitted by L-moments (Hosking, Wallis, "Parameter and quantile estimation for the generalized Pareto
distribution", Technometrics 29(3), 1987: xi = 2 - l1 / l2, sigma = l1 (1 - xi)), anew every 128 samples while the bag
fills, then every 512. xi is kept within 0 and 1/2, then raised by 1.5 of its standard errors, (1 + xi) / sqrt(sizes):
far out p hangs on it, and a tail taken for too light makes false alarms. A size that also stands in the bag has at
least the rank it has there: what happened before is no news.
Beyond the bag p is an extrapolation, so an alarm of this column is never better than approximate.

One-sided bets on p <= mass; a sample below the tail pays what the bet pays in the mean over p > 1/10:

    .5 p^-.5, .25 p^-.75, .1 p^-.9
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.ranking import magnitude
from kstream_worker.detectors.ranks_layout import (
    AT_R,
    AT_RUN_PRODUCT,
    AT_RUN_SEQ,
    AT_RUN_TIME,
    AT_TAILS,
    AT_VALUES,
    COUNT,
    DIMS,
    LOCATORS,
    R_SPIKES,
    RUN_SPIKES,
    SPIKE_BETS,
    SPIKES,
    TAIL_ENTRIES,
    V_SIZE,
    singles,
)
from kstream_worker.models.scaling import select
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.math import exp, log

SHARE = 10  # one in so many is taken to be in the tail
REFIT = 128  # samples between two fits while the bag fills
FULL_REFIT = 512  # and once it is full
FEWEST = 20  # sizes in the tail, else there is no fit and there are no bets
LARGEST_SHAPE = 0.5
ERRORS = 1.5  # standard errors, (1 + xi) / sqrt(count), by which the shape is taken to be larger than it was fitted
LARGEST_RAISED = 0.75  # of the raised shape, in sigma
LOG_FLOOR = -27.6  # p is at least 1e-12
_HALF, _QUARTER, _TENTH = np.log(0.5), np.log(0.25), np.log(0.1)
# (1 - .1^c) / .9, the mean of (1 - c') p^-c' over p > .1 with c' = 1 - c
_BELOW = ((1.0 - 0.1**0.5) / 0.9, (1.0 - 0.1**0.25) / 0.9, (1.0 - 0.1**0.1) / 0.9)

EDGE, SCALE, SHAPE, MASS, LAST = range(5)  # of a feature's tail; LAST: the last sample in the tail, in steps


@inline
def fit_tail(bag: np.ndarray, scratch: np.ndarray, tail: np.ndarray) -> None:
    """Fit the tail of one feature; `tail[MASS]` is 0 where fewer than 20 sizes lie in it.

    Args:
        bag: int16[n], members in steps.
        scratch: int16[>= n].
        tail: float32[5], changed.
    """
    n = len(bag)
    tail[MASS] = 0.0
    above = n // SHARE
    if above < FEWEST:
        return
    for i in range(n):
        scratch[i] = abs(bag[i])
    edge = select(scratch, n, n - above - 1)
    sizes = scratch[n - above : n]
    _sort(sizes)
    start = magnitude(edge)
    first = 0.0
    weighted = 0.0
    count = 0
    for i in range(above):
        if sizes[i] > edge:
            y = magnitude(1.0 * sizes[i]) - start
            first += y
            weighted += count * y
            count += 1
    if count < FEWEST:
        return
    first /= count
    second = 2.0 * weighted / (count * (count - 1.0)) - first
    shape = min(max(2.0 - first / second, 0.0), LARGEST_SHAPE) if second > 0.0 else 0.0
    tail[EDGE] = edge
    shape += ERRORS * (1.0 + shape) / math.sqrt(1.0 * count)
    tail[SCALE] = first * (1.0 - min(shape, LARGEST_RAISED))
    tail[SHAPE] = shape
    tail[MASS] = (count + 1.0) / (n + 1.0)


@inline
def _sort(values: np.ndarray) -> None:
    """Insertion sort, in place."""
    for i in range(1, len(values)):
        value = values[i]
        j = i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@inline
def log_p(size: np.int16, bag: np.ndarray, tail: np.ndarray) -> float:
    """The logarithm of p of a size (in steps) in the tail, at least `LOG_FLOOR`."""
    y = (magnitude(1.0 * size) - magnitude(1.0 * tail[EDGE])) / tail[SCALE]
    beyond = log(1.0 + tail[SHAPE] * y) / tail[SHAPE] if tail[SHAPE] > 0.0 else y
    result: float = max(log(1.0 * tail[MASS]) - beyond, LOG_FLOOR)
    reached = np.int16(0)
    tied = np.int16(0)
    for i in range(len(bag)):
        member = np.int16(abs(bag[i]))
        reached = np.int16(reached + np.int16(member >= size))
        tied = np.int16(tied + np.int16(member == size))
    if tied > 0:
        result = max(result, log((reached + 1.0) / (len(bag) + 1.0)))
    return result


@inline
def rank_spikes(
    row: np.ndarray,
    bags: np.ndarray,
    state: np.ndarray,
    bet: bool,
    credit: float,
    time: int,
    seq: int,
    q: np.ndarray,
    plan: np.ndarray,
) -> None:
    """Bet on the size of each feature, before the sample joins the bag.

    Args:
        row: the key's floats.
        bags: int16[rows, room], coordinates of the bag.
        state: the key's integers.
        bet: whether there are bets.
        credit: samples since the last test.
        time: of the sample.
        seq: its number.
        q: int16[>= d + 1 + room], the sample in steps; behind d + 1 there is scratch.
        plan: layout.
    """
    n = state[V_SIZE]
    scratch = q[plan[DIMS] + 1 :]
    for j in range(plan[DIMS]):
        tail = singles(row, plan[AT_TAILS], TAIL_ENTRIES * plan[DIMS])[TAIL_ENTRIES * j : TAIL_ENTRIES * (j + 1)]
        if (state[COUNT] - j) % (FULL_REFIT if n == len(bags[j]) else REFIT) == 0:
            fit_tail(bags[j, :n], scratch, tail)
        if not bet or tail[MASS] == 0.0:
            continue
        size = np.int16(abs(q[j]))
        if size > tail[EDGE]:
            p = log_p(size, bags[j, :n], tail)
            tail[LAST] = q[j]
            _step(
                row, j, exp(_HALF - 0.5 * p), exp(_QUARTER - 0.75 * p), exp(_TENTH - 0.9 * p), credit, seq, time, plan
            )
        else:
            _step(row, j, _BELOW[0], _BELOW[1], _BELOW[2], credit, seq, time, plan)


@inline
def _step(
    row: np.ndarray,
    j: int,
    first: float,
    second: float,
    third: float,
    credit: float,
    seq: int,
    time: int,
    plan: np.ndarray,
) -> None:
    at = plan[R_SPIKES] + SPIKE_BETS * j
    R = singles(row, plan[AT_R], at + SPIKE_BETS)
    a = (R[at] + credit) * first
    b = (R[at + 1] + credit) * second
    c = (R[at + 2] + credit) * third
    R[at] = a
    R[at + 1] = b
    R[at + 2] = c
    row[plan[AT_VALUES] + plan[SPIKES] + j] = (a + b + c) / SPIKE_BETS
    run = plan[RUN_SPIKES] + j
    products = singles(row, plan[AT_RUN_PRODUCT], plan[LOCATORS])
    if products[run] <= 1.0:
        products[run] = 1.0
        singles(row, plan[AT_RUN_SEQ], plan[LOCATORS]).view(np.uint32)[run] = seq
        row[plan[AT_RUN_TIME] + run] = time
    products[run] *= second
