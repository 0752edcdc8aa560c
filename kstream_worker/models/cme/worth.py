"""What each atom of a dictionary holds of the operator, and which holds least."""

from __future__ import annotations

import numpy as np

from kstream_worker.models import nystrom
from kstream_worker.models.cme.layout import ATOMS, TURN, Operator, Work
from kstream_worker.models.cme.triangle import solve_lower
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.outline import outline


@inline
def contribution(op: Operator, row: np.ndarray, m: int, i: int, w: Work) -> float:
    """|U - P U P|_HS, P and P the projections (x and y side) on what the other atoms span: what atom i alone holds."""
    outline()
    u = row[op.at_matrix :]
    _own_direction(row[op.at_lx :], m, op.room, i, w.u)
    _own_direction(row[op.at_ly :], m, op.room, i, w.v)
    total = 0.0
    both = 0.0
    for j in range(m):
        along = nystrom.dot(u[j * op.room : (j + 1) * op.room], w.u, m)
        total += along * along
        both += w.v[j] * along
    for j in range(op.room):
        w.u[j] = 0.0
    for j in range(m):
        factor = w.v[j]
        for k in range(m):
            w.u[k] += factor * u[j * op.room + k]
    total += nystrom.dot(w.u, w.u, m) - both * both
    return float(np.sqrt(max(total, 0.0)))


@inline
def least_worth(op: Operator, row: np.ndarray, m: int) -> int:
    """The atom of the smallest contribution as last measured; the earliest of equals."""
    least = 0
    for i in range(1, m):
        if row[op.at_worth + i] < row[op.at_worth + least]:
            least = i
    return least


@inline
def measure_next(op: Operator, row: np.ndarray, state: np.ndarray, w: Work) -> None:
    """Measure one atom's contribution anew, all in turn."""
    turn = state[TURN]
    row[op.at_worth + turn] = contribution(op, row, state[ATOMS], turn, w)
    state[TURN] = (turn + 1) % op.room


@inline
def _own_direction(lower: np.ndarray, m: int, room: int, i: int, out: np.ndarray) -> None:
    """out <- the unit vector, in whitened coordinates, that is orthogonal to all atoms but i; 0 where i is
    truncated.
    """
    outline()
    for j in range(room):
        out[j] = 1.0 if j == i else 0.0
    length = np.sqrt(solve_lower(lower, m, out, i, out))
    if length > 0.0:
        for j in range(i, m):
            out[j] /= length
