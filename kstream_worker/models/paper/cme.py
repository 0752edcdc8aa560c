"""Compressed online learning of conditional mean embeddings as published in paper 000 (Algorithm E), growing freely.

Corrections of the print: eq. 14 lacks the step size (eqs. 11, 13 have it); eq. 163 keeps the y part of the residual
only, whereas the projection of eq. 15 acts on both sides; Algorithm E compares the square of the residual's norm with
epsilon, eq. 16 the norm, and only with the norm are the printed dictionary sizes reached.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from kstream_worker.models.baselines.kernels import as_points, gaussian_matrix

Floats = NDArray[np.float64]

PIVOT_TOLERANCE = 1e-12  # of k(z, z) = 1; a point nearer to the span of the atoms before it adds no direction


class _Side:
    """The atoms of one side with the Cholesky factor of their kernel matrix, growing.

    A point in the span of those before it keeps its place as an atom without a direction of its own.

    Args:
        sigma: width of the Gaussian kernel.
    """

    def __init__(self, sigma: float) -> None:
        self.sigma = sigma
        self.atoms: Floats = np.empty((0, 0))  # [d, dims]
        self.basis: list[int] = []  # atoms with a direction of their own
        self._lower: Floats = np.empty((0, 0))  # [len(basis), len(basis)]

    def features(self, points: Floats) -> Floats:
        """Orthonormal coordinates of phi(points) in the atoms' span, float64[len(basis), n]."""
        if not self.basis:
            return np.empty((0, len(points)))
        k = gaussian_matrix(self.atoms[self.basis], points, self.sigma)
        coordinates: Floats = solve_triangular(self._lower, k, lower=True)
        return coordinates

    def weights(self, coordinates: Floats) -> Floats:
        """Weights of the atoms, float64[d, n], from coordinates; 0 for those without a direction of their own."""
        weights = np.zeros((len(self.atoms), coordinates.shape[1]))
        if self.basis:
            weights[self.basis] = solve_triangular(self._lower, coordinates, lower=True, trans="T")
        return weights

    def append(self, point: Floats, coordinates: Floats) -> float:
        """Add an atom with these coordinates; its coordinate in its own new direction, 0 where it has none."""
        n = len(self.basis)
        rest = 1.0 - float(coordinates @ coordinates)
        self.atoms = point[None] if not len(self.atoms) else np.vstack((self.atoms, point))
        if rest <= PIVOT_TOLERANCE:
            return 0.0
        lower = np.zeros((n + 1, n + 1))
        lower[:n, :n] = self._lower
        lower[n, :n], lower[n, n] = coordinates, np.sqrt(rest)
        self._lower = lower
        self.basis.append(len(self.atoms) - 1)
        return float(lower[n, n])


