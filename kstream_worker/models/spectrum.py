"""Leading eigenvalues and eigenvectors of a small real matrix without symmetry, with the same bits on every CPU.

Householder reduction to Hessenberg form, Francis' double-shift QR for the eigenvalues, inverse iteration on the
Hessenberg form for the eigenvectors (Golub and Van Loan, "Matrix Computations", sections 7.4 to 7.6). Sums run in a
fixed order and nothing is taken from LAPACK, so what follows may be a key's state.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.hessenberg import EPS, all_eigenvalues, reduce, turn_back
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.outline import outline

_INVERSE_SWEEPS = 3
_HUGE = 1e150  # what a chain of zero pivots grows to is scaled down there


class Workspace(NamedTuple):
    """Work space for matrices of an order up to `room`; holds nothing between calls."""

    squares: NDArray[np.float64]  # [3, room, room]; the first holds the matrix
    lines: NDArray[np.float64]  # [5, room]
    marks: NDArray[np.int64]  # [2, room]


def make_workspace(room: int) -> Workspace:
    """Work space for matrices of an order up to `room`."""
    return Workspace(np.zeros((3, room, room)), np.zeros((5, room)), np.zeros((2, room), dtype=np.int64))


@inline
def leading_modes(n: int, modes: int, w: Workspace, values: np.ndarray, vectors: np.ndarray, stride: int) -> int:
    """The eigenvalues of largest modulus of `w.squares[0]`, of a conjugate pair the one with im > 0, and their vectors.

    Args:
        n: order of the matrix.
        modes: how many are wanted.
        w: work space, the matrix in `w.squares[0, :n, :n]`, which is overwritten.
        values: float64[>= 2 modes], result: re, im, re, im, ..., by falling modulus; NaN beyond the number found.
        vectors: float64[>= 2 modes stride], result: re of the first (n entries of a room of `stride`), its im, re of
            the second, ...; of length 1, the entry of largest modulus real and positive; 0 beyond n.
        stride: room for one part of a vector, at least n.

    Returns:
        Modes found; 0 if QR did not converge.
    """
    outline()
    for i in range(2 * modes):
        values[i] = math.nan
    for i in range(2 * modes * stride):
        vectors[i] = 0.0
    a, b, c = w.squares[0], w.squares[1], w.squares[2]
    scales, left, right, re, im = w.lines[0], w.lines[1], w.lines[2], w.lines[3], w.lines[4]
    order, swaps = w.marks[0], w.marks[1]
    reduce(a, n, scales, left)
    if not all_eigenvalues(a, n, b, re, im):
        return 0
    found = _pick(n, modes, re, im, order)
    for k in range(found):
        i = order[k]
        values[2 * k] = re[i]
        values[2 * k + 1] = im[i]
        x = vectors[2 * k * stride : (2 * k + 1) * stride]
        y = vectors[(2 * k + 1) * stride : (2 * k + 2) * stride]
        floor = _factor(a, n, re[i], im[i], b, c, left, right, swaps)
        _start(n, k, x, y)
        for _ in range(_INVERSE_SWEEPS):
            _solve(n, floor, b, c, left, right, swaps, x, y)
        turn_back(a, n, scales, x)
        turn_back(a, n, scales, y)
        normalise(n, x, y)
    return found


@inline
def normalise(n: int, x: np.ndarray, y: np.ndarray) -> None:
    """x + iy <- of length 1, its entry of largest modulus real and positive (of equals the first)."""
    largest = 0
    peak = -1.0
    square = 0.0
    for i in range(n):
        modulus = x[i] * x[i] + y[i] * y[i]
        square += modulus
        if modulus > peak:
            peak = modulus
            largest = i
    turn(n, x, y, x[largest], -y[largest], math.sqrt(square) * math.sqrt(peak))


@inline
def turn(n: int, x: np.ndarray, y: np.ndarray, re: float, im: float, divisor: float) -> None:
    """x + iy <- (x + iy) (re + i im) / divisor; as it was where the divisor is 0."""
    outline()
    if divisor == 0.0:
        return
    c = re / divisor
    s = im / divisor
    for i in range(n):
        u = x[i]
        x[i] = c * u - s * y[i]
        y[i] = c * y[i] + s * u


@inline
def _pick(n: int, modes: int, re: np.ndarray, im: np.ndarray, order: np.ndarray) -> int:
    """order[:found] <- eigenvalues with im >= 0 by falling modulus; equals by falling re, then by place."""
    found = 0
    for _ in range(min(modes, n)):
        best = -1
        for i in range(n):
            if im[i] < 0.0:
                continue
            taken = False
            for k in range(found):
                taken = taken or order[k] == i
            if not taken and (best < 0 or _before(re, im, i, best)):
                best = i
        if best < 0:
            break
        order[found] = best
        found += 1
    return found


@inline
def _before(re: np.ndarray, im: np.ndarray, i: int, j: int) -> bool:
    left = re[i] * re[i] + im[i] * im[i]
    right = re[j] * re[j] + im[j] * im[j]
    return bool(left > right or (left == right and re[i] > re[j]))


@inline
def _start(n: int, mode: int, x: np.ndarray, y: np.ndarray) -> None:
    """Modes start from different vectors, so that of a multiple eigenvalue not all get the same one."""
    for i in range(n):
        x[i] = 1.0 if mode == 0 or (i // mode) % 2 == 0 else -1.0
        y[i] = 0.0


@inline
def _factor(
    h: np.ndarray,
    n: int,
    re: float,
    im: float,
    a: np.ndarray,
    b: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    swaps: np.ndarray,
) -> float:
    """a + ib <- upper factor of H - (re + i im), rows exchanged where the one below is larger.

    Multipliers go to left + i right, exchanges to swaps.

    Returns:
        what stands for a pivot below it: eps |H|.
    """
    outline()
    norm = 1e-100
    for i in range(n):
        for j in range(n):
            a[i, j] = h[i, j] if j >= i - 1 else 0.0
            b[i, j] = 0.0
            norm = max(norm, abs(a[i, j]))
        a[i, i] -= re
        b[i, i] = -im
    floor = norm * EPS
    for k in range(n - 1):
        swaps[k] = 0
        if abs(a[k, k]) + abs(b[k, k]) < abs(a[k + 1, k]) + abs(b[k + 1, k]):
            swaps[k] = 1
            for j in range(k, n):
                a[k, j], a[k + 1, j] = a[k + 1, j], a[k, j]
                b[k, j], b[k + 1, j] = b[k + 1, j], b[k, j]
        p, q = a[k, k], b[k, k]
        if abs(p) + abs(q) < floor:
            p, q = floor, 0.0
        square = p * p + q * q
        c = (a[k + 1, k] * p + b[k + 1, k] * q) / square
        s = (b[k + 1, k] * p - a[k + 1, k] * q) / square
        left[k] = c
        right[k] = s
        for j in range(k + 1, n):
            a[k + 1, j] -= c * a[k, j] - s * b[k, j]
            b[k + 1, j] -= c * b[k, j] + s * a[k, j]
    return floor


@inline
def _solve(
    n: int,
    floor: float,
    a: np.ndarray,
    b: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    swaps: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
) -> None:
    """One sweep of inverse iteration with what `_factor` left, the largest part of x + iy then 1."""
    outline()
    for k in range(n - 1):
        if swaps[k] == 1:
            x[k], x[k + 1] = x[k + 1], x[k]
            y[k], y[k + 1] = y[k + 1], y[k]
        x[k + 1] -= left[k] * x[k] - right[k] * y[k]
        y[k + 1] -= left[k] * y[k] + right[k] * x[k]
    largest = 0.0
    for back in range(n):
        k = n - 1 - back
        u = x[k]
        v = y[k]
        for j in range(k + 1, n):
            u -= a[k, j] * x[j] - b[k, j] * y[j]
            v -= a[k, j] * y[j] + b[k, j] * x[j]
        p, q = a[k, k], b[k, k]
        if abs(p) + abs(q) < floor:
            p, q = floor, 0.0
        square = p * p + q * q
        x[k] = (u * p + v * q) / square
        y[k] = (v * p - u * q) / square
        size = max(abs(x[k]), abs(y[k]))
        if size > _HUGE:
            for i in range(n):
                x[i] /= size
                y[i] /= size
            largest, size = 0.0, 1.0
        largest = max(largest, size)
    for i in range(n):
        x[i] /= largest
        y[i] /= largest
