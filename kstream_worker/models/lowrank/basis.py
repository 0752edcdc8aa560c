"""The accumulation matrices and the basis: step 4 of Algorithm 1 and one pass of Algorithm 3 (paper 002)."""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models.nystrom.features import dot
from kstream_worker.numerics.jit import inline, jit


@jit
def gram(basis: np.ndarray, p: int, d: int, g: np.ndarray) -> None:
    """Lower triangle of g <- D' D."""
    for i in range(d):
        column = basis[i * p : (i + 1) * p]
        for j in range(i + 1):
            g[i * d + j] = dot(column, basis[j * p : (j + 1) * p], p)


@jit
def accumulate(
    basis: np.ndarray,
    p: int,
    d: int,
    y: np.ndarray,
    cleaned: np.ndarray,
    v: np.ndarray,
    gamma: float,
    lambda3: float,
    a: np.ndarray,
    b: np.ndarray,
    m: np.ndarray,
) -> None:
    """A and B fade, then take in one sample with M; u is that of eq. 3.8 with the former D and M.

    M does not fade: each sample draws it towards D, and fading would only pull it, and with it D, towards 0.

    Args:
        basis: float64[d * p], D.
        p: sensors.
        d: columns.
        y: float64[>= p], the atom: the sample, 0 where missing.
        cleaned: float64[>= p], z - e; D v where missing.
        v: float64[>= d], coefficients of the sample.
        gamma: forgetting of A and B, in (0, 1].
        lambda3: weight of the constraint D = Y U, positive.
        a: float64[d * d], A, its lower triangle.
        b: float64[d * p], B.
        m: float64[d * p], M.
    """
    norm = dot(y, y, p) + 1.0 / lambda3
    for j in range(d):
        column = basis[j * p : (j + 1) * p]
        target = b[j * p : (j + 1) * p]
        atoms = m[j * p : (j + 1) * p]
        u = (dot(column, y, p) - dot(atoms, y, p)) / norm
        for i in range(p):
            atoms[i] += u * y[i]
            target[i] = gamma * target[i] + v[j] * cleaned[i]
        for k in range(j + 1):
            a[j * d + k] = gamma * a[j * d + k] + v[j] * v[k]


@jit
def improve_basis(
    basis: np.ndarray,
    p: int,
    d: int,
    a: np.ndarray,
    b: np.ndarray,
    m: np.ndarray,
    lambda1: float,
    lambda3: float,
    ridge: float,
    step: np.ndarray,
) -> None:
    """One pass of Algorithm 3 over the columns of D, in place, with a ridge |D|^2 / 2 beside (0 in the paper).

    Args:
        basis: float64[d * p], D.
        p: sensors.
        d: columns.
        a: float64[d * d], A, its lower triangle.
        b: float64[d * p], B.
        m: float64[d * p], M.
        lambda1: weight of the squared residual.
        lambda3: weight of the constraint D = Y U, positive.
        ridge: weight of |D|^2 / 2, not negative.
        step: float64[>= p], scratch.
    """
    for j in range(d):
        column = basis[j * p : (j + 1) * p]
        target = b[j * p : (j + 1) * p]
        atoms = m[j * p : (j + 1) * p]
        for i in range(p):
            step[i] = ridge * column[i] + lambda3 * (column[i] - atoms[i]) - lambda1 * target[i]
        for k in range(d):
            weight = lambda1 * (a[j * d + k] if k <= j else a[k * d + j])
            other = basis[k * p : (k + 1) * p]
            for i in range(p):
                step[i] += weight * other[i]
        scale = -1.0 / (lambda1 * a[j * d + j] + lambda3 + ridge)
        for i in range(p):
            column[i] += scale * step[i]


@inline
def balance(basis: np.ndarray, p: int, d: int, a: np.ndarray, b: np.ndarray, m: np.ndarray, ridge: float) -> None:
    """Scale D up or down, and the coefficients behind A and B the other way, so that |V|^2 = ridge |D|^2.

    The product D V' stays, and |V|^2 + ridge |D|^2 is least there (eq. 2.1 of paper 002): where the alternation of
    codes and bases creeps to anyway.
    """
    size = ridge * dot(basis, basis, d * p)
    trace = 0.0
    for j in range(d):
        trace += a[j * d + j]
    if not (size > 0.0 and trace > 0.0):
        return
    square = math.sqrt(trace / size)
    factor = math.sqrt(square)
    for k in range(d * p):
        basis[k] *= factor
        m[k] *= factor
        b[k] /= factor
    for k in range(d * d):
        a[k] /= square
