"""The explicit-pairs detector written down plainly: dense matrices, one key, no tricks. The yardstick of `arl_pairs`.

It shares nothing with `kstream_worker.detectors` or `.models`; where the description leaves something open (which points
give scale and atoms, where the ridge is put back) it makes the same choice, in other arithmetic.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

FloatMatrix = NDArray[np.float64]

STAKES = np.array([0.05, 0.1, 0.2, 0.4, 0.7])
FACTORS = np.array([1.4, 0.35, 0.7])  # widths of SGD, SGD, RLS in units of the median distance
ETA = np.array([0.3, 0.1])
LAM = np.array([0.05, 0.02])
GAMMA = 0.995
RIDGE = 1.0
PIVOT = 1e-10


def scale_of(sample: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    """Median and spread per feature: IQR / 1.349, else (q95 - q5) / 3.29, else 1."""
    q05, q25, median, q75, q95 = np.quantile(sample, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    floor = 1e-9 * np.abs(median)
    spread = np.where((q75 - q25) / 1.349 > floor, (q75 - q25) / 1.349, (q95 - q05) / 3.29)
    return median, np.where(spread > floor, spread, 1.0)


def choose_atoms(sample: FloatMatrix, width: float, most: int) -> FloatMatrix:
    """Pivoted Cholesky: always the point whose squared distance to the span of the chosen ones is largest."""
    rest = np.ones(len(sample))
    rows: list[NDArray[np.float64]] = []
    chosen: list[int] = []
    while len(chosen) < most and rest.max() > PIVOT:
        i = int(rest.argmax())
        k = np.exp(-((sample - sample[i]) ** 2).sum(axis=1) / (2 * width**2))
        for row in rows:
            k = k - row * row[i]
        k = k / math.sqrt(rest[i])
        rows.append(k)
        chosen.append(i)
        rest = np.maximum(rest - k * k, 0.0)
        rest[i] = 0.0
    return sample[chosen]


def whitener(atoms: FloatMatrix, width: float) -> FloatMatrix:
    """A with A K A' = 1 on the span: inverse of the Cholesky factor, rows of dependent atoms 0."""
    square = ((atoms[:, None, :] - atoms[None, :, :]) ** 2).sum(axis=2)
    gram = np.exp(-square / (2 * width**2))
    n = len(atoms)
    out = np.zeros((n, n))
    for i in range(n):  # Gram-Schmidt of the kernel functions
        v = np.zeros(n)
        v[i] = 1.0
        for _ in range(2):
            for j in range(i):
                v = v - (out[j] @ gram @ v) * out[j]
        norm = v @ gram @ v
        if norm > PIVOT:
            out[i] = v / math.sqrt(norm)
    return out


@numba.njit(cache=False)
def _features(z, atoms, white, width, out):
    n, d = atoms.shape
    k = np.empty(n)
    for i in range(n):
        square = 0.0
        for j in range(d):
            square += (z[j] - atoms[i, j]) ** 2
        k[i] = math.exp(-square / (2.0 * width * width))
    for i in range(n):
        total = 0.0
        for j in range(i + 1):
            total += white[i, j] * k[j]
        out[i] = total


@numba.njit(cache=False)
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@numba.njit(cache=False)
def _observe(P, v, weight):
    """P <- (P^-1 + weight v v')^-1."""
    n = v.size
    g = np.zeros(n)
    for i in range(n):
        for j in range(n):
            g[i] += P[i, j] * v[j]
    factor = weight / (1.0 + weight * _dot(v, g))
    for i in range(n):
        for j in range(n):
            P[i, j] -= factor * g[i] * g[j]


