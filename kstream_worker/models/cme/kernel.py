"""The compiled walk of the bank of conditional mean embeddings: warm-up, prequential answers, one step a pair."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models import nystrom, scaling
from kstream_worker.models.cme import intervals, judge, operator
from kstream_worker.models.cme.layout import ATOMS, OPERATOR_INTS, STEPS, Operator, Work
from kstream_worker.numerics.jit import inline, jit

# Columns of the int64 row; 0 is the key's random stream number (nothing here draws).
PHASE = 1
WARM = 2  # pairs of the warm-up held
OPERATOR = 3  # the operator's own from here on
INTS = OPERATOR + OPERATOR_INTS

WARMING = 0
ARMED = 1

MISFIT_MEMORY = 20.0  # pairs that `drivers` looks back on
Y_COLUMNS = 5  # of each value of y: mean, sd, lower, upper, covered
FIXED_COLUMNS = 3  # innovation, atoms, norm


class Plan(NamedTuple):
    """Settings, and the layout of a float64 row (`at_*` are offsets).

    While a key warms up its pairs lie from `at_warm` on, where the operator has nothing yet: x_1, y_1, x_2, y_2, ...
    """

    warmup: int
    ready: int  # pairs after the warm-up that have no scores
    epsilon: float  # bound of the residual's norm
    x_width: float  # of the kernel, in median distances of the scaled warm-up
    y_width: float
    tail: float  # stated share of y beyond one side of its interval
    at_x_scale: int  # [2 x_dims]: medians, scales
    at_y_scale: int  # [2 y_dims]
    at_gains: int  # [2], -1 / (2 width^2) of x and y
    at_base: int  # [2 y_dims], means and variances of y over the warm-up, scaled
    at_misfit: int  # [y_dims], recent squares of standardised errors
    at_judge: int  # [judge.state_size]
    at_intervals: int  # [intervals.PER_VALUE * y_dims]
    at_warm: int
    floats: int  # length of a row


class Scratch(NamedTuple):
    """Work space of one bank beside the operator's; holds nothing between samples."""

    zx: NDArray[np.float64]  # [x_dims]
    zy: NDArray[np.float64]  # [y_dims]
    judge: judge.Scratch


def make_scratch(op: Operator) -> Scratch:
    """Work space for an operator's bank."""
    return Scratch(np.zeros(op.x_dims), np.zeros(op.y_dims), judge.make_scratch(op.x_dims, op.y_dims))


@inline
def _moments(plan: Plan, op: Operator, row: np.ndarray, w: Work, j: int) -> tuple[float, float]:
    """Predicted mean and variance of y_j, scaled; the variance is at least a ten-thousandth of the marginal one."""
    spread = row[plan.at_base + op.y_dims + j]
    mean = w.c[op.room + j] + row[plan.at_base + j]
    return mean, max(w.c[op.room + op.y_dims + j] + spread, 1e-4 * spread)


@inline
def _answer(plan: Plan, op: Operator, row: np.ndarray, m: int, innovation: float, w: Work, values: np.ndarray) -> None:
    dy = op.y_dims
    for j in range(dy):
        mean, variance = _moments(plan, op, row, w, j)
        values[j] = row[plan.at_y_scale + j] + row[plan.at_y_scale + dy + j] * mean
        values[dy + j] = row[plan.at_y_scale + dy + j] * np.sqrt(variance)
    intervals.tell(row[plan.at_intervals :], dy, values)
    at = Y_COLUMNS * dy
    values[at] = innovation
    values[at + 1] = m
    values[at + 2] = operator.hs_norm(op, m, operator.matrix(op, row))


@inline
def _judge(
    plan: Plan,
    op: Operator,
    row: np.ndarray,
    m: int,
    judged: int,
    rest_x: float,
    innovation: float,
    s: Scratch,
    w: Work,
    scores: np.ndarray,
) -> None:
    """The two scores of a pair; none of the warm-up's pairs, whose first innovation of all is 1."""
    first = op.room + 2 * op.y_dims
    if judged < 0:
        for i in range(first, op.room + op.extra):
            w.g[i] = 0.0
        return
    judge.judge(
        op, row, plan.at_judge, m, first, judged, plan.warmup, plan.ready, s.zx, rest_x, innovation, w, s.judge, scores
    )


@inline
def _note_errors(plan: Plan, op: Operator, row: np.ndarray, s: Scratch, w: Work) -> None:
    """Misfits of the rows beside the operator (y, and the squared error of its predicted mean), of `drivers` and of
    the scores.
    """
    for j in range(op.y_dims):
        mean, variance = _moments(plan, op, row, w, j)
        error = s.zy[j] - mean
        at_mean = op.room + j
        at_square = op.room + op.y_dims + j
        s.judge.errors[j] = error
        w.g[at_mean] = error
        w.g[at_square] = error * error - row[plan.at_base + op.y_dims + j] - w.c[at_square]
        former = row[plan.at_misfit + j]
        row[plan.at_misfit + j] = former + (error * error / variance - former) / MISFIT_MEMORY


