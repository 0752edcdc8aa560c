"""Tests of a warm-up: serial dependence of levels and of squares, held values, unit roots. Compiled.

At the lengths of a warm-up the statistics do not follow their limiting laws. Their critical values are simulated
(`benchmarks/dependence_tables.py` prints the tables anew) and kept here as constants:

- Ljung and Box (1978), 10 lags, of a series; of innovations of an autoregression that is still being learned; of
  clipped squares of innovations, of normal samples and Student's t with 5 degrees the larger quantile.
- Dickey and Fuller (1979): the t statistic of (sum of lag coefficients - 1) in an autoregression with an intercept.

A sample is *held* where it repeats its predecessor because nothing new was measured. Equal neighbours alone do not
say so: counts and rounded values repeat by chance. `hold_share` compares with both kinds of chance.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

LEVELS = np.array([0.2, 0.1, 0.02, 0.01, 1e-3, 1e-4])
LENGTHS = np.array([40.0, 100.0, 200.0, 400.0])
# Rows are lengths, columns levels. Simulated: 30,000 series of each law.
# fmt: off
RAW = np.array([
    [13.67, 16.78, 24.14, 27.49, 38.03, 49.78],
    [13.58, 16.36, 22.50, 25.08, 34.64, 43.96],
    [13.51, 16.17, 22.01, 24.65, 32.86, 39.87],
    [13.51, 16.09, 21.52, 23.91, 31.32, 39.63],
])
INNOVATIONS = np.array([
    [12.32, 15.20, 22.06, 25.20, 37.51, 46.67],
    [13.05, 15.73, 22.04, 24.58, 35.36, 50.28],
    [13.19, 15.93, 22.08, 24.92, 35.59, 45.65],
    [13.33, 15.91, 21.62, 23.80, 31.86, 37.93],
])
SQUARES = np.array([
    [12.31, 15.79, 24.05, 27.70, 42.52, 55.73],
    [13.02, 16.03, 25.21, 30.04, 52.04, 82.65],
    [13.10, 16.43, 27.82, 33.89, 61.95, 113.09],
    [13.27, 16.83, 28.80, 34.06, 55.87, 89.62],
])
# fmt: on

# Dickey-Fuller at 5 %, autoregressions of order 8 with a ridge, by length.
UNIT_ROOT_LENGTHS = np.array([300.0, 600.0, 1200.0, 3000.0])
UNIT_ROOT = np.array([-2.850, -2.90, -2.90, -2.90])

MIN_HOLD = 0.05  # a smaller share of held samples does no measurable harm
MARGIN = 4.0  # standard deviations above chance that repeats must lie
SMOOTH = 2.0  # repeats must outnumber moves to the neighbouring value this many times
FEWEST = 50  # samples that are not of the most frequent value
MOST_HELD = 0.8  # a larger share would stretch the warm-up to more than a thousand samples
LEFT_HELD = 0.005  # of all kept samples, those that may still be held ones
ENOUGH = 300  # samples that a test for a unit root needs
TAU_FLOOR = 0.05  # autocorrelations below it end the sum


@inline
def critical(table: np.ndarray, n: int, level: float) -> float:
    """The critical value at a length and a level, linear in 1/n and in the logarithm of the level.

    Args:
        table: `RAW`, `INNOVATIONS` or `SQUARES`.
        n: length of the series; beyond the tabulated lengths the nearest one counts.
        level: of the test, in (0, .2]; below 1e-4 the last slope goes on.
    """
    last = len(LENGTHS) - 1
    k = 0
    while k < last - 1 and n > LENGTHS[k + 1]:
        k += 1
    near = min(max(1.0 * n, LENGTHS[0]), LENGTHS[last])
    share = (1.0 / LENGTHS[k] - 1.0 / near) / (1.0 / LENGTHS[k] - 1.0 / LENGTHS[k + 1])
    i = 0
    while i < len(LEVELS) - 2 and level < LEVELS[i + 1]:
        i += 1
    part = log(LEVELS[i] / level) / log(LEVELS[i] / LEVELS[i + 1])
    low = table[k, i] + part * (table[k, i + 1] - table[k, i])
    high = table[k + 1, i] + part * (table[k + 1, i + 1] - table[k + 1, i])
    return float(low + share * (high - low))


@inline
def unit_root_critical(n: int) -> float:
    """What the Dickey-Fuller statistic of n samples must be below for a series to be called stationary."""
    last = len(UNIT_ROOT_LENGTHS) - 1
    near = min(max(1.0 * n, UNIT_ROOT_LENGTHS[0]), UNIT_ROOT_LENGTHS[last])
    k = 0
    while k < last - 1 and near > UNIT_ROOT_LENGTHS[k + 1]:
        k += 1
    first, second = UNIT_ROOT_LENGTHS[k], UNIT_ROOT_LENGTHS[k + 1]
    share = (1.0 / first - 1.0 / near) / (1.0 / first - 1.0 / second)
    return float(UNIT_ROOT[k] + share * (UNIT_ROOT[k + 1] - UNIT_ROOT[k]))


@inline
def sort(x: np.ndarray, n: int) -> None:
    """Sort the first n entries in place (Shell's method: the gaps of Ciura, then tripled)."""
    gap = 701
    while gap < n // 3:
        gap = gap * 9 // 4
    while gap > 0:
        for i in range(gap, n):
            value = x[i]
            j = i
            while j >= gap and x[j - gap] > value:
                x[j] = x[j - gap]
                j -= gap
            x[j] = value
        gap = 0 if gap == 1 else max(1, gap * 4 // 9)


@jit
def hold_share(x: np.ndarray, n: int, work: np.ndarray) -> float:
    """The share of samples that repeat their predecessor beyond chance; 0 where chance explains the repeats.

    Three kinds of chance. Of independent samples: in a random order of the same values the number T of equal
    neighbours has, with S2 = sum c (c - 1) and S3 = sum c (c - 1)(c - 2) over the counts c of the values,

        E T = S2 / n,    E T (T - 1) = 2 (n - 2) S3 / (n)_3 + (n - 2)(n - 3) (S2^2 - 4 S3 - 2 S2) / (n)_4.

    T must lie 4 standard deviations above. Of autocorrelated rounded samples: then a move to the next value above
    or below is about as likely as none; T must be twice the more frequent of the two. Of one value that is usual, such
    as the zeros between bursts: what follows it says nothing, so the share is that of repeats of all other values; with
    r of them repeated and c = their S2 / ((n - 1) m), m their number, it is (r - c) / (1 - c).

    Args:
        x: float64[>= n].
        n: length, at least 4.
        work: float64[>= n], scratch.
    """
    s2, s3, distinct, usual, most = _count_values(x, n, work)
    if distinct == 1:
        return 0.0
    same, others, moved = _repeats_and_moves(x, n, work, distinct, usual)
    mean = s2 / n
    pairs = 2.0 * s3 / n / (n - 1.0) + (s2 * s2 - 4.0 * s3 - 2.0 * s2) / n / (n - 1.0)
    spread = math.sqrt(max(pairs + mean - mean * mean, 0.0))
    members = n - most
    if same <= mean + MARGIN * spread or same < SMOOTH * moved or members < FEWEST:
        return 0.0
    chance = (s2 - most * (most - 1.0)) / ((n - 1.0) * members)
    return max(0.0, (others / members - chance) / (1.0 - chance))


@inline
def repeat_chance(x: np.ndarray, n: int, work: np.ndarray) -> float:
    """The chance that two of the n samples, drawn without order, are equal. Arguments as of `hold_share`."""
    return float(_count_values(x, n, work)[0] / (n * (n - 1.0)))


@inline
def _count_values(x: np.ndarray, n: int, values: np.ndarray) -> tuple[float, float, int, float, float]:
    """S2, S3, the number of distinct values (which then stand at the start of `values` in their order), the most
    frequent one and how often it is there.
    """
    for i in range(n):
        values[i] = x[i]
    sort(values, n)
    s2 = 0.0
    s3 = 0.0
    distinct = 0
    usual = values[0]
    most = 0.0
    i = 0
    while i < n:
        j = i
        while j < n and values[j] == values[i]:
            j += 1
        c = 1.0 * (j - i)
        s2 += c * (c - 1.0)
        s3 += c * (c - 1.0) * (c - 2.0)
        if c > most:
            usual, most = values[i], c
        values[distinct] = values[i]
        distinct += 1
        i = j
    return s2, s3, distinct, usual, most


@inline
def _repeats_and_moves(x: np.ndarray, n: int, values: np.ndarray, distinct: int, usual: float) -> tuple[int, int, int]:
    """Samples equal to their predecessor, those of them that are not `usual`, and moves to the next value of those
    seen, up or down, the more frequent.
    """
    same = 0
    others = 0
    up = 0
    down = 0
    at = _find(values, distinct, x[0])
    for i in range(1, n):
        if x[i] == x[i - 1]:
            same += 1
            others += x[i] != usual
        else:
            if at + 1 < distinct and x[i] == values[at + 1]:
                up += 1
            elif at > 0 and x[i] == values[at - 1]:
                down += 1
            at = _find(values, distinct, x[i])
    return same, others, max(up, down)


@inline
def _find(values: np.ndarray, n: int, x: float) -> int:
    low = 0
    high = n - 1
    while low < high:
        middle = (low + high) // 2
        if values[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def hold_stride(share: float) -> int:
    """Samples after which one in two hundred is still a held one: ceil(ln .005 / ln share); 1 where nothing is done."""
    if not MIN_HOLD <= share <= MOST_HELD:
        return 1
    return math.ceil(log(LEFT_HELD) / log(share))


@jit
def correlation_time(x: np.ndarray, n: int) -> float:
    """1/2 + the sum of autocorrelations up to the first below .05 (at most n / 4 lags), in samples; 1/2 if constant."""
    mean = 0.0
    for i in range(n):
        mean += x[i]
    mean /= n
    power = 0.0
    for i in range(n):
        power += (x[i] - mean) * (x[i] - mean)
    total = 0.5
    if power <= 1e-24 * n:
        return total
    for lag in range(1, n // 4):
        product = 0.0
        for i in range(lag, n):
            product += (x[i] - mean) * (x[i - lag] - mean)
        if product < TAU_FLOOR * power:
            break
        total += product / power
    return total
