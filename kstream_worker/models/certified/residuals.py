"""Residuals with a bound on their own rounding error: what a certificate rests on.

Sums of products are accumulated in two floats per entry by error-free transformations (TwoSum of Knuth, TwoProduct of
Dekker and Veltkamp), the rounding errors of the second float exactly known and added up by magnitude. So the distance
of a computed residual from the exact one has a bound that is itself computed, holds for any finite input, and is 0
where no rounding took place.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.numerics.jit import inline, jit
from kstream_worker.records import FloatColumn, FloatMatrix

_SPLITTER = 134217729.0  # 2^27 + 1
_SMALL = 2.0**-960  # products below may lose bits to underflow ...
_LOST = 2.0**-1060  # ... but no more than this
_ULP = 2.0**-52


@inline
def _accumulate(matrix: np.ndarray, factors: np.ndarray, high: np.ndarray, low: np.ndarray, slack: np.ndarray) -> None:
    """(high + low)[i] += sum_j matrix[j, i] factors[j], off by at most what `slack[i]` grows by.

    Args:
        matrix: float64[m, n], C-contiguous.
        factors: float64[m].
        high: float64[n], changed; so are the other two.
        low: float64[n].
        slack: float64[n].
    """
    for j in range(matrix.shape[0]):
        b = factors[j]
        if b == 0.0:
            continue
        row = matrix[j]
        c = _SPLITTER * b
        b1 = c - (c - b)
        b2 = b - b1
        for i in range(row.shape[0]):
            a = row[i]
            # a b = p + e exactly
            p = a * b
            c = _SPLITTER * a
            a1 = c - (c - a)
            a2 = a - a1
            e = a2 * b2 - (((p - a1 * b1) - a2 * b1) - a1 * b2)
            # high + p = s + f exactly
            s = high[i] + p
            v = s - high[i]
            f = (high[i] - (s - v)) + (p - v)
            high[i] = s
            # e + f = g + first, low + g = s + second, exactly
            g = e + f
            v = g - e
            first = (e - (g - v)) + (f - v)
            s = low[i] + g
            v = s - low[i]
            second = (low[i] - (s - v)) + (g - v)
            low[i] = s
            underflow = _LOST if (abs(p) < _SMALL and a != 0.0) else 0.0
            slack[i] += (abs(first) + abs(second)) + underflow


@inline
def _close(high: np.ndarray, low: np.ndarray, slack: np.ndarray, terms: int) -> None:
    """high <- high + low rounded, low <- what is left of them, slack <- a bound with its own rounding included."""
    for i in range(high.shape[0]):
        s = high[i] + low[i]
        v = s - high[i]
        low[i] = (high[i] - (s - v)) + (low[i] - v)
        high[i] = s
        slack[i] *= 1.0 + (2.0 * terms + 8.0) * _ULP


@jit
def _residual(matrix: np.ndarray, b: np.ndarray, tau: float, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = y.shape[0]
    high, low, slack = y.copy(), np.zeros(n), np.zeros(n)
    _accumulate(matrix, -b, high, low, slack)
    _subtract_scaled(tau, b, high, low, slack)
    _close(high, low, slack, matrix.shape[0] + 1)
    return high, (slack + np.abs(low)) * (1.0 + 4.0 * _ULP)


@inline
def _subtract_scaled(tau: float, b: np.ndarray, high: np.ndarray, low: np.ndarray, slack: np.ndarray) -> None:
    """(high + low) -= tau b."""
    one, factor = np.empty((1, 1)), np.array([-tau])
    for i in range(b.shape[0]):
        one[0, 0] = b[i]
        _accumulate(one, factor, high[i : i + 1], low[i : i + 1], slack[i : i + 1])


@jit
def _sketched(
    rows: np.ndarray, columns: np.ndarray, b: np.ndarray, tau: float, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    n, s = rows.shape
    inner, rest, doubt = np.zeros(s), np.zeros(s), np.zeros(s)
    _accumulate(rows, b, inner, rest, doubt)
    _close(inner, rest, doubt, n)
    high, low, slack = y.copy(), np.zeros(n), np.zeros(n)
    _accumulate(columns, -inner, high, low, slack)
    _accumulate(columns, -rest, high, low, slack)
    for k in range(s):
        if doubt[k] > 0.0 or math.isnan(doubt[k]):
            for i in range(n):
                slack[i] += abs(columns[k, i]) * doubt[k]
    _subtract_scaled(tau, b, high, low, slack)
    _close(high, low, slack, 3 * s + 1)
    return high, (slack + np.abs(low)) * (1.0 + 4.0 * _ULP)


def residual_of(K: FloatMatrix, b: FloatColumn, tau: float, y: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """r = y - (K + tau I) b, and how far each entry may be from the exact one.

    Args:
        K: float64[n, n], symmetric, C-contiguous.
        b: float64[n].
        tau: of the system.
        y: float64[n].

    Returns:
        float64[n], rounded to nearest up to the second array, float64[n]; entries that are not finite where the
        computation overflows.
    """
    return _residual(K, b, tau, y)


def sketched_residual_of(
    factor: FloatMatrix, b: FloatColumn, tau: float, y: FloatColumn
) -> tuple[FloatColumn, FloatColumn]:
    """As `residual_of` with F F' in place of K; `factor` is F, float64[n, s], s >= 0."""
    return _sketched(np.ascontiguousarray(factor), np.ascontiguousarray(factor.T), b, tau, y)


def norm_bound(values: FloatColumn, slack: FloatColumn) -> float:
    """An upper bound of |v|_2 over all v with |v - values| <= slack entrywise; inf where something is not finite.

    It exceeds the norm of the largest of them by a factor of at most 1 + (n + 16) 2^-52, and is 0 where that is 0.
    """
    largest = np.abs(values) + slack
    if not np.isfinite(largest).all():
        return math.inf
    peak = float(largest.max(initial=0.0))
    if peak == 0.0:
        return 0.0
    _, exponent = math.frexp(peak)
    scaled = np.ldexp(largest, -exponent)  # at most 1: no overflow; what underflows is below 2^-1022 of the largest
    total = math.sqrt(float(np.square(scaled).sum()) + 2.0**-900)
    try:
        return math.nextafter(math.ldexp(total * (1.0 + (len(values) + 8.0) * _ULP), exponent), math.inf)
    except OverflowError:
        return math.inf
