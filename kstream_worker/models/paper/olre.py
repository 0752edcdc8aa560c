"""Online likelihood-ratio estimation as printed in paper 004 (Algorithm 1, schedules of eq. 20), growing with every
pair.

Corrections of the print: the second argument in eq. 19 is x'_t, as in Algorithm 1; the second line of eq. 16 is
A(x_t, x'_t); the norm in eq. 10 is squared.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kstream_worker.models.baselines.kernels import gaussian_matrix, pearson_divergence

KERNEL_BOUND = 1.0  # C = sup sqrt(K(x, x)) of the Gaussian kernel


def required_t0(a: float, beta: float) -> float:
    """Smallest t0 for which Theorem 1 holds: (2 + 4 C^2 a)^((2 beta + 1) / (2 beta)), C = 1."""
    return float((2.0 + 4.0 * KERNEL_BOUND**2 * a) ** ((2.0 * beta + 1.0) / (2.0 * beta)))


class PaperOLRE:
    """Functional stochastic gradient descent on the relative likelihood ratio; two more atoms with every pair.

    Memory and the cost of a step grow with the number of pairs: `models.OLRE` is the bounded form.

    Args:
        sigma: width of the Gaussian kernel exp(-|x - y|^2 / (2 sigma^2)).
        alpha: weight of the live side in the denominator, 0 <= alpha < 1.
        beta: assumed smoothness, 0 < beta <= 1.
        a: step size factor, eta_t = a (t0 + t)^(-2 beta / (2 beta + 1)), lambda_t = (t0 + t)^(-1 / (2 beta + 1)) / a.
        t0: offset of the schedules.

    Raises:
        ValueError: a setting is out of range.

    Warns:
        UserWarning: t0 is below what Theorem 1 requires; the estimate is computed all the same.
    """

    def __init__(
        self, sigma: float, *, alpha: float = 0.1, beta: float = 0.5, a: float = 4.0, t0: float = 100.0
    ) -> None:
        if not (sigma > 0.0 and a > 0.0 and t0 >= 0.0):
            raise ValueError("sigma and a must be positive, t0 not negative")
        if not (0.0 <= alpha < 1.0 and 0.0 < beta <= 1.0):
            raise ValueError("alpha must be in [0, 1), beta in (0, 1]")
        self.sigma, self.alpha, self.beta, self.a, self.t0 = sigma, alpha, beta, a, t0
        self.t = 0
        self._atoms: NDArray[np.float64] = np.empty((0, 0))
        self._theta: NDArray[np.float64] = np.empty(0)
        required = required_t0(a, beta)
        if t0 < required:
            warnings.warn(
                f"t0 = {t0:g} violates the condition of Theorem 1 for a = {a:g}, beta = {beta:g}: "
                f"it needs t0 >= {required:.6g}",
                UserWarning,
                stacklevel=2,
            )

    @property
    def dictionary(self) -> NDArray[np.float64]:
        """float64[2 t, d], in the order x_1, x'_1, x_2, x'_2, ..."""
        return self._atoms[: 2 * self.t].copy()

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """float64[2 t], in the order of `dictionary`."""
        return self._theta[: 2 * self.t].copy()

    def schedule(self, t: int) -> tuple[float, float]:
        """(eta_t, lambda_t) of eq. 20."""
        exponent = 2.0 * self.beta + 1.0
        return self.a * (self.t0 + t) ** (-2.0 * self.beta / exponent), (self.t0 + t) ** (-1.0 / exponent) / self.a

    def update(self, x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
        """Learn from pairs in order (Algorithm 1).

        Args:
            x: float64[n, d] from p (one sample as float64[d]).
            y: float64[n, d] from q, alike.

        Returns:
            float64[n, 2]: f_{t-1}(x_t), f_{t-1}(x'_t), the values before each step.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        left = np.atleast_2d(np.asarray(x, dtype=np.float64))
        right = np.atleast_2d(np.asarray(y, dtype=np.float64))
        if left.shape != right.shape or (self.t and left.shape[1] != self._atoms.shape[1]):
            raise ValueError(f"x has shape {left.shape}, y {right.shape}: both must be n samples of the same features")
        if not (np.isfinite(left).all() and np.isfinite(right).all()):
            raise ValueError("only finite numbers reach a model")
        self._reserve(2 * (self.t + len(left)), left.shape[1])
        return np.array([self._step(p, q) for p, q in zip(left, right, strict=True)]).reshape(-1, 2)

    def ratio(self, z: ArrayLike) -> NDArray[np.float64]:
        """f_t at points: float64[n, d] -> float64[n]; changes nothing."""
        points = np.atleast_2d(np.asarray(z, dtype=np.float64))
        if self.t == 0:
            return np.zeros(len(points))
        return gaussian_matrix(points, self._atoms[: 2 * self.t], self.sigma) @ self._theta[: 2 * self.t]

    def divergence(self, x: ArrayLike, y: ArrayLike) -> float:
        """Pearson divergence (eq. 8c) with means over the given samples of p and q in place of the integrals."""
        return pearson_divergence(self.ratio(x), self.ratio(y), self.alpha)

    def _reserve(self, rows: int, dims: int) -> None:
        if rows > len(self._theta):
            room = max(rows, 2 * len(self._theta))
            atoms, theta = np.empty((room, dims)), np.empty(room)
            if self.t:
                atoms[: 2 * self.t] = self._atoms[: 2 * self.t]
                theta[: 2 * self.t] = self._theta[: 2 * self.t]
            self._atoms, self._theta = atoms, theta

    def _step(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
        fx, fy = (float(value) for value in self.ratio(np.stack((x, y))))
        n = 2 * self.t
        self.t += 1
        eta, decay = self.schedule(self.t)
        self._theta[:n] *= 1.0 - eta * decay
        self._theta[n] = -eta * (1.0 - self.alpha) * fx
        self._theta[n + 1] = eta * (1.0 - self.alpha * fy)
        self._atoms[n], self._atoms[n + 1] = x, y
        return fx, fy
