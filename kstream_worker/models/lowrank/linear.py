"""Small dense matrices by rows, in a fixed order. Of triangles, d x d with row i at i * d, entries above the diagonal
are unused.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.nystrom.features import dot
from kstream_worker.numerics.jit import inline

_SWEEPS = 20  # of subspace iteration


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


@inline
def normalise(x: np.ndarray, n: int) -> None:
    """x / |x| in place, 0 where |x| is 0."""
    length = math.sqrt(dot(x, x, n))
    if length > 0.0:
        for i in range(n):
            x[i] /= length


@inline
def _orthonormalise(vectors: np.ndarray, count: int, n: int) -> None:
    """Rows to orthonormal ones in their order, twice for good measure; a dependent row becomes 0."""
    for k in range(count):
        row = vectors[k * n : (k + 1) * n]
        normalise(row, n)
        for _ in range(2):
            for j in range(k):
                other = vectors[j * n : (j + 1) * n]
                a = -dot(row, other, n)
                for i in range(n):
                    row[i] += a * other[i]
        if not math.sqrt(dot(row, row, n)) > 1e-12:
            for i in range(n):
                row[i] = 0.0
        normalise(row, n)


@inline
def leading(
    matrix: np.ndarray, n: int, count: int, vectors: np.ndarray, images: np.ndarray, values: np.ndarray
) -> None:
    """Leading eigenvectors of a positive semi-definite matrix into the rows of `vectors`, which give the start."""
    for sweep in range(_SWEEPS + 1):
        _orthonormalise(vectors, count, n)
        if sweep == _SWEEPS:
            break
        for k in range(count):
            for i in range(n):
                images[k * n + i] = dot(matrix[i * n : (i + 1) * n], vectors[k * n : (k + 1) * n], n)
            values[k] = dot(images[k * n : (k + 1) * n], vectors[k * n : (k + 1) * n], n)
        for i in range(count * n):
            vectors[i] = images[i]