@numba.njit(cache=False)
def _scores(z, products):
    d = z.size
    out = np.zeros(d + 1 + (d * (d + 1) // 2 if products else 0))
    out[:d] = z
    out[d] = math.sqrt(_dot(z, z))
    k = d + 1
    if products:
        for i in range(d):
            for j in range(i, d):
                out[k] = z[i] * z[j]
                k += 1
    return out


@numba.njit(cache=False)
def _watch(X, Y, atoms, whites, widths, arl, alpha, products, weights):
    """Index of the first pair at which R >= arl, -1 if none. X, Y scaled and clipped."""
    m, d = atoms.shape
    w = np.zeros((3, m))
    P = np.eye(m) / RIDGE
    fixed = d + 1 + (d * (d + 1) // 2 if products else 0)
    columns = fixed + 3
    square = np.zeros(columns)
    norm = 0.0
    R = np.zeros((columns, 10))
    p = np.empty(m)
    q = np.empty(m)
    D = np.zeros(columns)
    for t in range(X.shape[0]):
        D[:fixed] = _scores(Y[t], products) - _scores(X[t], products)
        for e in range(3):
            _features(X[t], atoms, whites[e], widths[e], p)
            _features(Y[t], atoms, whites[e], widths[e], q)
            fx = 1.0 + _dot(w[e], p)
            fy = 1.0 + _dot(w[e], q)
            D[fixed + e] = fy - fx
            if e < 2:
                w[e] = (1 - ETA[e] * LAM[e]) * w[e] - ETA[e] * (1 - alpha) * fx * p + ETA[e] * (1 - alpha * fy) * q
            else:
                P /= GAMMA
                _observe(P, p, 1 - alpha)
                _observe(P, q, alpha)
                if t % 8 == 0:  # put back in one coordinate what forgetting took from the ridge
                    unit = np.zeros(m)
                    unit[(t // 8) % m] = 1.0
                    _observe(P, unit, RIDGE * (1 - GAMMA ** (8 * m)))
                    w[e] -= (RIDGE * (1 - GAMMA ** (8 * m))) * w[e][(t // 8) % m] * P[:, (t // 8) % m]
                step = (1 - alpha * fy) * q - (1 - alpha) * fx * p
                for i in range(m):
                    w[e, i] += _dot(P[i], step)
        value = 0.0
        for k in range(columns):
            b = 0.0
            if norm > 0 and square[k] > 0:
                b = math.tanh(D[k] / math.sqrt(square[k] / norm))
            square[k] = 0.99 * square[k] + 0.01 * D[k] ** 2
            total = 0.0
            for c in range(5):
                R[k, c] = (R[k, c] + 1) * (1 + STAKES[c] * b)
                R[k, 5 + c] = (R[k, 5 + c] + 1) * (1 - STAKES[c] * b)
                total += R[k, c] + (R[k, 5 + c] if k < fixed else 0.0)
            value += weights[k] * total / (10 if k < fixed else 5)
        norm = 0.99 * norm + 0.01
        if value >= arl:
            return t
    return -1


def column_weights(dims: int, products: bool) -> NDArray[np.float64]:
    """Learned .5 in three parts; coordinates and radius .25 (.5 without products); products .25."""
    simple = 0.25 if products else 0.5
    parts = [np.full(dims + 1, simple / (dims + 1))]
    if products:
        pairs = dims * (dims + 1) // 2
        parts.append(np.full(pairs, 0.25 / pairs))
    return np.concatenate([*parts, np.full(3, 0.5 / 3)])


def alarms(
    x: FloatMatrix, y: FloatMatrix, *, arl: float, warmup: int = 200, alpha: float = 0.1, atoms: int | None = None
) -> list[int]:
    """Indices of the pairs that raise an alarm; after each one everything starts anew (`rebase`)."""
    dims = x.shape[1]
    products = dims <= 10
    most = atoms if atoms is not None else (100 if dims >= 10 else 50)
    found: list[int] = []
    start = 0
    while start + warmup < len(x):
        first = np.concatenate([x[start : start + warmup], y[start : start + warmup]])
        median, spread = scale_of(first)
        scaled = np.clip((first - median) / spread, -6, 6)
        square = ((scaled[:, None, :] - scaled[None, :, :]) ** 2).sum(axis=2)[np.triu_indices(len(scaled), 1)]
        distances = np.sqrt(square[square > 0])
        middle = float(np.median(distances)) if len(distances) else 1.0
        chosen = choose_atoms(scaled, 0.7 * middle, most)
        widths = FACTORS * middle
        whites = np.stack([whitener(chosen, width) for width in widths])
        rest = slice(start + warmup, len(x))
        at = _watch(
            np.clip((x[rest] - median) / spread, -6, 6),
            np.clip((y[rest] - median) / spread, -6, 6),
            chosen,
            whites,
            widths,
            arl,
            alpha,
            products,
            column_weights(dims, products),
        )
        if at < 0:
            break
        found.append(start + warmup + int(at))
        start = found[-1] + 1
    return found
