"""Kernel ridge on a Nystrom sketch with the residual certificate, as printed in paper 001 (the numbered algorithm).

Conjugate gradients run on the *sketched* system (K~ + tau I) b = y, and the certificate asks both residuals to be
small: that holds only where the sketch is nearly exact. `models.solve_certified` runs on the original system and
certifies nearly always. No correction of the print was needed; what floats add to it:

- K~ = F F' for the F that is returned, and the recomputed residuals are upper bounds that include their rounding.
- The recurrence uses the recurrence's residual, never the recomputed one. Where exact arithmetic ends by a residual of
  exactly 0 (`uncertified`), floats may go on until the budget ends (`budget-exhausted`): neither claims anything.
- p'q <= 0, or not finite, ends `uncertified`: K was not positive semi-definite, or numbers overflowed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from kstream_worker.models.certified.checks import check_system
from kstream_worker.models.certified.residuals import norm_bound, residual_of, sketched_residual_of
from kstream_worker.models.certified.result import CertifiedSolve, Status, kernel_norm_bound, rounding_of
from kstream_worker.models.certified.sketch import nystrom_factor
from kstream_worker.records import FloatColumn, FloatMatrix


def solve_sketched(
    K: ArrayLike, y: ArrayLike, tau: float, S: ArrayLike, *, eta: float = 1e-8, budget: int = 100
) -> CertifiedSolve:
    """Steps 1-4 of the paper.

    Args:
        K: float64[n, n], symmetric positive semi-definite; may be singular or 0.
        y: float64[n].
        tau: n lambda, above 0.
        S: float64[n, s], the sketch, s >= 0.
        eta: what both residuals are to be below, at least 0.
        budget: T, most iterations, at least 0.

    Raises:
        ValueError: shapes do not fit, K is not symmetric, or a number is out of range.
    """
    matrix, values, tau = check_system(K, y, tau, eta, budget)
    sketch = np.asarray(S, dtype=np.float64)
    if sketch.ndim != 2 or len(sketch) != len(values) or not np.isfinite(sketch).all():
        raise ValueError(f"S has shape {sketch.shape}; it must be finite and have one row for each of K's")
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not certified
        return _Run(matrix, values, tau, nystrom_factor(matrix, sketch), eta).run(budget)


class _Run:
    """One run of conjugate gradients, with all that a return needs."""

    def __init__(self, K: FloatMatrix, y: FloatColumn, tau: float, factor: FloatMatrix, eta: float) -> None:
        self._system = K, y, tau
        self._factor, self._eta = factor, eta
        self._b = np.zeros(len(y))
        self._steps = 0

    def run(self, budget: int) -> CertifiedSolve:
        """Step 3, then step 4, until one of them returns."""
        _, y, tau = self._system
        r, p = y.copy(), y.copy()
        square = float(r @ r)
        while True:
            answer = self._answer("budget-exhausted")
            if answer.status == "certified":
                return answer
            if answer.sketched_norm == 0.0:
                return replace(answer, status="uncertified")
            if self._steps == budget:
                return answer
            q = self._factor @ (self._factor.T @ p) + tau * p
            curvature = float(p @ q)
            if not (0.0 < curvature < np.inf and square < np.inf):
                return replace(answer, status="uncertified")
            alpha = square / curvature
            self._b = self._b + alpha * p
            r = r - alpha * q
            self._steps += 1
            former, square = square, float(r @ r)
            if square == 0.0:
                return self._answer("uncertified")
            p = r + (square / former) * p

    def _answer(self, otherwise: Status) -> CertifiedSolve:
        """The current outputs, residuals recomputed: `certified` where both are small, else the given status."""
        K, y, tau = self._system
        residual, slack = residual_of(K, self._b, tau, y)
        sketched, sketched_slack = sketched_residual_of(self._factor, self._b, tau, y)
        norm, sketched_norm = norm_bound(residual, slack), norm_bound(sketched, sketched_slack)
        return CertifiedSolve(
            status="certified" if max(norm, sketched_norm) <= self._eta else otherwise,
            b=self._b,
            fit=self._factor @ (self._factor.T @ self._b),
            residual=residual,
            residual_norm=norm,
            sketched_residual=sketched,
            sketched_norm=sketched_norm,
            factor=self._factor,
            iterations=self._steps,
            solver="paper",
            tau=tau,
            kernel_norm=kernel_norm_bound(K),
            negative=rounding_of(K),
        )
