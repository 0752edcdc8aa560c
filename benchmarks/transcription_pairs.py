"""The explicit-pairs detector written down plainly: dense matrices, one key, no tricks. The yardstick of `arl_pairs`.

It shares nothing with `kstream_worker.detectors` or `.models`; where the description leaves something open (which
points give scale and atoms, where the ridge is put back) it makes the same choice, in other arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kstream_worker.numerics.jit import jit

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


@jit
def _features(z: np.ndarray, atoms: np.ndarray, white: np.ndarray, width: float, out: np.ndarray) -> None:
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


@jit
def _dot(a: np.ndarray, b: np.ndarray) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@jit
def _observe(P: np.ndarray, v: np.ndarray, weight: float) -> None:
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


@jit
def _least_squares(
    w: np.ndarray, P: np.ndarray, p: np.ndarray, q: np.ndarray, fx: float, fy: float, step: int, alpha: float
) -> None:
    """One step with forgetting; every eighth step puts back in one coordinate what forgetting took from the ridge."""
    m = w.size
    for i in range(m):
        for j in range(m):
            P[i, j] /= GAMMA
    _observe(P, p, 1 - alpha)
    _observe(P, q, alpha)
    target = (1 - alpha * fy) * q - (1 - alpha) * fx * p
    for i in range(m):
        w[i] += _dot(P[i], target)
    if step % 8 == 0:
        j = (step // 8 - 1) % m
        unit = np.zeros(m)
        unit[j] = 1.0
        added = RIDGE * (1 - GAMMA ** (8 * m))
        _observe(P, unit, added)
        former = w[j]
        for i in range(m):
            w[i] -= added * former * P[i, j]


@jit
def _scores(z: np.ndarray, products: bool) -> np.ndarray:
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


@jit
def _watch(
    X: np.ndarray,
    Y: np.ndarray,
    arl: float,
    alpha: float,
    products: bool,
    weights: np.ndarray,
    atoms: np.ndarray,
    whites: np.ndarray,
    widths: np.ndarray,
    w: np.ndarray,
    P: np.ndarray,
    square: np.ndarray,
    R: np.ndarray,
    count: np.ndarray,
    norm: np.ndarray,
) -> int:
    """Index of the first pair at which R >= arl, -1 if none. X, Y scaled and clipped; what follows widths changes."""
    m = atoms.shape[0]
    columns = square.size
    fixed = columns - 3
    p = np.empty(m)
    q = np.empty(m)
    D = np.zeros(columns)
    for i in range(X.shape[0]):
        D[:fixed] = _scores(Y[i], products) - _scores(X[i], products)
        count[0] += 1
        for e in range(3):
            _features(X[i], atoms, whites[e], widths[e], p)
            _features(Y[i], atoms, whites[e], widths[e], q)
            fx = 1.0 + _dot(w[e], p)
            fy = 1.0 + _dot(w[e], q)
            D[fixed + e] = fy - fx
            if e < 2:
                w[e] = (1 - ETA[e] * LAM[e]) * w[e] - ETA[e] * (1 - alpha) * fx * p + ETA[e] * (1 - alpha * fy) * q
            else:
                _least_squares(w[e], P, p, q, fx, fy, count[0], alpha)
        value = 0.0
        for k in range(columns):
            b = 0.0
            if norm[0] > 0 and square[k] > 0:
                b = math.tanh(D[k] / math.sqrt(square[k] / norm[0]))
            square[k] = 0.99 * square[k] + 0.01 * D[k] ** 2
            total = 0.0
            for c in range(5):
                R[k, c] = (R[k, c] + 1) * (1 + STAKES[c] * b)
                R[k, 5 + c] = (R[k, 5 + c] + 1) * (1 - STAKES[c] * b)
                total += R[k, c] + (R[k, 5 + c] if k < fixed else 0.0)
            value += weights[k] * total / (10 if k < fixed else 5)
        norm[0] = 0.99 * norm[0] + 0.01
        if value >= arl:
            return i
    return -1


def column_weights(dims: int, products: bool) -> NDArray[np.float64]:
    """Learned .5 in three parts; coordinates and radius .25 (.5 without products); products .25."""
    simple = 0.25 if products else 0.5
    parts = [np.full(dims + 1, simple / (dims + 1))]
    if products:
        pairs = dims * (dims + 1) // 2
        parts.append(np.full(pairs, 0.25 / pairs))
    return np.concatenate([*parts, np.full(3, 0.5 / 3)])


class Transcription:
    """The detector of one key; `copy.deepcopy` gives a second one that goes on from the same state."""

    def __init__(
        self, dims: int, *, arl: float, warmup: int = 200, alpha: float = 0.1, atoms: int | None = None
    ) -> None:
        self._arl, self._warmup, self._alpha = arl, warmup, alpha
        self._most = atoms if atoms is not None else (100 if dims >= 10 else 50)
        self._products = dims <= 10
        self._weights = column_weights(dims, self._products)
        self._model: list[Any] = []
        self._x, self._y = np.empty((0, dims)), np.empty((0, dims))

    def feed(self, x: FloatMatrix, y: FloatMatrix, *, first: bool = False) -> list[int]:
        """Rows of these pairs that raise an alarm; after each everything starts anew. With `first`, stop at one."""
        found: list[int] = []
        at = 0
        while at < len(x):
            if not self._model:
                take = self._warmup - len(self._x)
                self._x = np.concatenate([self._x, x[at : at + take]])
                self._y = np.concatenate([self._y, y[at : at + take]])
                at += take
                if len(self._x) == self._warmup:
                    self._fit()
                continue
            options = (self._arl, self._alpha, self._products, self._weights)
            hit = int(_watch(self._scaled(x[at:]), self._scaled(y[at:]), *options, *self._model))
            if hit < 0:
                break
            found.append(at + hit)
            at += hit + 1
            self._forget(x.shape[1])
            if first:
                break
        return found

    def _forget(self, dims: int) -> None:
        self._model = []
        self._x, self._y = np.empty((0, dims)), np.empty((0, dims))

    def _scaled(self, z: FloatMatrix) -> FloatMatrix:
        return np.clip((z - self._median) / self._spread, -6, 6)

    def _fit(self) -> None:
        first = np.concatenate([self._x, self._y])
        self._median, self._spread = scale_of(first)
        scaled = self._scaled(first)
        square = ((scaled[:, None, :] - scaled[None, :, :]) ** 2).sum(axis=2)[np.triu_indices(len(scaled), 1)]
        middle = float(np.sqrt(np.median(square[square > 0]))) if (square > 0).any() else 1.0
        chosen = choose_atoms(scaled, 0.7 * middle, self._most)
        widths = FACTORS * middle
        whites = np.stack([whitener(chosen, width) for width in widths])
        m, columns = len(chosen), len(self._weights)
        counts = np.zeros(1, dtype=np.int64)
        learned = (np.zeros((3, m)), np.eye(m) / RIDGE)
        bets = (np.zeros(columns), np.zeros((columns, 10)), counts, np.zeros(1))
        self._model = [chosen, whites, widths, *learned, *bets]
