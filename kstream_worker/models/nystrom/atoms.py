"""Choice of atoms by pivoted Cholesky, and factors of their kernel matrix, truncated where it is singular."""

from __future__ import annotations

import numpy as np

from kstream_worker.models.nystrom.features import exp_or_zero, gaussian, packed_size, packed_start
from kstream_worker.numerics.jit import inline

PIVOT_TOLERANCE = 1e-8  # of k(z, z) = 1; condition numbers of L stay below about 1e5


@inline
def choose_atoms(
    sample: np.ndarray,
    n: int,
    d: int,
    gain: float,
    max_atoms: int,
    tolerance: float,
    atoms: np.ndarray,
    stride: int,
    inverse: np.ndarray,
    columns: np.ndarray,
    rest: np.ndarray,
    powers: np.ndarray,
    chosen: np.ndarray,
) -> int:
    """Pivoted Cholesky of the sample's kernel matrix: each atom is the point farthest from the span of those before it.

    Ties go to the earlier point. The choice ends at `max_atoms` or where the largest pivot is at most `tolerance`. A
    number of atoms that is no multiple of 4 is filled up with dropped ones.

    Args:
        sample: float64[n * d], rows are points.
        n: points.
        d: features.
        gain: -1 / (2 width^2).
        max_atoms: M, at least 4 and at most `stride`; atoms come in fours, so that 50 means 48.
        tolerance: smallest pivot, relative to k(z, z) = 1; see `PIVOT_TOLERANCE`.
        atoms: float64[d * stride], result.
        stride: room for atoms.
        inverse: float64[>= M (M + 1) / 2], result, packed for the m that is returned.
        columns: float64[>= n * M], scratch.
        rest: float64[>= n], scratch.
        powers: int64[>= n], scratch.
        chosen: int64[>= M], result: rows of the sample.

    Returns:
        m, the number of atoms, dropped ones included; at least 4 if n is at least 1.
    """
    m = 0
    for i in range(n):
        rest[i] = 1.0
    most = min(max_atoms - max_atoms % 4, n)
    while m < most:
        best = 0
        for i in range(n):
            if rest[i] > rest[best]:
                best = i
        if rest[best] <= tolerance:
            break
        column = columns[m * n : (m + 1) * n]
        _kernel_column(sample, n, d, gain, best, column, powers)
        for j in range(m):
            former = columns[j * n : (j + 1) * n]
            a = -former[best]
            for i in range(n):
                column[i] += a * former[i]
        pivot = np.sqrt(rest[best])
        scale = 1.0 / pivot
        for i in range(n):
            column[i] *= scale
            rest[i] -= column[i] * column[i]
        column[best] = pivot
        chosen[m] = best
        rest[best] = -1.0
        for j in range(d):
            atoms[j * stride + m] = sample[best * d + j]
        m += 1
    found = m
    while m % 4 != 0:  # repeats of the first atom, dropped from the factor
        chosen[m] = chosen[0]
        for j in range(d):
            atoms[j * stride + m] = atoms[j * stride]
        m += 1
    _gather_factor(columns, n, chosen, found, m, inverse)
    invert_lower(inverse, m)
    return m


@inline
def _gather_factor(columns: np.ndarray, n: int, chosen: np.ndarray, found: int, m: int, lower: np.ndarray) -> None:
    """The rows of the chosen points in the columns of pivoted Cholesky are L; rows from `found` on are 0."""
    start = 0
    for j in range(m):
        for i in range(j, m):
            lower[start] = columns[j * n + chosen[i]] if i < found else 0.0
            start += 1


@inline
def factor(
    atoms: np.ndarray,
    stride: int,
    m: int,
    d: int,
    gain: float,
    tolerance: float,
    inverse: np.ndarray,
    point: np.ndarray,
    k: np.ndarray,
    powers: np.ndarray,
) -> int:
    """L^-1 of the same atoms at another width, in the given order; atoms with a pivot <= tolerance are dropped (zeros).

    Args:
        atoms: float64[d * stride].
        stride: room for atoms.
        m: atoms in use.
        d: features.
        gain: -1 / (2 width^2) of that width.
        tolerance: smallest pivot.
        inverse: float64[>= m (m + 1) / 2], result.
        point: float64[>= d], scratch.
        k: float64[>= m], scratch.
        powers: int64[>= m], scratch.

    Returns:
        the number of atoms kept.
    """
    start = 0
    for j in range(m):
        for f in range(d):
            point[f] = atoms[f * stride + j]
        gaussian(point, atoms, stride, m, d, gain, k, powers)
        for i in range(j, m):
            inverse[start + i - j] = k[i]
        start += m - j
    kept = truncated_cholesky(inverse, m, tolerance)
    invert_lower(inverse, m)
    return kept


@inline
def truncated_cholesky(inverse: np.ndarray, m: int, tolerance: float) -> int:
    """Packed positive semi-definite matrix, in place, to its Cholesky factor without the dropped rows; the rows
    kept.
    """
    # Cholesky in place, left to right; the update by column j of the columns behind it is an axpy.
    kept = 0
    start = 0
    for j in range(m):
        n = m - j
        column = inverse[start : start + n]
        if column[0] <= tolerance:
            for i in range(n):
                column[i] = 0.0
        else:
            kept += 1
            pivot = np.sqrt(column[0])
            scale = 1.0 / pivot
            for i in range(n):
                column[i] *= scale
            column[0] = pivot
            later = start + n
            for c in range(1, n):
                a = -column[c]
                target = inverse[later : later + n - c]
                source = column[c:]
                for i in range(n - c):
                    target[i] += a * source[i]
                later += n - c
        start += n
    # A dropped atom's row must vanish too: its coordinate is 0, whatever the columns before it say.
    for i in range(m):
        if inverse[packed_start(i, m)] == 0.0:
            for j in range(i):
                inverse[packed_start(j, m) + i - j] = 0.0
    return kept


@inline
def invert_lower(lower: np.ndarray, m: int) -> None:
    """Packed lower triangular L, in place, to L^-1; a column whose pivot is 0 becomes 0, and so does that row.

    Args:
        lower: float64[m (m + 1) / 2], by columns; on entry a dropped atom's column is 0.
        m: order.
    """
    # Columns from the last to the first: X[j+1:, j] = -X[j+1:, j+1:] L[j+1:, j] / L[j, j], with X for L^-1.
    size = packed_size(m)
    start = size
    for back in range(m):
        j = m - 1 - back
        n = m - j - 1
        start -= n + 1
        pivot = lower[start]
        if pivot == 0.0:
            continue
        scale = 1.0 / pivot
        column = lower[start + 1 : start + 1 + n]
        inner = start + 1 + n + packed_size(n)
        # In place from the bottom: entry i of the product needs entries <= i of the column alone.
        for r in range(n):
            i = n - 1 - r
            inner -= r + 1
            value = column[i]
            block = lower[inner : inner + r + 1]
            rest = column[i:]
            rest[0] = 0.0
            for s in range(r + 1):
                rest[s] += value * block[s]
        for i in range(n):
            column[i] *= -scale
        lower[start] = scale


@inline
def _kernel_column(
    sample: np.ndarray, n: int, d: int, gain: float, at: int, column: np.ndarray, powers: np.ndarray
) -> None:
    for i in range(n):
        total = 0.0
        for j in range(d):
            delta = sample[i * d + j] - sample[at * d + j]
            total += delta * delta
        column[i] = gain * total
    exp_or_zero(column, powers, n)
