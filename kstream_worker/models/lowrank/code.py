"""Coefficients and sparse corruption of one sample: eq. 3.1 of paper 002 to a stated tolerance.

With e eliminated the problem is a ridge regression with Huber's loss of width delta = lambda2 / lambda1: minimise over
v lambda1 sum_i H(z_i - (D v)_i) + |v|^2 / 2, H over the observed entries. Its gradient g is piecewise linear, so that
Newton's method on it (entries inside the width are regressed, those outside pull with a constant force) ends after
finitely many steps, at the exact solution up to rounding; a search along each step makes that so from any start
(Madsen, Nielsen, "Finite algorithms for robust linear regression", 1990). The objective is 1-strongly convex:
|v - v*| <= |g|, which is the stated tolerance, where alternating (Algorithm 2) ends percents away.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.lowrank.linear import add_outer, cholesky, solve_lower, solve_upper
from kstream_worker.models.nystrom.features import dot
from kstream_worker.numerics.jit import inline, jit

SEEN = 0  # an entry inside the width
OUTSIDE = 1  # a corrupted one
MISSING = 2
TOLERANCE = 1e-9  # |v - v*| <= TOLERANCE (1 + |v|)
MAX_STEPS = 60
_HALVINGS = 40


class Work(NamedTuple):
    """Work space of `code`; its results are `v`, `residual` and `status`."""

    v: NDArray[np.float64]  # [d]
    residual: NDArray[np.float64]  # [p], z - D v; 0 where missing
    status: NDArray[np.int64]  # [p]: SEEN, OUTSIDE or MISSING
    taken: NDArray[np.bool_]  # [p], whether an entry is in the normal matrix
    gram: NDArray[np.float64]  # [d * d], D' D, filled by the caller
    normal: NDArray[np.float64]  # [d * d], of the entries seen
    lower: NDArray[np.float64]  # [d * d]
    gradient: NDArray[np.float64]  # [d]
    step: NDArray[np.float64]  # [d]
    image: NDArray[np.float64]  # [p], D step
    row: NDArray[np.float64]  # [d]


def make_work(p: int, d: int) -> Work:
    """Work space for p sensors and d columns."""
    return Work(
        v=np.zeros(d),
        residual=np.zeros(p),
        status=np.zeros(p, dtype=np.int64),
        taken=np.zeros(p, dtype=np.bool_),
        gram=np.zeros(d * d),
        normal=np.zeros(d * d),
        lower=np.zeros(d * d),
        gradient=np.zeros(d),
        step=np.zeros(d),
        image=np.zeros(p),
        row=np.zeros(d),
    )


@inline
def _apply(basis: np.ndarray, p: int, d: int, x: np.ndarray, w: Work) -> None:
    """w.image <- D x, 0 where missing."""
    for i in range(p):
        w.image[i] = 0.0
    for j in range(d):
        weight = x[j]
        column = basis[j * p : (j + 1) * p]
        for i in range(p):
            w.image[i] += weight * column[i]
    for i in range(p):
        if w.status[i] == MISSING:
            w.image[i] = 0.0


@inline
def _take(basis: np.ndarray, p: int, d: int, i: int, weight: float, w: Work) -> None:
    """Entry i joins (weight 1) or leaves (-1) the normal matrix."""
    for j in range(d):
        w.row[j] = basis[j * p + i]
    add_outer(w.normal, d, w.row, weight)


@inline
def _clipped(x: float, delta: float) -> float:
    return min(max(x, -delta), delta)


@inline
def _sort(basis: np.ndarray, p: int, d: int, lambda1: float, delta: float, w: Work) -> None:
    """Which entries lie inside, and the normal matrix I + lambda1 D_S' D_S of those inside."""
    for i in range(p):
        if w.status[i] != MISSING:
            w.status[i] = OUTSIDE if abs(w.residual[i]) > delta else SEEN
        inside = w.status[i] == SEEN
        if inside != w.taken[i]:
            _take(basis, p, d, i, lambda1 if inside else -lambda1, w)
            w.taken[i] = inside


