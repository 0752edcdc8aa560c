"""End of a warm-up: scales, kernel widths and marginal moments of both sides."""

from __future__ import annotations

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.models.cme import intervals, judge
from kstream_worker.models.cme.kernel import ARMED, PHASE, Plan
from kstream_worker.numerics.jit import jit

MAX_DISTANCE_POINTS = 256


def arm(plan: Plan, row: np.ndarray, whole: np.ndarray, x_dims: int, y_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Fix what a full warm-up fixes, and clear the room it took; the key is armed.

    Args:
        plan: of the bank.
        row: float64[plan.floats], changed.
        whole: int64[INTS], changed.
        x_dims: features of x.
        y_dims: features of y.

    Returns:
        the pairs, float64[warmup, x_dims] and float64[warmup, y_dims], to be learned next.
    """
    n = plan.warmup
    held = row[plan.at_warm : plan.at_warm + n * (x_dims + y_dims)]
    pairs = held.reshape(n, x_dims + y_dims).copy()
    held[:] = 0.0
    x, y = np.ascontiguousarray(pairs[:, :x_dims]), np.ascontiguousarray(pairs[:, x_dims:])
    row[plan.at_gains] = _fix_side(x, row[plan.at_x_scale :], plan.x_width, np.zeros(2 * x_dims))
    base = row[plan.at_base : plan.at_base + 2 * y_dims]
    row[plan.at_gains + 1] = _fix_side(y, row[plan.at_y_scale :], plan.y_width, base)
    row[plan.at_misfit : plan.at_misfit + y_dims] = 1.0
    _start_judging(row[plan.at_judge : plan.at_judge + judge.state_size(x_dims, y_dims)], x_dims, y_dims)
    _start_intervals(row[plan.at_intervals :], y_dims, plan.tail)
    whole[PHASE] = ARMED
    return x, y


@jit
def _start_judging(held: np.ndarray, x_dims: int, y_dims: int) -> None:
    judge.start(held, x_dims, y_dims)


@jit
def _start_intervals(held: np.ndarray, dims: int, tail: float) -> None:
    intervals.start(held, dims, tail)


@jit
def _fix_side(points: np.ndarray, scales: np.ndarray, width: float, moments: np.ndarray) -> float:
    """Medians and scales, means and variances of the scaled points; -1 / (2 width^2) of the kernel.

    Args:
        points: float64[n, d].
        scales: float64[>= 2 d], result: medians, scales.
        width: of the kernel, in median distances of the scaled points.
        moments: float64[2 d], result.
    """
    n, d = points.shape
    column = np.empty(n)
    scaled = np.empty(n * d)
    near = min(n, MAX_DISTANCE_POINTS)
    distances = np.empty(near * (near - 1) // 2)
    for j in range(d):
        for i in range(n):
            column[i] = points[i, j]
        scales[j], scales[d + j] = scaling.center_and_scale(column, n)
    for i in range(n):
        scaling.scale_sample(points[i], scales, scales[d:], d, scaled[i * d : (i + 1) * d])
    for j in range(d):
        total = 0.0
        squares = 0.0
        for i in range(n):
            total += scaled[i * d + j]
            squares += scaled[i * d + j] * scaled[i * d + j]
        moments[j] = total / n
        moments[d + j] = max(squares / n - moments[j] * moments[j], 1e-12)
    wide = width * scaling.median_distance(scaled, near, d, distances)
    return -0.5 / (wide * wide)
