"""Warm-up of a key: pairs are held, then fix scale, kernel width and sampling interval."""

from __future__ import annotations

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.models.cme import judge
from kstream_worker.models.koopman.layout import ARMED, MAX_DISTANCE_POINTS, PHASE, WIDTH, Plan
from kstream_worker.numerics.jit import inline, jit


@jit
def arm(plan: Plan, row: np.ndarray, ints: np.ndarray, raw: np.ndarray, warm: np.ndarray) -> None:
    """End of the warm-up: scale and width from the points of both sides, and the interval.

    Args:
        plan: of the bank.
        row: float64[plan.floats], of the key.
        ints: int64[COUNTS + horizons], of the key.
        raw: float64[warmup * (2 d + 1)], result: the pairs held, x, y and the time since the pair before; the caller
            has the key learn from them.
        warm: work space.
    """
    d = plan.dims
    n = plan.warmup
    stride = 2 * d + 1
    points = warm[: 2 * n * d]
    column = warm[2 * n * d : 2 * n * (d + 1)]
    distances = warm[2 * n * (d + 1) :]
    for i in range(n * stride):
        raw[i] = row[plan.op.at_x + i]
    for i in range(plan.op.at_x, plan.floats):
        row[i] = 0.0
    for j in range(d):
        for i in range(n):
            column[2 * i] = raw[i * stride + j]
            column[2 * i + 1] = raw[i * stride + d + j]
        row[j], row[plan.at_scale + j] = scaling.center_and_scale(column, 2 * n)
    scale = row[plan.at_scale : plan.at_scale + d]
    for i in range(2 * n):
        at = i // 2 * stride + i % 2 * d
        scaling.scale_sample(raw[at : at + d], row, scale, d, points[i * d : (i + 1) * d])
    width = WIDTH * scaling.median_distance(points, min(2 * n, MAX_DISTANCE_POINTS), d, distances)
    row[plan.at_gain] = -0.5 / (width * width)
    row[plan.at_interval] = _usual_interval(n, stride, raw, column)
    judge.start(row[plan.at_judge : plan.at_past], d, d)
    ints[PHASE] = ARMED


@inline
def _usual_interval(n: int, stride: int, raw: np.ndarray, column: np.ndarray) -> float:
    """Median of the warm-up's positive intervals; 0 where there is none."""
    count = 0
    for i in range(1, n):
        passed = raw[i * stride + stride - 1]
        if passed > 0.0:
            column[count] = passed
            count += 1
    return scaling.select(column, count, count // 2) if count > 0 else 0.0


@inline
def hold(plan: Plan, row: np.ndarray, held: int, x: np.ndarray, y: np.ndarray, passed: float) -> None:
    """Keep one pair of the warm-up."""
    d = plan.dims
    at = plan.op.at_x + (2 * d + 1) * held
    for j in range(d):
        row[at + j] = x[j]
        row[at + d + j] = y[j]
    row[at + 2 * d] = passed
