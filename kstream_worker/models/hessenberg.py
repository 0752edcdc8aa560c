"""Hessenberg form and eigenvalues of a small real matrix: Householder's reduction, Francis' double-shift QR."""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.nystrom import dot
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.outline import outline

EPS = 2.220446049250313e-16
_SWEEPS = 40  # of QR per eigenvalue; 2 to 3 are needed in the mean


@inline
def reduce(a: np.ndarray, n: int, scales: np.ndarray, line: np.ndarray) -> None:
    """a <- its Hessenberg form; below it the reflectors (first entry 1, not stored), their factors in `scales`."""
    outline()
    for k in range(n - 2):
        square = 0.0
        for i in range(k + 2, n):
            square += a[i, k] * a[i, k]
        scales[k] = 0.0
        if square == 0.0:
            continue
        first = a[k + 1, k]
        length = math.sqrt(first * first + square)
        turned = length if first <= 0.0 else -length
        head = first - turned
        for i in range(k + 2, n):
            a[i, k] /= head
        scales[k] = 2.0 / (1.0 + square / (head * head))
        _reflect(a, n, k, scales[k], line)
        a[k + 1, k] = turned


@inline
def _reflect(a: np.ndarray, n: int, k: int, scale: float, line: np.ndarray) -> None:
    """Apply reflector k to the columns after k from the left, then to all rows from the right."""
    outline()
    for j in range(k + 1, n):
        line[j] = a[k + 1, j]
    for i in range(k + 2, n):
        v = a[i, k]
        for j in range(k + 1, n):
            line[j] += v * a[i, j]
    for j in range(k + 1, n):
        line[j] *= scale
        a[k + 1, j] -= line[j]
    for i in range(k + 2, n):
        v = a[i, k]
        for j in range(k + 1, n):
            a[i, j] -= v * line[j]
    m = n - k - 1
    line[0] = 1.0
    for i in range(1, m):
        line[i] = a[k + 1 + i, k]
    for i in range(n):
        row = a[i, k + 1 :]
        s = scale * dot(row, line, m)
        for j in range(m):
            row[j] -= s * line[j]


@inline
def turn_back(a: np.ndarray, n: int, scales: np.ndarray, x: np.ndarray) -> None:
    """x <- Q x, Q the product of the reflectors of `reduce`."""
    outline()
    for back in range(n - 2):
        k = n - 3 - back
        s = x[k + 1]
        for i in range(k + 2, n):
            s += a[i, k] * x[i]
        s *= scales[k]
        x[k + 1] -= s
        for i in range(k + 2, n):
            x[i] -= s * a[i, k]


@inline
def all_eigenvalues(a: np.ndarray, n: int, h: np.ndarray, re: np.ndarray, im: np.ndarray) -> bool:
    """re, im <- eigenvalues of the Hessenberg form in `a`, which stays; False when QR does not converge."""
    outline()
    norm = 0.0
    for i in range(n):
        for j in range(n):
            h[i, j] = a[i, j] if j >= i - 1 else 0.0
            norm += abs(h[i, j])
    high = n - 1
    sweeps = 0
    while high >= 0:
        low = _decoupled(h, high, norm)
        if low == high:
            re[high] = h[high, high]
            im[high] = 0.0
            high -= 1
            sweeps = 0
        elif low == high - 1:
            _two_by_two(h, high, re, im)
            high -= 2
            sweeps = 0
        else:
            sweeps += 1
            if sweeps > _SWEEPS:
                return False
            _francis(h, low, high, sweeps)
    return True


@inline
def _decoupled(h: np.ndarray, high: int, norm: float) -> int:
    """First row of the block that ends at `high` and has no negligible subdiagonal entry."""
    low = high
    while low > 0:
        beside = abs(h[low - 1, low - 1]) + abs(h[low, low])
        if beside == 0.0:
            beside = norm
        if abs(h[low, low - 1]) <= EPS * beside:
            h[low, low - 1] = 0.0
            break
        low -= 1
    return low


@inline
def _two_by_two(h: np.ndarray, j: int, re: np.ndarray, im: np.ndarray) -> None:
    """Eigenvalues of the block of rows j - 1 and j."""
    half = 0.5 * (h[j - 1, j - 1] - h[j, j])
    product = h[j - 1, j] * h[j, j - 1]
    square = half * half + product
    root = math.sqrt(abs(square))
    if square >= 0.0:
        larger = half + root if half >= 0.0 else half - root
        re[j - 1] = h[j, j] + larger
        re[j] = h[j, j] - product / larger if larger != 0.0 else h[j, j]
        im[j - 1] = 0.0
        im[j] = 0.0
    else:
        re[j - 1] = h[j, j] + half
        re[j] = re[j - 1]
        im[j - 1] = root
        im[j] = -root


@inline
def _francis(h: np.ndarray, low: int, high: int, sweep: int) -> None:
    """One double-shift step on the block, which has at least three rows."""
    outline()
    if sweep % 10 == 0:  # an exceptional shift breaks a cycle
        s = abs(h[high, high - 1]) + abs(h[high - 1, high - 2])
        total = 1.5 * s
        product = s * s
    else:
        total = h[high - 1, high - 1] + h[high, high]
        product = h[high - 1, high - 1] * h[high, high] - h[high - 1, high] * h[high, high - 1]
    x = h[low, low] * h[low, low] + h[low, low + 1] * h[low + 1, low] - total * h[low, low] + product
    y = h[low + 1, low] * (h[low, low] + h[low + 1, low + 1] - total)
    z = h[low + 1, low] * h[low + 2, low + 1]
    for k in range(low, high):
        last = k == high - 1
        if last:
            z = 0.0
        length = math.sqrt(x * x + y * y + z * z)
        if length > 0.0:
            head = x + length if x > 0.0 else x - length
            v = y / head
            w = z / head
            _sweep_block(h, low, high, k, last, v, w, 2.0 / (1.0 + v * v + w * w))
        x = h[k + 1, k]
        if k + 2 <= high:
            y = h[k + 2, k]
        z = h[k + 3, k] if k + 3 <= high else 0.0


@inline
def _sweep_block(h: np.ndarray, low: int, high: int, k: int, last: bool, v: float, w: float, scale: float) -> None:
    """Reflector (1, v, w) on rows and columns k, k + 1, k + 2 of the block (the last one on two of each)."""
    outline()
    first = max(low, k - 1)
    end = min(high, k + 3) + 1
    if last:
        for j in range(first, high + 1):
            s = scale * (h[k, j] + v * h[k + 1, j])
            h[k, j] -= s
            h[k + 1, j] -= s * v
        for i in range(low, end):
            s = scale * (h[i, k] + v * h[i, k + 1])
            h[i, k] -= s
            h[i, k + 1] -= s * v
        return
    for j in range(first, high + 1):
        s = scale * (h[k, j] + v * h[k + 1, j] + w * h[k + 2, j])
        h[k, j] -= s
        h[k + 1, j] -= s * v
        h[k + 2, j] -= s * w
    for i in range(low, end):
        s = scale * (h[i, k] + v * h[i, k + 1] + w * h[i, k + 2])
        h[i, k] -= s
        h[i, k + 1] -= s * v
        h[i, k + 2] -= s * w
