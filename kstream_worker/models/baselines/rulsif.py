"""RULSIF: relative unconstrained least-squares importance fitting (Yamada et al. 2013; paper 004, eqs. 25-27)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from kstream_worker.models.baselines.kernels import (
    Floats,
    as_points,
    folds,
    gaussian_matrix,
    median_distance,
    pearson_divergence,
    subset,
)

PENALTIES = ("l2", "hilbert")
_RANK_TOLERANCE = 1e-14  # of the largest eigenvalue: below, a direction is rounding noise


class RULSIF:
    """Batch estimate of r = q / ((1 - alpha) p + alpha q), in closed form.

    theta = (H + lambda R)^-1 h with H = (1-alpha) mean_x k k' + alpha mean_x' k k', h = mean_x' k, R = I (`l2`, the
    classical form, eq. 26) or K(D, D) (`hilbert`, the norm of the function).

    Args:
        alpha: weight of the live side in the denominator, 0 <= alpha < 1.
        penalty: `l2` or `hilbert`.
        sigma: kernel width; None lets cross-validation choose among `widths` x the median distance.
        lam: weight of the penalty; None lets cross-validation choose among `lams`.
        atoms: size of the dictionary, drawn from the live samples; ignored when `fit` is given one.
        widths: candidates, in median distances of all samples.
        lams: candidates.
        fold_count: folds of the cross-validation.
        seed: of dictionary and folds.

    Attributes:
        sigma, lam: as used, after `fit`.
        dictionary: float64[M, d].
        coefficients: float64[M].
    """

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        penalty: str = "hilbert",
        sigma: float | None = None,
        lam: float | None = None,
        atoms: int = 100,
        widths: tuple[float, ...] = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4),
        lams: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
        fold_count: int = 5,
        seed: int = 0,
    ) -> None:
        if not 0.0 <= alpha < 1.0:
            raise ValueError(f"alpha is {alpha}; it must be in [0, 1)")
        if penalty not in PENALTIES:
            raise ValueError(f"penalty is {penalty!r}; it must be one of {', '.join(PENALTIES)}")
        self.alpha = alpha
        self.penalty = penalty
        self.sigma = sigma
        self.lam = lam
        self._given = (sigma, lam)
        self._atoms = atoms
        self._widths = widths
        self._lams = lams
        self._fold_count = fold_count
        self._seed = seed
        self.dictionary: Floats = np.empty((0, 0))
        self.coefficients: Floats = np.empty(0)

    def fit(self, x: ArrayLike, y: ArrayLike, dictionary: ArrayLike | None = None) -> RULSIF:
        """Estimate from samples.

        Args:
            x: float64[n, d] from p.
            y: float64[n', d] from q.
            dictionary: float64[M, d], kernel centres; None draws `atoms` of y.

        Raises:
            ValueError: an argument is no matrix of finite numbers.
        """
        left, right = as_points("x", x), as_points("y", y)
        self.dictionary = (
            subset(right, self._atoms, seed=self._seed) if dictionary is None else as_points("dictionary", dictionary)
        )
        sigma, lam = self._given
        self.sigma, self.lam = (
            (sigma, lam) if sigma is not None and lam is not None else self._validate(left, right, sigma, lam)
        )
        coordinates = self._coordinates(self.sigma)
        k_x = gaussian_matrix(left, self.dictionary, self.sigma) @ coordinates
        k_y = gaussian_matrix(right, self.dictionary, self.sigma) @ coordinates
        second, first = self._moments(k_x, k_y)
        second[np.diag_indices_from(second)] += self.lam
        self.coefficients = coordinates @ linalg.solve(second, first, assume_a="sym")
        return self

    def ratio(self, z: ArrayLike) -> Floats:
        """The estimated ratio at points, float64[n, d] -> float64[n]."""
        if self.sigma is None or len(self.coefficients) == 0:
            raise ValueError("call fit first")
        values: Floats = gaussian_matrix(as_points("z", z), self.dictionary, self.sigma) @ self.coefficients
        return values

    def divergence(self, x: ArrayLike, y: ArrayLike) -> float:
        """Pearson divergence (eq. 8c) with means over these samples of p and q."""
        return pearson_divergence(self.ratio(x), self.ratio(y), self.alpha)

    def _moments(self, k_x: Floats, k_y: Floats) -> tuple[Floats, Floats]:
        second = (1.0 - self.alpha) / len(k_x) * (k_x.T @ k_x) + self.alpha / len(k_y) * (k_y.T @ k_y)
        return second, k_y.mean(axis=0)

    def _coordinates(self, sigma: float) -> Floats:
        """float64[M, r] T: in the coordinates c, theta = T c, the penalty is |c|^2."""
        if self.penalty == "l2":
            return np.eye(len(self.dictionary))
        values, vectors = linalg.eigh(gaussian_matrix(self.dictionary, self.dictionary, sigma))
        kept = values > _RANK_TOLERANCE * values[-1]
        coordinates: Floats = vectors[:, kept] / np.sqrt(values[kept])
        return coordinates

    def _validate(self, x: Floats, y: Floats, sigma: float | None, lam: float | None) -> tuple[float, float]:
        """Width and lambda with the smallest squared-error criterion (eq. 10, no penalty) on held-out folds."""
        unit = median_distance(np.concatenate((x, y)), seed=self._seed)
        sigmas = (sigma,) if sigma is not None else tuple(w * unit for w in self._widths)
        lams = np.array((lam,) if lam is not None else self._lams)
        fold_x = folds(len(x), self._fold_count, seed=self._seed)
        fold_y = folds(len(y), self._fold_count, seed=self._seed + 1)
        losses = np.zeros((len(sigmas), len(lams)))
        for row, width in enumerate(sigmas):
            coordinates = self._coordinates(width)
            k_x = gaussian_matrix(x, self.dictionary, width) @ coordinates
            k_y = gaussian_matrix(y, self.dictionary, width) @ coordinates
            for fold in range(self._fold_count):
                moments = self._moments(k_x[fold_x != fold], k_y[fold_y != fold])
                losses[row] += self._held_out(k_x[fold_x == fold], k_y[fold_y == fold], moments, lams)
        best_sigma, best_lam = np.unravel_index(losses.argmin(), losses.shape)
        return float(sigmas[best_sigma]), float(lams[best_lam])

    def _held_out(self, k_x: Floats, k_y: Floats, moments: tuple[Floats, Floats], lams: Floats) -> Floats:
        """The criterion on held-out samples for every lambda, from one eigendecomposition."""
        values, vectors = linalg.eigh(moments[0])
        solutions = vectors @ ((vectors.T @ moments[1])[:, None] / (np.maximum(values, 0.0)[:, None] + lams))
        f_x, f_y = k_x @ solutions, k_y @ solutions
        risk = 0.5 * (1.0 - self.alpha) * np.square(f_x).mean(axis=0) + 0.5 * self.alpha * np.square(f_y).mean(axis=0)
        loss: Floats = risk - f_y.mean(axis=0)
        return loss
