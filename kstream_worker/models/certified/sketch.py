"""Nystrom sketches K~ = K S (S' K S)^+ S' K, held as a factor F with K~ = F F'."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from kstream_worker.records import FloatMatrix

CUTOFF = 1e-11  # of the largest eigenvalue of S' K S: what is below counts as 0 in the pseudo-inverse


def nystrom_factor(K: FloatMatrix, S: FloatMatrix) -> FloatMatrix:
    """F of the sketch with any S, by the eigenvectors of S' K S.

    Args:
        K: float64[n, n], symmetric.
        S: float64[n, s], s >= 0.

    Returns:
        float64[n, rank], rank <= s.
    """
    sections = K @ S
    inner = S.T @ sections
    values, vectors = linalg.eigh(0.5 * (inner + inner.T)) if S.shape[1] else (np.zeros(0), np.zeros((0, 0)))
    kept = values > CUTOFF * max(float(values.max(initial=0.0)), 0.0)
    factor: FloatMatrix = np.ascontiguousarray(sections @ (vectors[:, kept] / np.sqrt(values[kept])))
    return factor
