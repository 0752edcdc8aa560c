"""Packed triangles, kernel vectors and whitening: what turns a sample into features."""

from __future__ import annotations

import numpy as np

from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import fill, join1, join2, join3, load, store, total
from kstream_worker.numerics.math import exp_all

FLOOR_EXPONENT = -80.0  # kernel values below e^-80 = 1.8e-35 are 0: invisible beside 1, and no subnormals follow


@inline
def packed_size(m: int) -> int:
    """Entries of a packed triangle."""
    return m * (m + 1) // 2


@inline
def packed_start(j: int, m: int) -> int:
    """Where column j begins in a packed lower triangle of order m."""
    return j * m - j * (j - 1) // 2


@inline
def dot(a: np.ndarray, b: np.ndarray, n: int) -> float:
    """Sum of a[i] b[i] for i < n, any n: four interleaved sums, (s0 + s1) + (s2 + s3), then the rest in order."""
    s = fill(0.0)
    whole = n - n % 4
    for i in range(0, whole, 4):
        s = s + load(a, i) * load(b, i)
    result = total(s)
    for i in range(whole, n):
        result += a[i] * b[i]
    return result


@inline
def gaussian(
    z: np.ndarray,
    atoms: np.ndarray,
    stride: int,
    m: int,
    d: int,
    gain: float,
    k: np.ndarray,
    powers: np.ndarray,
) -> None:
    """k[i] <- exp(gain |z - atom_i|^2), exactly 0 where that is below e^-80.

    Args:
        z: float64[>= d].
        atoms: float64[d * stride].
        stride: room for atoms.
        m: atoms in use.
        d: features.
        gain: -1 / (2 width^2).
        k: float64[>= m], result.
        powers: int64[>= m], scratch.
    """
    slope = fill(gain)
    for i in range(0, m, 4):
        distance = fill(0.0)
        for j in range(d):
            delta = fill(z[j]) - load(atoms, j * stride + i)
            distance = distance + delta * delta
        store(k, i, slope * distance)
    exp_or_zero(k[:m], powers, m)


@inline
def exp_or_zero(k: np.ndarray, powers: np.ndarray, m: int) -> None:
    """k[i] <- e^k[i] for i < m and k[i] <= 0, exactly 0 below e^-80. `powers`: int64[>= m], scratch."""
    for i in range(m):
        k[i] = k[i] if k[i] > FLOOR_EXPONENT else -708.0
    exp_all(k, powers, m)
    for i in range(m):
        k[i] = k[i] if k[i] > 1e-300 else 0.0


@inline
def fourth_power(k: np.ndarray, m: int, out: np.ndarray) -> None:
    """out[i] <- k[i]^4: the Gaussian kernel at half the width; 0 below 1e-35 as in `gaussian`. `out` may be `k`."""
    k = k[:m]
    out = out[:m]
    for i in range(m):
        s = k[i] * k[i]
        s = s * s
        out[i] = s if s > 1e-35 else 0.0


@inline
def whiten(inverse: np.ndarray, m: int, k: np.ndarray, phi: np.ndarray) -> None:
    """phi[:m] <- L^-1 k[:m]."""
    zero = fill(0.0)
    for i in range(0, m, 4):
        store(phi, i, zero)
    c0 = 0
    for j in range(0, m, 4):
        # Four columns; each c is where that column's row 0 would be, so that rows below it may be addressed by number.
        c1 = c0 + m - j - 1
        c2 = c1 + m - j - 2
        c3 = c2 + m - j - 3
        a0 = fill(k[j])
        a1 = fill(k[j + 1])
        a2 = fill(k[j + 2])
        a3 = fill(k[j + 3])
        # Rows j..j+3: what stands before a column's diagonal belongs to another column.
        v0 = load(inverse, c0)
        v1 = join1(zero, load(inverse, c1))
        v2 = join2(zero, load(inverse, c2))
        v3 = join3(zero, load(inverse, c3))
        store(phi, j, load(phi, j) + ((a0 * v0 + a1 * v1) + (a2 * v2 + a3 * v3)))
        for i in range(4, m - j, 4):
            v0 = load(inverse, c0 + i)
            v1 = load(inverse, c1 + i)
            v2 = load(inverse, c2 + i)
            v3 = load(inverse, c3 + i)
            store(phi, j + i, load(phi, j + i) + ((a0 * v0 + a1 * v1) + (a2 * v2 + a3 * v3)))
        c0 = c3 + m - j


@inline
def whiten_pair(inverse: np.ndarray, m: int, kx: np.ndarray, ky: np.ndarray, p: np.ndarray, q: np.ndarray) -> None:
    """p[:m] <- L^-1 kx, q[:m] <- L^-1 ky: bit for bit what `whiten` gives for each, in one pass over L^-1."""
    zero = fill(0.0)
    for i in range(0, m, 4):
        store(p, i, zero)
        store(q, i, zero)
    c0 = 0
    for j in range(0, m, 4):
        c1 = c0 + m - j - 1
        c2 = c1 + m - j - 2
        c3 = c2 + m - j - 3
        a0 = fill(kx[j])
        a1 = fill(kx[j + 1])
        a2 = fill(kx[j + 2])
        a3 = fill(kx[j + 3])
        b0 = fill(ky[j])
        b1 = fill(ky[j + 1])
        b2 = fill(ky[j + 2])
        b3 = fill(ky[j + 3])
        v0 = load(inverse, c0)
        v1 = join1(zero, load(inverse, c1))
        v2 = join2(zero, load(inverse, c2))
        v3 = join3(zero, load(inverse, c3))
        store(p, j, load(p, j) + ((a0 * v0 + a1 * v1) + (a2 * v2 + a3 * v3)))
        store(q, j, load(q, j) + ((b0 * v0 + b1 * v1) + (b2 * v2 + b3 * v3)))
        for i in range(4, m - j, 4):
            v0 = load(inverse, c0 + i)
            v1 = load(inverse, c1 + i)
            v2 = load(inverse, c2 + i)
            v3 = load(inverse, c3 + i)
            store(p, j + i, load(p, j + i) + ((a0 * v0 + a1 * v1) + (a2 * v2 + a3 * v3)))
            store(q, j + i, load(q, j + i) + ((b0 * v0 + b1 * v1) + (b2 * v2 + b3 * v3)))
        c0 = c3 + m - j


@inline
def dual_weights(inverse: np.ndarray, m: int, w: np.ndarray, c: np.ndarray) -> None:
    """c[:m] <- L^-T w: then u(z) = sum_i c[i] k_i(z), without whitening z. For scoring many points with one w."""
    start = 0
    for j in range(m):
        c[j] = dot(inverse[start : start + m - j], w[j:m], m - j)
        start += m - j
