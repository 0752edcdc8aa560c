"""The covariance P of recursive least squares, a full symmetric matrix: products, fading, symmetry to the last bit."""

from __future__ import annotations

import numpy as np

from kstream_worker.models import nystrom
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import fill, load, store
from kstream_worker.numerics.outline import outline


@inline
def times(cov: np.ndarray, m: int, room: int, p: np.ndarray, out: np.ndarray) -> float:
    """out <- P p, 0 from entry m on; p' P p, at least 0.

    Args:
        cov: float64[room * room].
        m: features.
        room: entries of a row.
        p: float64[room], 0 from entry m on.
        out: float64[room], result.
    """
    outline()
    padded = (m + 3) // 4 * 4
    for i in range(room):
        out[i] = nystrom.dot(cov[i * room : i * room + padded], p, padded) if i < m else 0.0
    return max(nystrom.dot(out, p, padded), 0.0)


@inline
def fade_and_subtract(
    cov: np.ndarray, m: int, room: int, fade: float, root: float, h: np.ndarray, scaled: np.ndarray
) -> None:
    """P <- fade P - (root h)(root h)': symmetric to the last bit. `scaled`: float64[room], scratch."""
    outline()
    padded = (m + 3) // 4 * 4
    for i in range(room):
        scaled[i] = root * h[i]
    keep = fill(fade)
    for i in range(m):
        minus = fill(scaled[i])
        for j in range(0, padded, 4):
            at = i * room + j
            store(cov, at, keep * load(cov, at) - minus * load(scaled, j))


@inline
def symmetrise(cov: np.ndarray, m: int, room: int) -> None:
    """Copy the upper triangle to the lower: what is not symmetric would grow as gamma^-t."""
    for i in range(m):
        for j in range(i):
            cov[i * room + j] = cov[j * room + i]
