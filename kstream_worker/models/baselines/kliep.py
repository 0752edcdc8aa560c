"""KLIEP: Kullback-Leibler importance estimation (Sugiyama et al. 2008), solved to convergence.

w = sum_l theta_l K(c_l, .), theta >= 0, maximises mean_{x'} log w(x') subject to mean_x w(x) = 1. With phi_l =
theta_l mean_x K(x, c_l) this is the likelihood of mixture proportions: minimise -mean log(B phi) + sum phi over phi
>= 0 (the multiplier of the constraint is 1). At any phi with sum 1, log max_l mean_i B_il / (B phi)_i bounds how much
larger the maximum is: the duality gap.
"""

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
    subset,
)

GAP = 1e-10  # of the mean log-likelihood, at which a solution counts as converged
_LAST_BARRIER = 1e-13
_COARSE_BARRIER = 1e-6  # enough for cross-validation
_NEWTON_STEPS = 60
_SUPPORT = 1e-7  # proportions below are tried at 0 when the solution is polished


class KLIEP:
    """Batch estimate of the likelihood ratio q / p (alpha = 0).

    Args:
        sigma: kernel width; None lets likelihood cross-validation choose among `widths` x the median distance.
        atoms: size of the dictionary, drawn from the live samples; ignored when `fit` is given one.
        widths: candidates, in median distances of all samples.
        fold_count: folds of the cross-validation.
        seed: of dictionary and folds.

    Attributes:
        sigma: as used, after `fit`.
        dictionary: float64[M, d].
        coefficients: float64[M], theta >= 0.
        gap: bound on the distance of the mean log-likelihood from its maximum.
    """

    def __init__(
        self,
        *,
        sigma: float | None = None,
        atoms: int = 100,
        widths: tuple[float, ...] = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4),
        fold_count: int = 5,
        seed: int = 0,
    ) -> None:
        self.sigma = sigma
        self._given_sigma = sigma
        self._atoms = atoms
        self._widths = widths
        self._fold_count = fold_count
        self._seed = seed
        self.dictionary: Floats = np.empty((0, 0))
        self.coefficients: Floats = np.empty(0)
        self.gap = np.inf

    def fit(self, x: ArrayLike, y: ArrayLike, dictionary: ArrayLike | None = None) -> KLIEP:
        """Estimate from samples.

        Args:
            x: float64[n, d] from p.
            y: float64[n', d] from q.
            dictionary: float64[M, d], kernel centres; None draws `atoms` of y.

        Raises:
            ValueError: an argument is no matrix of finite numbers; no kernel reaches some y or x; not converged to
                `GAP`.
        """
        left, right = as_points("x", x), as_points("y", y)
        self.dictionary = (
            subset(right, self._atoms, seed=self._seed) if dictionary is None else as_points("dictionary", dictionary)
        )
        self.sigma = self._given_sigma if self._given_sigma is not None else self._validate(left, right)
        k_y = gaussian_matrix(right, self.dictionary, self.sigma)
        mean_x = gaussian_matrix(left, self.dictionary, self.sigma).mean(axis=0)
        if not (mean_x > 0.0).all() or not (k_y.sum(axis=1) > 0.0).all():
            raise ValueError("some samples lie out of reach of every kernel: use a larger sigma")
        shares, self.gap = mixture_proportions(k_y / mean_x)
        if self.gap > GAP:
            raise ValueError(
                f"KLIEP stopped at a duality gap of {self.gap:.2g} where {GAP:g} is asked: use a larger sigma"
            )
        self.coefficients = shares / mean_x
        return self

    def ratio(self, z: ArrayLike) -> Floats:
        """The estimated ratio at points, float64[n, d] -> float64[n]."""
        if self.sigma is None or len(self.coefficients) == 0:
            raise ValueError("call fit first")
        values: Floats = gaussian_matrix(as_points("z", z), self.dictionary, self.sigma) @ self.coefficients
        return values

    def _validate(self, x: Floats, y: Floats) -> float:
        """The width with the largest mean log-likelihood on held-out folds, w normalised on the held-out x."""
        unit = median_distance(np.concatenate((x, y)), seed=self._seed)
        scores = {w * unit: self._score(x, y, w * unit) for w in self._widths}
        return max(scores, key=lambda sigma: scores[sigma])

    def _score(self, x: Floats, y: Floats, sigma: float) -> float:
        k_x = gaussian_matrix(x, self.dictionary, sigma)
        k_y = gaussian_matrix(y, self.dictionary, sigma)
        if not (k_x.sum(axis=0) > 0.0).all() or not (k_y.sum(axis=1) > 0.0).all():
            return -np.inf
        fold_x = folds(len(x), self._fold_count, seed=self._seed)
        fold_y = folds(len(y), self._fold_count, seed=self._seed + 1)
        total = 0.0
        for out in range(self._fold_count):
            mean_x = k_x[fold_x != out].mean(axis=0)
            if not (mean_x > 0.0).all():
                return -np.inf
            shares, _ = mixture_proportions(k_y[fold_y != out] / mean_x, last_barrier=_COARSE_BARRIER)
            theta = shares / mean_x
            with np.errstate(divide="ignore"):
                total += float(np.log(k_y[fold_y == out] @ theta).mean() - np.log((k_x[fold_x == out] @ theta).mean()))
        return total


