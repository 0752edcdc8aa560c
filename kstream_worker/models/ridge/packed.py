"""Symmetric matrices as packed lower triangles by columns: products, and the inverse that belongs to a factor."""

from __future__ import annotations

import numpy as np

from kstream_worker.models.nystrom import dot, invert_lower, packed_start, truncated_cholesky
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import fill, load, store, total


@inline
def symmetric_times(matrix: np.ndarray, m: int, x: np.ndarray, out: np.ndarray) -> None:
    """out[:m] <- A x in one pass: each column serves as a column and, without its diagonal, as a row.

    Args:
        matrix: float64[m (m + 1) / 2].
        m: order.
        x: float64[>= m].
        out: float64[>= m], result; not x.
    """
    for i in range(m):
        out[i] = 0.0
    start = 0
    for j in range(m):
        n = m - j - 1
        column = matrix[start + 1 : start + 1 + n]
        tail = x[j + 1 : m]
        below = out[j + 1 : m]
        factor = fill(x[j])
        s = fill(0.0)
        whole = n - n % 4
        for i in range(0, whole, 4):
            v = load(column, i)
            s = s + v * load(tail, i)
            store(below, i, load(below, i) + factor * v)
        crossing = total(s)
        for i in range(whole, n):
            crossing += column[i] * tail[i]
            below[i] += x[j] * column[i]
        out[j] += matrix[start] * x[j] + crossing
        start += n + 1


@inline
def get_column(matrix: np.ndarray, m: int, p: int, out: np.ndarray) -> None:
    """out[:m] <- column p."""
    for i in range(p):
        out[i] = matrix[packed_start(i, m) + p - i]
    start = packed_start(p, m)
    for i in range(p, m):
        out[i] = matrix[start + i - p]


@inline
def set_column(matrix: np.ndarray, m: int, p: int, values: np.ndarray) -> None:
    """Column and row p <- values[:m]."""
    for i in range(p):
        matrix[packed_start(i, m) + p - i] = values[i]
    start = packed_start(p, m)
    for i in range(p, m):
        matrix[start + i - p] = values[i]


@inline
def invert_root(matrix: np.ndarray, m: int) -> bool:
    """A, in place, to X = L^-1 with A = L L'; False where A is not positive definite in float64."""
    if truncated_cholesky(matrix, m, 0.0) < m:
        return False
    invert_lower(matrix, m)
    return True


@inline
def inverse_of_root(root: np.ndarray, m: int, column: np.ndarray) -> None:
    """X, in place, to A^-1 = X' X. `column`: float64[>= m], scratch."""
    first = 0
    for j in range(m):
        n = m - j
        start = first
        for i in range(n):
            column[i] = dot(root[start : start + n - i], root[first + i : first + n], n - i)
            start += n - i
        for i in range(n):
            root[first + i] = column[i]
        first += n
