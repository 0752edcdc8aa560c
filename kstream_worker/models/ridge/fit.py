"""End of the warm-up: scales, kernel width, ridge and kernel matrix from the window's pairs."""

from __future__ import annotations

import numpy as np

from kstream_worker.models import scaling
from kstream_worker.models.nystrom import dot, dual_weights, exp_or_zero, gaussian, packed_start, whiten
from kstream_worker.models.ridge.layout import ARMED, CLIPPED, NEAR, PHASE, TRIAL, Plan, Scratch
from kstream_worker.models.ridge.packed import invert_root, set_column
from kstream_worker.numerics.jit import inline, jit

# Tried in this order: the first of equals is taken.
WIDTHS = (4.0, 2.0, 1.0, 0.5)  # in median distances of the scaled inputs
RIDGES = (1.0, 0.1, 0.01, 0.001)  # noise to signal, in variances: as a Gaussian process reads tau


@jit
def arm(plan: Plan, row: np.ndarray, whole: np.ndarray, s: Scratch) -> None:
    """Fix scales, width and tau of a key whose window is full for the first time; a factorisation is due then.

    Args:
        plan: of the bank.
        row: float64[plan.floats], changed.
        whole: int64[INTS], changed.
        s: work space.
    """
    _scale_window(plan, row, s)
    _choose(plan, row, s)
    for p in range(plan.room):
        for j in range(plan.dx):
            s.zx[j] = row[plan.at_x + j * plan.room + p]
        gaussian(s.zx, row[plan.at_x :], plan.room, plan.room, plan.dx, row[plan.at_gain], s.k, s.powers)
        set_column(row[plan.at_kernel : plan.at_inverse], plan.room, p, s.k)
    row[plan.at_misfit : plan.at_misfit + plan.dy] = 0.0
    whole[PHASE] = ARMED
    whole[CLIPPED] = 0


@inline
def _scale_window(plan: Plan, row: np.ndarray, s: Scratch) -> None:
    """Centres and scales of every feature, and the window in their units."""
    room, dx = plan.room, plan.dx
    for f in range(dx + plan.dy):
        at = plan.at_x + f * room if f < dx else plan.at_y + (f - dx) * room
        center_at = f if f < dx else plan.at_y_center + f - dx
        scale_at = dx + f if f < dx else plan.at_y_scale + f - dx
        values = row[at : at + room]
        s.r[:] = values
        center, scale = scaling.center_and_scale(s.r, room)
        row[center_at], row[scale_at] = center, scale
        for i in range(room):
            values[i] = min(max((values[i] - center) / scale, -scaling.CLIP), scaling.CLIP)


@inline
def _choose(plan: Plan, row: np.ndarray, s: Scratch) -> None:
    """Width and ridge with the least leave-one-out error, in closed form, on pairs spread evenly over the window.

    The error of pair i without itself is b_i / ((K + tau I)^-1)_ii. Few pairs suffice: tau is the variance of the
    noise in units of the signal's, which does not depend on their number.
    """
    room, dx = plan.room, plan.dx
    n = min(room, NEAR)
    for i in range(n):
        for j in range(dx):
            s.sample[i * dx + j] = row[plan.at_x + j * room + (i * room) // n]
    median = scaling.median_distance(s.sample, n, dx, s.distances)
    n = min(room, TRIAL)
    _squares(plan, row, n, s.squares)
    best = np.inf
    row[plan.at_gain] = -0.5 / (WIDTHS[0] * median * WIDTHS[0] * median)  # where no system is positive definite
    row[plan.at_tau] = plan.ridge if plan.ridge > 0.0 else RIDGES[0]
    for width in WIDTHS:
        gain = -0.5 / (width * median * width * median)
        for ridge in RIDGES:
            tau = plan.ridge if plan.ridge > 0.0 else ridge
            error = _left_out(plan, row, n, gain, tau, s)
            if error < best:
                best = error
                row[plan.at_gain] = gain
                row[plan.at_tau] = tau
            if plan.ridge > 0.0:
                break


@inline
def _squares(plan: Plan, row: np.ndarray, n: int, squares: np.ndarray) -> None:
    room = plan.room
    at = 0
    for a in range(n):
        for b in range(a, n):
            distance = 0.0
            for j in range(plan.dx):
                x = row[plan.at_x + j * room : plan.at_x + (j + 1) * room]
                delta = x[(a * room) // n] - x[(b * room) // n]
                distance += delta * delta
            squares[at] = distance
            at += 1


@inline
def _left_out(plan: Plan, row: np.ndarray, n: int, gain: float, tau: float, s: Scratch) -> float:
    """Sum of squared leave-one-out errors of all outputs; inf where the system is not positive definite."""
    size = n * (n + 1) // 2
    for i in range(size):
        s.matrix[i] = gain * s.squares[i]
    exp_or_zero(s.matrix, s.powers, size)
    for i in range(n):
        s.matrix[packed_start(i, n)] += tau
    if not invert_root(s.matrix, n):
        return np.inf
    error = 0.0
    for o in range(plan.dy):
        y = row[plan.at_y + o * plan.room : plan.at_y + (o + 1) * plan.room]
        for i in range(n):
            s.k[i] = y[(i * plan.room) // n]
        whiten(s.matrix, n, s.k, s.w)
        dual_weights(s.matrix, n, s.w, s.g)
        for i in range(n):
            first = packed_start(i, n)
            column = s.matrix[first : first + n - i]
            left = s.g[i] / dot(column, column, n - i)
            error += left * left
    return error
