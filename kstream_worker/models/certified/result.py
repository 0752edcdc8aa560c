"""What a certified solve answers: a status, the solution, both recomputed residuals, and the bounds that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kstream_worker.numerics.jit import jit
from kstream_worker.records import FloatColumn, FloatMatrix

Status = Literal["certified", "uncertified", "budget-exhausted"]

_ULP = 2.0**-52
_UP = 1.0 + 16.0 * _ULP  # more than a handful of operations can round away


@dataclass(frozen=True, slots=True)
class CertifiedSolve:
    r"""An approximate solution b of (K + tau I) a = y, and what is proved of it (paper 001).

    The two norms are upper bounds: they include the rounding of their own computation. The bounds below hold for the
    exact a and u = K a of the numbers in K, y and tau as given, whenever K is symmetric and its smallest eigenvalue is
    not below `-negative`, which rounding a positive semi-definite matrix cannot cause. They hold whatever the status;
    `certified` says that the residual is at most what was asked for. They bound the *solve*: they say nothing of how
    well ridge regression predicts, which depends on data, kernel and tau.

    Attributes:
        status: `certified`: the residual (in the paper's form both residuals) is at most eta. `uncertified`: the method
            ended without that. `budget-exhausted`: neither within the iterations allowed or the precision of float64.
        b: float64[n], the coefficients.
        fit: float64[n]: K~ b in the paper's form, else K b.
        residual: float64[n], r = y - (K + tau I) b, recomputed.
        residual_norm: at least |r|_2.
        sketched_residual: float64[n], r~ = y - (K~ + tau I) b, recomputed; None where nothing was sketched.
        sketched_norm: at least |r~|_2; NaN where nothing was sketched.
        factor: float64[n, s], F: the sketch is K~ = F F' for these numbers; None where nothing was sketched.
        iterations: of conjugate gradients, or refinements of a factorisation.
        solver: `paper`, `cg` or `cholesky`.
        tau: of the system.
        kernel_norm: at least |K|_2.
        negative: how far below 0 the smallest eigenvalue of K may lie.
    """

    status: Status
    b: FloatColumn
    fit: FloatColumn
    residual: FloatColumn
    residual_norm: float
    sketched_residual: FloatColumn | None
    sketched_norm: float
    factor: FloatMatrix | None
    iterations: int
    solver: Literal["paper", "cg", "cholesky"]
    tau: float
    kernel_norm: float
    negative: float

    @property
    def coefficient_bound(self) -> float:
        """|b - a|_2 <= |r| / tau."""
        return self._times(1.0 / self._floor)

    @property
    def paper_fit_bound(self) -> float:
        """|K b - u|_2 <= |K| |r| / tau, as printed; `fit_bound` is sharper."""
        return self._times(self.kernel_norm / self._floor)

    @property
    def fit_bound(self) -> float:
        """|K b - u|_2 <= |r| |K| / (|K| + tau), never above |r|."""
        top = self.kernel_norm / (self.kernel_norm + self.tau)
        return self._times(max(top, self.negative / self._floor))

    @property
    def sketched_fit_bound(self) -> float:
        """|K~ b - u|_2 <= |r| + |r~|; NaN where nothing was sketched."""
        return (self._times(self.tau / self._floor) + self.sketched_norm) * _UP

    def prediction_bound(self, k_star_star: float) -> float:
        """|k*' b - k*' a| <= sqrt(k(x*, x*)) |r| / (2 sqrt(tau)) at a point x* with exact kernel values k*.

        Args:
            k_star_star: k(x*, x*), at least 0.
        """
        curvature = 0.25 / self.tau + self.negative / self._floor**2
        return self._times(math.sqrt(max(k_star_star, 0.0) * curvature))

    @property
    def _floor(self) -> float:
        """What the smallest eigenvalue of K + tau I is not below."""
        return self.tau - self.negative

    def _times(self, factor: float) -> float:
        if not self._floor > 0.0:
            return math.inf
        return self.residual_norm * factor * _UP


def kernel_norm_bound(K: FloatMatrix) -> float:
    """At least |K|_2 of a symmetric matrix: the smaller of Frobenius' norm and the largest row sum of magnitudes."""
    rows, squares = _sums(K)
    return min(rows, math.sqrt(squares)) * (1.0 + (len(K) + 8.0) ** 2 * _ULP)


@jit
def _sums(K: np.ndarray) -> tuple[float, float]:
    """Largest sum of magnitudes of a row, and the sum of all squares."""
    largest, squares = 0.0, 0.0
    for row in K:
        magnitudes, square = 0.0, 0.0
        for value in row:
            magnitudes += abs(value)
            square += value * value
        largest = max(largest, magnitudes)
        squares += square
    return largest, squares


def rounding_of(K: FloatMatrix) -> float:
    """How far below 0 rounding may have moved the smallest eigenvalue of a positive semi-definite matrix.

    Each entry of such a matrix is at most the largest diagonal entry, so that rounding to nearest moves a matrix of n
    rows by at most n 2^-53 of that in norm; eight times as much is allowed for entries that were computed.
    """
    return 4.0 * len(K) * _ULP * float(np.abs(K.diagonal()).max(initial=0.0))
