"""What the batch estimators share: Gaussian kernel matrices, eq. 8c, folds and subsets drawn from a seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist, pdist

Floats = NDArray[np.float64]


def as_points(name: str, values: ArrayLike) -> Floats:
    """float64[n, d] of finite numbers, n >= 1; ValueError otherwise."""
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or len(points) == 0:
        raise ValueError(f"{name} must be a matrix of n samples, one a row, not of shape {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError(f"{name} holds a number that is not finite")
    return points


def gaussian_matrix(a: Floats, b: Floats, sigma: float) -> Floats:
    """exp(-|a_i - b_j|^2 / (2 sigma^2)), float64[len(a), len(b)]."""
    matrix: Floats = np.exp(cdist(a, b, "sqeuclidean") / (-2.0 * sigma * sigma))
    return matrix


def pearson_divergence(f_x: Floats, f_y: Floats, alpha: float) -> float:
    """Eq. 8c of paper 004 with means for integrals: E_q f - alpha/2 E_q f^2 - (1-alpha)/2 E_p f^2 - 1/2.

    Args:
        f_x: float64[n], values at samples of p.
        f_y: float64[n'], values at samples of q.
        alpha: weight of q in the denominator of the ratio.
    """
    live = f_y.mean() - 0.5 * alpha * np.square(f_y).mean()
    return float(live - 0.5 * (1.0 - alpha) * np.square(f_x).mean() - 0.5)


def median_distance(points: Floats, *, seed: int, most: int = 500) -> float:
    """Median of the distances that are not 0 between at most `most` of the points; 1 where there are none."""
    distances = pdist(subset(points, most, seed=seed))
    distances = distances[distances > 0.0]
    return float(np.median(distances)) if len(distances) else 1.0


def subset(points: Floats, most: int, *, seed: int) -> Floats:
    """At most `most` of the points, drawn without replacement."""
    if len(points) <= most:
        return points
    chosen: Floats = points[np.random.default_rng(seed).choice(len(points), most, replace=False)]
    return chosen


def folds(n: int, count: int, *, seed: int) -> NDArray[np.int64]:
    """int64[n]: the fold 0..count-1 of each of n samples, of equal sizes within 1."""
    return np.random.default_rng(seed).permutation(np.arange(n, dtype=np.int64) % count)