def mixture_proportions(basis: Floats, *, last_barrier: float = _LAST_BARRIER) -> tuple[Floats, float]:
    """Proportions phi >= 0, sum 1, that maximise mean log(basis phi), and the duality gap reached.

    A log-barrier Newton method in coordinates scaled by phi (so that the system stays well conditioned as entries
    vanish), then Newton on the support without the barrier.

    Args:
        basis: float64[n, M], not negative, no row of zeros.
        last_barrier: weight of the barrier to stop at; the gap before polishing is about M times this.
    """
    shares = np.full(basis.shape[1], 1.0 / basis.shape[1])
    barrier = 1e-2
    while barrier >= last_barrier:
        shares = _center(basis, shares, barrier)
        barrier *= 0.1
    shares = shares / shares.sum()
    polished = _polish(basis, shares)
    return min(((shares, duality_gap(basis, shares)), (polished, duality_gap(basis, polished))), key=lambda s: s[1])


def duality_gap(basis: Floats, shares: Floats) -> float:
    """Bound on max mean log(basis phi) - mean log(basis shares), for shares >= 0 of sum 1."""
    quotients = basis.T @ (1.0 / (basis @ shares)) / len(basis)
    return float(np.log(max(1.0, quotients.max())))


def _center(basis: Floats, shares: Floats, barrier: float) -> Floats:
    """Minimise -mean log(basis phi) + sum phi - barrier sum log phi by damped Newton steps."""
    n = len(basis)
    for _ in range(_NEWTON_STEPS):
        scaled = basis * (shares / (basis @ shares)[:, None])
        gradient = shares - scaled.mean(axis=0) - barrier
        hessian = scaled.T @ scaled / n
        hessian[np.diag_indices_from(hessian)] += barrier
        step = -linalg.solve(hessian, gradient, assume_a="pos")
        decrement = float(-(gradient @ step))
        # Self-concordance after scaling by 1 / barrier: a step of this length keeps phi > 0 and decreases the
        # objective.
        length = 1.0 / (1.0 + np.abs(step).max()) if np.abs(step).max() > 0.5 else 1.0
        shares = shares * (1.0 + length * step)
        if decrement <= 1e-3 * barrier:
            break
    return shares


def _polish(basis: Floats, shares: Floats) -> Floats:
    support = shares > _SUPPORT
    columns = basis[:, support]
    phi = shares[support]
    for _ in range(20):
        quotient = columns / (columns @ phi)[:, None]
        step = linalg.lstsq(quotient.T @ quotient / len(basis), quotient.mean(axis=0) - 1.0, cond=1e-14)[0]
        if (phi + step <= 0.0).any():
            return shares
        phi = phi + step
        if np.abs(step).max() <= 1e-15:
            break
    result = np.zeros_like(shares)
    result[support] = phi / phi.sum()
    return result
