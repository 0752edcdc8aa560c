"""Dense triangles of small matrices by rows, in a fixed order: d x d, row i at i * d, entries above the diagonal
unused.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.nystrom.features import dot
from kstream_worker.numerics.jit import inline


@inline
def add_outer(h: np.ndarray, d: int, x: np.ndarray, weight: float) -> None:
    """Lower triangle of h += weight x x'."""
    for i in range(d):
        a = weight * x[i]
        row = h[i * d : i * d + i + 1]
        for j in range(i + 1):
            row[j] += a * x[j]


@inline
def cholesky(h: np.ndarray, d: int, lower: np.ndarray, tolerance: float) -> int:
    """lower <- L with L L' = h; a pivot that is at most `tolerance` times its diagonal entry drops its row and column.

    Args:
        h: float64[d * d], lower triangle of a positive semi-definite matrix.
        d: order.
        lower: float64[d * d], result; a dropped row is 0, its diagonal too.
        tolerance: smallest relative pivot.

    Returns:
        rows kept.
    """
    kept = 0
    for i in range(d):
        row = lower[i * d : i * d + d]
        for j in range(i):
            pivot = lower[j * d + j]
            row[j] = (h[i * d + j] - dot(row, lower[j * d : j * d + d], j)) / pivot if pivot > 0.0 else 0.0
        rest = h[i * d + i] - dot(row, row, i)
        if rest > tolerance * h[i * d + i]:
            row[i] = math.sqrt(rest)
            kept += 1
        else:
            for j in range(i + 1):
                row[j] = 0.0
    return kept


@inline
def solve_lower(lower: np.ndarray, d: int, x: np.ndarray) -> None:
    """x <- L^-1 x; dropped coordinates are 0."""
    for i in range(d):
        pivot = lower[i * d + i]
        x[i] = (x[i] - dot(lower[i * d : i * d + d], x, i)) / pivot if pivot > 0.0 else 0.0


@inline
def solve_upper(lower: np.ndarray, d: int, x: np.ndarray) -> None:
    """x <- L^-T x; dropped coordinates are 0."""
    for back in range(d):
        i = d - 1 - back
        pivot = lower[i * d + i]
        value = x[i] / pivot if pivot > 0.0 else 0.0
        x[i] = value
        row = lower[i * d : i * d + d]
        for j in range(i):
            x[j] -= value * row[j]
