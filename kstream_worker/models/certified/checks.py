"""What may be solved: one check of all arguments, whose errors say what to do."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kstream_worker.numerics.jit import jit
from kstream_worker.records import FloatColumn, FloatMatrix

_BLOCK = 64


@jit
def _symmetric_and_finite(K: np.ndarray) -> bool:
    n = K.shape[0]
    for top in range(0, n, _BLOCK):
        for left in range(0, top + 1, _BLOCK):
            for i in range(top, min(top + _BLOCK, n)):
                for j in range(left, min(left + _BLOCK, n)):
                    if K[i, j] != K[j, i] or not np.isfinite(K[i, j]):
                        return False
    return True


def check_system(
    K: ArrayLike, y: ArrayLike, tau: float, eta: float, budget: int
) -> tuple[FloatMatrix, FloatColumn, float]:
    """K and y as C-contiguous float64, and tau.

    Raises:
        ValueError: shapes do not fit, K is not symmetric, something is not finite, tau is not above 0, or eta or the
            budget is negative.
    """
    matrix = np.ascontiguousarray(K, dtype=np.float64)
    values = np.ascontiguousarray(y, dtype=np.float64)
    n = len(values) if values.ndim == 1 else 0
    if n == 0 or matrix.shape != (n, n):
        raise ValueError(f"K has shape {matrix.shape}, y {values.shape}: they must be (n, n) and (n,), n at least 1")
    if not _symmetric_and_finite(matrix):
        raise ValueError("K must be finite and exactly symmetric; average it with its transpose: (K + K.T) / 2")
    if not np.isfinite(values).all():
        raise ValueError("y must be finite")
    if not (np.isfinite(tau) and tau > 0.0):
        raise ValueError(f"tau is {tau}; it must be finite and above 0: without a ridge nothing can be certified")
    if not eta >= 0.0:
        raise ValueError(f"eta is {eta}; a tolerance must be at least 0")
    if budget < 0:
        raise ValueError(f"budget is {budget}; it must not be negative")
    return matrix, values, float(tau)
