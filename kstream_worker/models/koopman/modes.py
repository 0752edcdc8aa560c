"""From a learned operator to its modes and to forecasts over several steps: what is computed every so many pairs.

With the features p(x) = LX^-1 k(X, x) of the x side and q(y) of the y side, U = M in these coordinates, and C = LY^-1
G_YX LX^-T takes coordinates of the x side to those of the y side. The Koopman operator K = U* (paper 003, section 4)
takes f(x) = z' p(x) to (M' C z)' p(x); so its eigenvalues are those of A = M' C, which are those of W' G_YX (paper 000,
section 5), and an eigenfunction's values are z' p(x).
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models import nystrom, spectrum
from kstream_worker.models.cme import operator as cme
from kstream_worker.models.cme.layout import Operator
from kstream_worker.models.cme.triangle import row_start
from kstream_worker.models.koopman.layout import KERNEL, LINE, NOW, Plan, Scratch
from kstream_worker.models.koopman.shifts import start_shift
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.outline import outline

_SAME = 0.7  # inner product of two eigenvectors of length 1 from which on they stand for one mode
_MOST = 1e200  # of the entries of a step's image: an operator that expands would overflow over a long horizon


@jit
def refresh(
    plan: Plan, row: np.ndarray, m: int, before: int, s: Scratch, v: spectrum.Workspace, powers: np.ndarray
) -> int:
    """Recompute eigenvalues, eigenfunctions and the forecasts' heads of a key from its operator as it stands.

    Args:
        plan: of the bank.
        row: of the key, changed.
        m: atoms in use.
        before: modes known before.
        s: work space.
        v: work space.
        powers: int64[room], scratch.

    Returns:
        Modes found.
    """
    op = plan.op
    _cross_matrix(op, row, m, row[plan.at_gain], s.cross, s.lines, powers)
    a = v.squares[0]
    _operator_matrix(m, op.room, cme.matrix(op, row), s.cross, a)
    _forecast_heads(plan, row, m, a, s)
    vectors = row[op.at_functions : op.at_functions + 2 * plan.modes * op.room]
    former = s.cross  # C is of no more use
    for r in range(2 * plan.modes):
        for i in range(op.room):
            former[r, i] = vectors[r * op.room + i]
    values = row[plan.at_values : plan.at_values + 2 * plan.modes]
    found = spectrum.leading_modes(m, plan.modes, v, values, vectors, op.room)
    for k in range(plan.modes):
        if k >= min(before, found) or not _keep_phase(m, op.room, k, vectors, former):
            start_shift(plan, row, k)
    return found


@inline
def _cross_matrix(
    op: Operator, row: np.ndarray, m: int, gain: float, cross: np.ndarray, lines: np.ndarray, powers: np.ndarray
) -> None:
    """cross[:m] <- C = LY^-1 G_YX LX^-T: the features of each y atom on the x side, then LY^-1 on all at once."""
    outline()
    point = lines[LINE]
    for i in range(m):
        for j in range(op.y_dims):
            point[j] = row[op.at_y + j * op.room + i]
        cme.project(
            row[op.at_lx :], row[op.at_x :], op.room, m, op.x_dims, gain, point, lines[KERNEL], cross[i], powers
        )
    lower = row[op.at_ly :]
    for i in range(m):
        at = row_start(i)
        pivot = lower[at + i]
        target = cross[i]
        for j in range(i):
            factor = lower[at + j]
            source = cross[j]
            for k in range(m):
                target[k] -= factor * source[k]
        for k in range(m):
            target[k] = target[k] / pivot if pivot > 0.0 else 0.0


@inline
def _operator_matrix(m: int, room: int, u: np.ndarray, cross: np.ndarray, a: np.ndarray) -> None:
    """a[:m, :m] <- A = M' C."""
    outline()
    for i in range(m):
        for k in range(m):
            a[i, k] = 0.0
    for i in range(m):
        source = cross[i]
        for j in range(m):
            factor = u[i * room + j]
            target = a[j]
            for k in range(m):
                target[k] += factor * source[k]


@inline
def _forecast_heads(plan: Plan, row: np.ndarray, m: int, a: np.ndarray, s: Scratch) -> None:
    """Heads of the horizons: T + A T + ... + A^(h-1) T by columns, T the learned mean step from x to y."""
    outline()
    op = plan.op
    room = op.room
    step, after, total = s.lines[KERNEL], s.lines[NOW], s.lines[LINE]
    for f in range(plan.dims):
        at = op.at_matrix + (room + f) * room
        for i in range(room):
            step[i] = row[at + i]
            total[i] = 0.0
        done = 0
        for h in range(1, plan.longest + 1):
            for i in range(m):
                total[i] += step[i]
            if s.horizons[done] == h:
                head = op.at_functions + (2 * plan.modes + done * plan.dims + f) * room
                for i in range(room):
                    row[head + i] = total[i]
                done += 1
            for i in range(m):
                after[i] = min(max(nystrom.dot(a[i], step, m), -_MOST), _MOST)
            for i in range(m):
                step[i] = after[i]


@inline
def _keep_phase(m: int, room: int, k: int, vectors: np.ndarray, former: np.ndarray) -> bool:
    """Turn eigenvector k so that its inner product with the former one is real and positive, if they are akin.

    Returns:
        whether it is the former one, nearly.
    """
    outline()
    x = vectors[2 * k * room : (2 * k + 1) * room]
    y = vectors[(2 * k + 1) * room : (2 * k + 2) * room]
    u, v = former[2 * k], former[2 * k + 1]
    re = nystrom.dot(x, u, m) + nystrom.dot(y, v, m)
    im = nystrom.dot(x, v, m) - nystrom.dot(y, u, m)
    modulus = math.sqrt(re * re + im * im)
    if modulus > 0.1:
        spectrum.turn(m, x, y, re, im, modulus)
    return bool(modulus > _SAME)