@inline
def _set_gradient(basis: np.ndarray, p: int, d: int, lambda1: float, delta: float, w: Work) -> float:
    """w.gradient <- v - lambda1 D' clip(residual); its norm. `image` is scratch."""
    for i in range(p):
        w.image[i] = _clipped(w.residual[i], delta)
    for j in range(d):
        w.gradient[j] = w.v[j] - lambda1 * dot(basis[j * p : (j + 1) * p], w.image, p)
    return float(math.sqrt(dot(w.gradient, w.gradient, d)))


@inline
def _slope(p: int, lambda1: float, delta: float, flat: float, curved: float, s: float, w: Work) -> float:
    """Derivative of the objective along the step, at s: flat + s curved is that of |v|^2 / 2."""
    total = 0.0
    for i in range(p):
        total += _clipped(w.residual[i] - s * w.image[i], delta) * w.image[i]
    return flat + s * curved - lambda1 * total


@inline
def _search(p: int, d: int, lambda1: float, delta: float, w: Work) -> float:
    """How far to go along the step: 1 where the objective still falls there or has just turned, else its minimum.

    The derivative rises along the step and is negative at 0, so bisection finds where it vanishes.
    """
    flat = dot(w.v, w.step, d)
    curved = dot(w.step, w.step, d)
    start = abs(dot(w.gradient, w.step, d))
    low = 0.0
    high = 2.0  # so that the first middle is the whole step
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        slope = _slope(p, lambda1, delta, flat, curved, middle, w)
        if abs(slope) <= 0.1 * start or (middle == 1.0 and slope < 0.9 * start):
            return middle
        if slope > 0.0:
            high = middle
        else:
            low = middle
    return low


@jit
def code(
    basis: np.ndarray, p: int, d: int, z: np.ndarray, lambda1: float, lambda2: float, tolerance: float, w: Work
) -> int:
    """v = argmin of eq. 2.3 into `w.v`, the residual z - D v into `w.residual`, which entries are corrupted into
    `w.status`. The corruption is e_i = r_i - clip(r_i, +-delta), the cleaned entry z_i - e_i.

    Args:
        basis: float64[d * p], D.
        p: sensors.
        d: columns.
        z: float64[>= p], what stands where `w.status` says MISSING is ignored.
        lambda1: weight of the squared residual, positive.
        lambda2: weight of |e|_1, positive.
        tolerance: |v - v*| <= tolerance (1 + |v|) at the end.
        w: work space; `gram` holds D' D and `status` says MISSING where z is; results as above.

    Returns:
        Newton steps; MAX_STEPS if the tolerance was not reached (rounding, at extreme condition).
    """
    for k in range(d * d):
        w.normal[k] = lambda1 * w.gram[k]
    for j in range(d):
        w.normal[j * d + j] += 1.0
        w.v[j] = 0.0
    for i in range(p):
        w.residual[i] = 0.0 if w.status[i] == MISSING else z[i]
        w.taken[i] = True
    delta = np.inf  # at first: ridge regression is a better start than v = 0
    for steps in range(MAX_STEPS):
        _sort(basis, p, d, lambda1, delta, w)
        size = _set_gradient(basis, p, d, lambda1, delta, w)
        if size <= tolerance * (1.0 + math.sqrt(dot(w.v, w.v, d))) and steps > 0:
            return steps
        cholesky(w.normal, d, w.lower, 0.0)
        for j in range(d):
            w.step[j] = -w.gradient[j]
        solve_lower(w.lower, d, w.step)
        solve_upper(w.lower, d, w.step)
        _apply(basis, p, d, w.step, w)
        s = _search(p, d, lambda1, delta, w)
        for j in range(d):
            w.v[j] += s * w.step[j]
        for i in range(p):
            w.residual[i] -= s * w.image[i]
        delta = lambda2 / lambda1
    return MAX_STEPS