@inline
def _hold(plan: Plan, op: Operator, row: np.ndarray, whole: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Keep one pair of the warm-up."""
    at = plan.at_warm + (op.x_dims + op.y_dims) * whole[WARM]
    for j in range(op.x_dims):
        row[at + j] = x[j]
    for j in range(op.y_dims):
        row[at + op.x_dims + j] = y[j]
    whole[WARM] += 1


@jit
def walk(
    start: int,
    plan: Plan,
    op: Operator,
    floats: np.ndarray,
    ints: np.ndarray,
    slots: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    s: Scratch,
    w: Work,
    values: np.ndarray,
    scores: np.ndarray,
) -> int:
    """Answer for each pair, then learn from it; stop where a warm-up is full.

    Args:
        start: first row.
        plan: of the bank.
        op: of the bank.
        floats: float64[capacity, plan.floats].
        ints: int64[capacity, INTS].
        slots: int64[n].
        x: float64[n, x_dims].
        y: float64[n, y_dims].
        s: work space.
        w: work space.
        values: float64[n, Y_COLUMNS y_dims + FIXED_COLUMNS], NaN on entry; result.
        scores: float64[n, SCORES], NaN on entry; result.

    Returns:
        the row whose pair filled its key's warm-up; n where there is none.
    """
    for t in range(start, len(slots)):
        row = floats[slots[t]]
        whole = ints[slots[t]]
        if whole[PHASE] == WARMING:
            _hold(plan, op, row, whole, x[t], y[t])
            if whole[WARM] == plan.warmup:
                return t
            continue
        state = whole[OPERATOR:]
        m = state[ATOMS]
        scaling.scale_sample(x[t], row[plan.at_x_scale :], row[plan.at_x_scale + op.x_dims :], op.x_dims, s.zx)
        scaling.scale_sample(y[t], row[plan.at_y_scale :], row[plan.at_y_scale + op.y_dims :], op.y_dims, s.zy)
        gains = row[plan.at_gains : plan.at_gains + 2]
        rest_x, rest_y, missed = operator.observe(op, row, m, gains[0], gains[1], s.zx, s.zy, w)
        _answer(plan, op, row, m, rest_y + missed, w, values[t])
        judged = state[STEPS] - plan.warmup
        intervals.learn(row[plan.at_intervals :], op.y_dims, plan.tail, judged, y[t], values[t])
        _note_errors(plan, op, row, s, w)
        _judge(plan, op, row, m, judged, rest_x, rest_y + missed, s, w, scores[t])
        operator.absorb(op, row, state, plan.epsilon, s.zx, s.zy, rest_x, rest_y, missed, w)
    return len(slots)


@jit
def evaluate(
    plan: Plan,
    op: Operator,
    row: np.ndarray,
    whole: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    s: Scratch,
    w: Work,
    moments: np.ndarray,
    embedding: np.ndarray,
) -> None:
    """Predictions at points; changes no state.

    Args:
        plan: of the bank.
        op: of the bank.
        row: float64[plan.floats].
        whole: int64[INTS].
        x: float64[n, x_dims].
        y: float64[k, y_dims].
        s: work space.
        w: work space.
        moments: float64[n, 4 y_dims], means, standard deviations, lower and upper limits; NaN on entry, which stays
            while warming up.
        embedding: float64[n, k], (U phi(x_i))(y_j); alike.
    """
    if whole[PHASE] == WARMING:
        return
    m = whole[OPERATOR + ATOMS]
    dx, dy = op.x_dims, op.y_dims
    for i in range(x.shape[0]):
        scaling.scale_sample(x[i], row[plan.at_x_scale :], row[plan.at_x_scale + dx :], dx, s.zx)
        operator.project_x(op, row, m, row[plan.at_gains], s.zx, w)
        operator.apply(op, m, operator.matrix(op, row), w.p, w.c)
        for j in range(dy):
            mean, variance = _moments(plan, op, row, w, j)
            moments[i, j] = row[plan.at_y_scale + j] + row[plan.at_y_scale + dy + j] * mean
            moments[i, dy + j] = row[plan.at_y_scale + dy + j] * np.sqrt(variance)
        intervals.tell(row[plan.at_intervals :], dy, moments[i])
        for j in range(y.shape[0]):
            scaling.scale_sample(y[j], row[plan.at_y_scale :], row[plan.at_y_scale + dy :], dy, s.zy)
            operator.project_y(op, row, m, row[plan.at_gains + 1], s.zy, w)
            embedding[i, j] = nystrom.dot(w.c, w.q, m)