class PaperCME:
    """The conditional mean embedding U: phi(x) -> E[phi(y) | x] by compressed stochastic gradient descent.

    The dictionary has no bound, and nothing is forgotten: `models.cme.OnlineCME` is the bounded form. The operator is
    held in orthonormal coordinates of both sides' atoms; the coefficient matrix W of eq. 18 is read off.

    Args:
        x_sigma: width of the Gaussian kernel exp(-|x - x'|^2 / (2 sigma^2)) on x.
        y_sigma: the same on y.
        eta: step size, constant.
        lam: regularisation lambda.
        epsilon: compression budget of eq. 16; 0 admits all that is not in the span already.

    Raises:
        ValueError: a setting is out of range.
    """

    def __init__(self, x_sigma: float, y_sigma: float, *, eta: float = 0.2, lam: float = 1e-3, epsilon: float) -> None:
        if not (x_sigma > 0.0 and y_sigma > 0.0 and 0.0 < eta <= 1.0 and lam >= 0.0 and epsilon >= 0.0):
            raise ValueError("widths must be positive, eta in (0, 1], lam and epsilon not negative")
        self.eta, self.lam, self.epsilon = eta, lam, epsilon
        self.t = 0
        self._x, self._y = _Side(x_sigma), _Side(y_sigma)
        self._operator: Floats = np.empty((0, 0))  # [basis of y, basis of x]
        self._mean: Floats = np.empty((0, 0))  # of the iterates since `start_averaging`
        self._averaged = -1  # iterates in it, -1 before

    @property
    def dictionary(self) -> tuple[Floats, Floats]:
        """x and y sides of the atoms, float64[d, dx] and float64[d, dy], in the order of admission."""
        return self._x.atoms.copy(), self._y.atoms.copy()

    @property
    def hs_norm(self) -> float:
        """|U|_HS."""
        return float(np.linalg.norm(self._operator))

    def start_averaging(self) -> None:
        """From the next pair on, keep the mean of the iterates too (the last iterate of a constant step is noisy)."""
        self._mean, self._averaged = np.zeros_like(self._operator), 0

    def update(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Learn from pairs in order (Algorithm E).

        Args:
            x: float64[n, dx].
            y: float64[n, dy].

        Returns:
            float64[n, 3]: whether the pair was admitted (1 or 0), the norm of its residual (eq. 16), and its squared
            innovation |phi(y) - U phi(x)|^2 before the step.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        left, right = as_points("x", x), as_points("y", y)
        if len(left) != len(right):
            raise ValueError(f"x has {len(left)} samples, y has {len(right)}")
        if self.t and (left.shape[1], right.shape[1]) != (self._x.atoms.shape[1], self._y.atoms.shape[1]):
            raise ValueError("x or y has another number of features than before")
        return np.array([self._step(a, b) for a, b in zip(left, right, strict=True)])

    def embedding(self, x: ArrayLike, y: ArrayLike, *, averaged: bool = False) -> Floats:
        """(U phi(x_i))(y_j), the estimate of E[k(Y, y_j) | x_i], float64[n, k]; changes nothing."""
        u = self._mean if averaged else self._operator
        values: Floats = self._x.features(as_points("x", x)).T @ u.T @ self._y.features(as_points("y", y))
        return values

    def weights(self, x: ArrayLike, *, averaged: bool = False) -> Floats:
        """c = W k(x): U phi(x_i) = sum_l c[l, i] phi(y_l), float64[d, n].

        The paper prints no formula for the conditional mean of y; sum_l c_l y_l is one, the same divided by sum_l c_l
        another.
        """
        u = self._mean if averaged else self._operator
        return self._y.weights(u @ self._x.features(as_points("x", x)))

    def coefficients(self, *, averaged: bool = False) -> Floats:
        """W of eq. 18, float64[d, d]; one of many where atoms repeat."""
        u = self._mean if averaged else self._operator
        return self._y.weights(self._x.weights(u.T).T)

    def _step(self, x: Floats, y: Floats) -> tuple[float, float, float]:
        p, q = self._x.features(x[None])[:, 0], self._y.features(y[None])[:, 0]
        misfit = q - self._operator @ p
        rest_x, rest_y = max(1.0 - float(p @ p), 0.0), max(1.0 - float(q @ q), 0.0)
        residual = self.eta * np.sqrt(rest_y + rest_x * float(misfit @ misfit))
        innovation = rest_y + float(misfit @ misfit)
        admitted = self.t == 0 or residual > self.epsilon
        if admitted:
            own_x, own_y = self._x.append(x, p), self._y.append(y, q)
            p, misfit = _extended(p, own_x), _extended(misfit, own_y)
            self._operator = _padded(self._operator, len(misfit), len(p))
            self._mean = _padded(self._mean, len(misfit), len(p))
        self._operator = (1.0 - self.lam * self.eta) * self._operator + self.eta * np.outer(misfit, p)
        if self._averaged >= 0:
            self._averaged += 1
            self._mean += (self._operator - self._mean) / self._averaged
        self.t += 1
        return float(admitted), float(residual), innovation


def _extended(coordinates: Floats, own: float) -> Floats:
    return np.append(coordinates, own) if own > 0.0 else coordinates


def _padded(u: Floats, rows: int, columns: int) -> Floats:
    padded = np.zeros((rows, columns))
    padded[: u.shape[0], : u.shape[1]] = u
    return padded
