"""Tests of a warm-up: serial dependence of levels and of squares. Compiled.

At the lengths of a warm-up the statistics do not follow their limiting laws. Their critical values are simulated
(`benchmarks/dependence_tables.py` prints the tables anew) and kept here as constants:

- Ljung and Box (1978), 10 lags, of a series; of innovations of an autoregression that is still being learned; of
  clipped squares of innovations, of normal samples and Student's t with 5 degrees the larger quantile.
"""

from __future__ import annotations

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
