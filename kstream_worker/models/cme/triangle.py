"""Cholesky factors that grow and shrink by one row: solves, appending, and deletion by Givens rotations.

L is lower triangular, packed by rows: row i starts at i (i + 1) / 2 and holds columns 0..i, so that a row may be
appended without moving anything.

A singular matrix is truncated, never jittered: a row whose pivot (its squared distance from the span of those before)
is at most `PIVOT_TOLERANCE` has the pivot 0 and a column of zeros, and its coordinate of every solution is exactly 0.
It stays so for good, even where the point that it repeats is deleted: what was left out of its row, up to the root of
the tolerance, would grow by as much as the reciprocal of a pivot.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.models.nystrom import dot
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.outline import outline

PIVOT_TOLERANCE = 1e-12  # of k(z, z) = 1; solves are then backward stable at condition numbers up to about 1e14


@inline
def row_start(i: int) -> int:
    """Where row i begins; of the number of rows: entries in all."""
    return i * (i + 1) // 2


@inline
def solve_lower(lower: np.ndarray, m: int, k: np.ndarray, first: int, out: np.ndarray) -> float:
    """out[:m] <- L^-1 k[:m], where k is 0 before entry `first`; `out` may be `k`.

    Returns:
        |out|^2.
    """
    outline()
    total = 0.0
    for i in range(first):
        out[i] = 0.0
    for i in range(first, m):
        at = row_start(i)
        pivot = lower[at + i]
        if pivot > 0.0:
            out[i] = (k[i] - dot(lower[at + first : at + i], out[first:i], i - first)) / pivot
            total += out[i] * out[i]
        else:
            out[i] = 0.0
    return total


@inline
def append_row(lower: np.ndarray, m: int, coordinates: np.ndarray, rest: float) -> float:
    """L of one point more: its whitened coordinates and its squared distance from the span.

    Args:
        lower: float64[>= (m + 1) (m + 2) / 2], changed.
        m: rows before.
        coordinates: float64[>= m], L^-1 k of the point.
        rest: k(z, z) - |coordinates|^2.

    Returns:
        the new pivot, which is the point's own last coordinate: 0 where it is truncated.
    """
    at = row_start(m)
    for j in range(m):
        lower[at + j] = coordinates[j]
    lower[at + m] = np.sqrt(rest) if rest > PIVOT_TOLERANCE else 0.0
    return float(lower[at + m])


@inline
def delete_row(lower: np.ndarray, m: int, i: int, cosine: np.ndarray, sine: np.ndarray) -> None:
    """L without point i: the rows below move up, and rotations of neighbouring columns make it triangular again.

    The coordinates of what was known turn likewise: entries (j, j + 1) of a coordinate vector become (c v_j + s
    v_{j+1}, c v_{j+1} - s v_j) for j = i, ..., m - 2 in order; the last is then what the point alone spanned, and goes.

    Args:
        lower: float64[>= m (m + 1) / 2], changed.
        m: rows before.
        i: the point, 0 <= i < m.
        cosine: float64[>= m], result in i..m-2.
        sine: float64[>= m], result in i..m-2.
    """
    outline()
    # Row r >= i of the new factor is the old row r + 1, whose entry r + 1 stands one to the right of the diagonal. It
    # is read from where it lay and turned by all former rotations before its own is chosen.
    for r in range(i, m - 1):
        source = row_start(r + 1)
        target = row_start(r)
        for j in range(i):
            lower[target + j] = lower[source + j]
        carried = lower[source + i]
        for j in range(i, r):
            right = lower[source + j + 1]
            lower[target + j] = cosine[j] * carried + sine[j] * right
            carried = cosine[j] * right - sine[j] * carried
        right = lower[source + r + 1]
        if right > 0.0:
            pivot = np.sqrt(carried * carried + right * right)
            cosine[r] = carried / pivot
            sine[r] = right / pivot
            lower[target + r] = pivot
        else:  # the point stays truncated: its column of zeros moves along, and what is carried goes on
            cosine[r] = 0.0
            sine[r] = 1.0
            lower[target + r] = 0.0
