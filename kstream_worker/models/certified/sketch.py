"""Nystrom sketches K~ = K S (S' K S)^+ S' K, held as a factor F with K~ = F F'."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
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


def landmark_factor(K: FloatMatrix, landmarks: NDArray[np.int64]) -> FloatMatrix:
    """F of the sketch whose S picks rows of K, by pivoted Cholesky: rows that add nothing beyond rounding are left out.

    Args:
        K: float64[n, n], symmetric.
        landmarks: int64[s], distinct, s >= 0.

    Returns:
        float64[n, rank], rank <= s.
    """
    s = len(landmarks)
    inner = K[np.ix_(landmarks, landmarks)]
    largest = float(inner.diagonal().max(initial=0.0))
    if largest <= 0.0:
        return np.zeros((len(K), 0))
    lower, pivots, rank, _ = linalg.lapack.dpstrf(inner, lower=1, tol=s * CUTOFF * largest)
    sections = K[:, landmarks[pivots[:rank] - 1]]
    solved = linalg.solve_triangular(np.tril(lower[:rank, :rank]), sections.T, lower=True, check_finite=False)
    factor: FloatMatrix = np.ascontiguousarray(solved.T)
    return factor
