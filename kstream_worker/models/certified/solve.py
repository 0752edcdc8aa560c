"""`solve_certified`: kernel ridge solved by what is fastest for its size, with the certificate of paper 001.

The paper runs conjugate gradients on the *sketched* system, and its certificate then asks that the sketch be nearly
exact. Here the sketch K~ + tau I only preconditions: the *original* system is solved, and certified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from kstream_worker.models.certified.checks import check_system
from kstream_worker.models.certified.residuals import norm_bound, residual_of, sketched_residual_of
from kstream_worker.models.certified.result import CertifiedSolve, Status, kernel_norm_bound, rounding_of
from kstream_worker.models.certified.sketch import landmark_factor
from kstream_worker.records import FloatColumn, FloatMatrix

Apply = Callable[[FloatColumn], FloatColumn]

SMALL = 1000  # rows up to which a Cholesky factorisation is faster
RUN_GAIN = 1e-9  # a run of conjugate gradients reduces the residual by no more before it is recomputed
RIDGE_FLOOR = 1e-11  # smallest ridge of the preconditioner, of the sketch's trace: below, its factor loses its sign
REFINEMENTS = 4


@dataclass(slots=True)
class _Best:
    """The solution with the smallest recomputed residual so far."""

    K: FloatMatrix
    y: FloatColumn
    tau: float
    b: FloatColumn
    residual: FloatColumn
    norm: float

    def offer(self, b: FloatColumn) -> bool:
        """Take b if its residual is smaller; whether it is at most half as large."""
        residual, slack = residual_of(self.K, b, self.tau, self.y)
        norm = norm_bound(residual, slack)
        halved = norm <= 0.5 * self.norm
        if norm < self.norm:
            self.b, self.residual, self.norm = b, residual, norm
        return halved


def solve_certified(
    K: ArrayLike,
    y: ArrayLike,
    tau: float,
    *,
    eta: float = 1e-8,
    budget: int = 500,
    landmarks: int | ArrayLike | None = None,
    solver: Literal["auto", "cholesky", "cg"] = "auto",
) -> CertifiedSolve:
    """Solve (K + tau I) b = y, and say what is proved of the answer.

    Args:
        K: float64[n, n], symmetric positive semi-definite; may be singular or 0.
        y: float64[n].
        tau: the ridge, n lambda in the paper's terms, above 0.
        eta: what |y - (K + tau I) b|_2 is to be below, at least 0. About 2^-53 |K| |b| is the least that float64 can
            reach; below, the answer is `budget-exhausted`, never a false claim.
        budget: most iterations of conjugate gradients.
        landmarks: rows of K that the sketch is made of, or how many to draw (always the same); n // 10 by default.
        solver: `cholesky`, `cg`, or by size.

    Raises:
        ValueError: shapes do not fit, K is not symmetric, or a number is out of range.
    """
    matrix, values, tau = check_system(K, y, tau, eta, budget)
    if solver not in ("auto", "cholesky", "cg"):
        raise ValueError(f"solver is {solver!r}; it must be 'auto', 'cholesky' or 'cg'")
    n = len(values)
    chosen = _landmarks(n // 10 if landmarks is None else landmarks, n)
    best = _Best(matrix, values, tau, np.zeros(n), values.copy(), norm_bound(values, np.zeros(n)))
    by_factor = solver == "cholesky" or (solver == "auto" and n <= SMALL)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not certified
        if by_factor:
            return _answer(best, *_by_cholesky(best, eta), "cholesky", None)
        factor = landmark_factor(matrix, chosen)
        return _answer(best, *_by_gradients(best, eta, budget, _preconditioner(factor, tau)), "cg", factor)


def _landmarks(given: int | ArrayLike, n: int) -> NDArray[np.int64]:
    rows = np.asarray(given)
    if rows.dtype.kind not in "iu" and rows.size:
        raise ValueError("landmarks must be a number of rows, or row numbers")
    if rows.ndim == 0:
        if not 0 <= int(rows) <= n:
            raise ValueError(f"landmarks is {int(rows)}; K has {n} rows")
        return np.sort(np.random.default_rng(0).choice(n, int(rows), replace=False))
    if rows.ndim != 1 or (rows.size and not (rows.min() >= 0 and rows.max() < n)):
        raise ValueError(f"landmarks must be row numbers from 0 to {n - 1}")
    return np.unique(rows.astype(np.int64))


def _by_cholesky(best: _Best, eta: float) -> tuple[Status, int]:
    """Factorise once, refine while that halves the residual."""
    if best.norm <= eta:
        return "certified", 0
    shifted = best.K.copy()
    shifted.flat[:: len(shifted) + 1] += best.tau
    try:
        lower = linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:  # K is indefinite beyond tau
        return "uncertified", 0
    for step in range(REFINEMENTS):
        correction = linalg.cho_solve((lower, True), best.residual, check_finite=False)
        progress = best.offer(best.b + correction)
        if best.norm <= eta:
            return "certified", step
        if not progress:
            break
    return "budget-exhausted", step


def _preconditioner(factor: FloatMatrix, tau: float) -> Apply:
    """v -> (F F' + tau I)^-1 v, by Woodbury's identity."""
    inner = factor.T @ factor
    ridge = max(tau, RIDGE_FLOOR * float(np.trace(inner)))
    inner.flat[:: len(inner) + 1] += ridge
    lower = linalg.cholesky(inner, lower=True, check_finite=False) if len(inner) else inner

    def apply(v: FloatColumn) -> FloatColumn:
        if not len(inner):
            return v / ridge
        head: FloatColumn = factor @ linalg.cho_solve((lower, True), factor.T @ v, check_finite=False)
        return (v - head) / ridge

    return apply


def _by_gradients(best: _Best, eta: float, budget: int, precondition: Apply) -> tuple[Status, int]:
    """Runs of conjugate gradients, each from the recomputed residual of the best solution so far."""
    used = 0
    while best.norm > eta:
        if used == budget:
            return "budget-exhausted", used
        scale = 2.0 ** np.frexp(np.abs(best.residual).max())[1]  # exact, and squares neither over- nor underflow
        target = max(0.5 * eta, RUN_GAIN * best.norm) / scale
        step, steps, sound = _run(best, best.residual / scale, target, budget - used, precondition)
        used += steps
        progress = best.offer(best.b + scale * step)
        if best.norm <= eta:
            break
        if not sound:
            return "uncertified", used
        if not progress:  # stagnation: more of the same gains nothing
            return "budget-exhausted", used
    return "certified", used


def _run(best: _Best, r: FloatColumn, target: float, budget: int, precondition: Apply) -> tuple[FloatColumn, int, bool]:
    """Preconditioned conjugate gradients on (K + tau I) s = r: s, iterations, whether K was seen to be definite.

    The recurrence's residual alone makes directions: with the recomputed one in its place the method diverges.
    """
    s = np.zeros(len(best.y))
    z = precondition(r)
    p, inner = z, float(r @ z)
    for step in range(budget):
        q = best.K @ p
        q += best.tau * p
        curvature = float(p @ q)
        if not (0.0 < curvature < np.inf and 0.0 < inner < np.inf):
            return s, step, False
        alpha = inner / curvature
        s += alpha * p
        r -= alpha * q
        if not float(r @ r) > target * target:
            return s, step + 1, True
        z = precondition(r)
        former, inner = inner, float(r @ z)
        p = z + (inner / former) * p
    return s, budget, True


def _answer(
    best: _Best, status: Status, steps: int, solver: Literal["cg", "cholesky"], factor: FloatMatrix | None
) -> CertifiedSolve:
    sketched, norm = None, np.nan
    if factor is not None:
        sketched, slack = sketched_residual_of(factor, best.b, best.tau, best.y)
        norm = norm_bound(sketched, slack)
    return CertifiedSolve(
        status=status,
        b=best.b,
        fit=best.y - best.tau * best.b - best.residual,
        residual=best.residual,
        residual_norm=best.norm,
        sketched_residual=sketched,
        sketched_norm=norm,
        factor=factor,
        iterations=steps,
        solver=solver,
        tau=best.tau,
        kernel_norm=kernel_norm_bound(best.K),
        negative=rounding_of(best.K),
    )
