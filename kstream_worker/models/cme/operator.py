"""The compressed operator of paper 000 in whitened Cholesky coordinates: one pair is one step of O(D^2).

The order of calls for a pair: `observe`, whatever is read of it (innovation, predictions), then `absorb`, which admits
the pair to the dictionary or not and lets the operator learn from it. All is in terms of an `Operator` (settings
and layout), the key's float64 row, its int64 state and a `Work`; nothing is allocated.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.models import nystrom
from kstream_worker.models.cme import covariance, worth
from kstream_worker.models.cme.layout import ATOMS, REPLACED, RLS, STEPS, TURN, Operator, Work
from kstream_worker.models.cme.triangle import append_row, delete_row, row_start, solve_lower
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.lanes import fill, load, store
from kstream_worker.numerics.outline import outline


@inline
def matrix(op: Operator, row: np.ndarray) -> np.ndarray:
    """The matrix as a flat view, row i at i * room."""
    return row[op.at_matrix : op.at_matrix + (op.room + op.extra) * op.room]


@inline
def project(
    lower: np.ndarray,
    atoms: np.ndarray,
    room: int,
    m: int,
    dims: int,
    gain: float,
    z: np.ndarray,
    k: np.ndarray,
    out: np.ndarray,
    powers: np.ndarray,
) -> float:
    """Whitened features of a point: k <- kernel values, out <- L^-1 k, both 0 from entry m on.

    Args:
        lower: the factor, packed by rows.
        atoms: float64[dims * room].
        room: room for atoms.
        m: atoms in use.
        dims: features.
        gain: -1 / (2 width^2).
        z: float64[>= dims].
        k: float64[room], result.
        out: float64[room], result.
        powers: int64[room], scratch.

    Returns:
        the squared distance of phi(z) from the atoms' span, at least 0.
    """
    outline()
    nystrom.gaussian(z, atoms, room, m, dims, gain, k, powers)
    for i in range(m, room):
        k[i] = 0.0
        out[i] = 0.0
    return max(1.0 - solve_lower(lower, m, k, 0, out), 0.0)


@inline
def project_x(op: Operator, row: np.ndarray, m: int, gain: float, x: np.ndarray, w: Work) -> float:
    """w.kx, w.p <- kernel values and whitened features of x; its squared distance from the span, dX."""
    return project(row[op.at_lx :], row[op.at_x :], op.room, m, op.x_dims, gain, x, w.kx, w.p, w.powers)


@inline
def project_y(op: Operator, row: np.ndarray, m: int, gain: float, y: np.ndarray, w: Work) -> float:
    """w.ky, w.q <- kernel values and whitened features of y; its squared distance from the span, dY."""
    return project(row[op.at_ly :], row[op.at_y :], op.room, m, op.y_dims, gain, y, w.ky, w.q, w.powers)


@inline
def apply(op: Operator, m: int, u: np.ndarray, p: np.ndarray, out: np.ndarray) -> None:
    """out[:m], out[room:] <- M p and the further functions' means for features p; out[m:room] <- 0."""
    outline()
    padded = (m + 3) // 4 * 4
    for i in range(m):
        out[i] = nystrom.dot(u[i * op.room : i * op.room + padded], p, padded)
    for i in range(m, op.room):
        out[i] = 0.0
    for i in range(op.room, op.room + op.extra):
        out[i] = nystrom.dot(u[i * op.room : i * op.room + padded], p, padded)


@inline
def observe(
    op: Operator, row: np.ndarray, m: int, x_gain: float, y_gain: float, x: np.ndarray, y: np.ndarray, w: Work
) -> tuple[float, float, float]:
    """Fill w.kx, ky, p, q, c and g[:room] for a pair; changes no state.

    Args:
        op: settings and layout.
        row: of the key.
        m: atoms in use.
        x_gain: -1 / (2 width^2) of the kernel on x.
        y_gain: the same on y.
        x: float64[x_dims], scaled.
        y: float64[y_dims], scaled.
        w: work space.

    Returns:
        dX, dY, the squared distances of phi(x), phi(y) from the spans, and gp^2 = |b' - c'|^2. The innovation |phi(y) -
        U phi(x)|^2 is dY + gp^2.
    """
    rest_x = project_x(op, row, m, x_gain, x, w)
    rest_y = project_y(op, row, m, y_gain, y, w)
    apply(op, m, matrix(op, row), w.p, w.c)
    return rest_x, rest_y, misfit(op, m, w)


@inline
def misfit(op: Operator, m: int, w: Work) -> float:
    """w.g[:room] <- b' - c', what w.c misses of y; |b' - c'|^2."""
    total = 0.0
    for i in range(op.room):
        w.g[i] = w.q[i] - w.c[i] if i < m else 0.0
        total += w.g[i] * w.g[i]
    return total


@inline
def hs_norm(op: Operator, m: int, u: np.ndarray) -> float:
    """|U|_HS = |M|_F."""
    total = 0.0
    for i in range(m):
        total += nystrom.dot(u[i * op.room : i * op.room + m], u[i * op.room : i * op.room + m], m)
    return float(np.sqrt(total))


@inline
def residual(op: Operator, rest_x: float, rest_y: float, misfit_y: float) -> float:
    """HS norm of what a gradient step on this pair would leave outside the dictionary's span, both sides projected.

    |E|^2 = eta^2 (dY k(x, x) + dX gp^2); corrects eq. 163, which keeps the y part only. With `RLS` eta is nominal: it
    sets how much a new atom must tell, not how fast the operator learns.
    """
    return float(op.eta * np.sqrt(rest_y + rest_x * misfit_y))


@inline
def absorb(
    op: Operator,
    row: np.ndarray,
    state: np.ndarray,
    epsilon: float,
    x: np.ndarray,
    y: np.ndarray,
    rest_x: float,
    rest_y: float,
    misfit_y: float,
    w: Work,
) -> bool:
    """Let the operator learn from the pair that `w` was filled with; admit it first where its residual exceeds epsilon.

    The caller has set w.g[room:], what the further functions' predictions miss.

    Where the dictionary is full, the pair is admitted only if its residual also exceeds the smallest contribution of an
    atom; that atom (the earliest of equals) is replaced. Of all atoms one contribution a pair is measured anew, in
    turn. The first pair is always admitted.

    Args:
        op: settings and layout.
        row: of the key, changed.
        state: int64[OPERATOR_INTS], changed.
        epsilon: bound of the residual's norm (eq. 16).
        x: float64[x_dims], scaled.
        y: float64[y_dims], scaled.
        rest_x: from `observe`, as the two that follow.
        rest_y: dY.
        misfit_y: gp^2.
        w: work space; on return its features p and q are those of the new dictionary.

    Returns:
        whether the pair was admitted.
    """
    outline()
    left_out = residual(op, rest_x, rest_y, misfit_y)
    full = state[ATOMS] == op.room
    if full:
        worth.measure_next(op, row, state, w)
    admitted = left_out > epsilon or state[ATOMS] == 0
    if admitted and full:
        least = worth.least_worth(op, row, state[ATOMS])
        admitted = left_out > row[op.at_worth + least]
        if admitted:
            lost_x, lost_y = delete_atom(op, row, state, least, w)
            state[REPLACED] += 1
            rest_x += lost_x
            rest_y += lost_y
            apply(op, state[ATOMS], matrix(op, row), w.p, w.c)
            misfit(op, state[ATOMS], w)
    if admitted:
        append_atom(op, row, state, x, y, rest_x, rest_y, w)
        row[op.at_worth + state[ATOMS] - 1] = left_out
    learn(op, row, state, w)
    return bool(admitted)


@inline
def append_atom(
    op: Operator,
    row: np.ndarray,
    state: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    rest_x: float,
    rest_y: float,
    w: Work,
) -> None:
    """Append the pair to the dictionary; the operators stay what they are. w.p, q, g get the pair's own coordinate."""
    outline()
    m = state[ATOMS]
    for j in range(op.x_dims):
        row[op.at_x + j * op.room + m] = x[j]
    for j in range(op.y_dims):
        row[op.at_y + j * op.room + m] = y[j]
    w.p[m] = append_row(row[op.at_lx :], m, w.p, rest_x)
    w.q[m] = append_row(row[op.at_ly :], m, w.q, rest_y)
    w.g[m] = w.q[m]
    if op.gain == RLS:
        row[op.at_cov + m * op.room + m] = 1.0 / op.ridge
    state[ATOMS] = m + 1


@inline
def delete_atom(op: Operator, row: np.ndarray, state: np.ndarray, i: int, w: Work) -> tuple[float, float]:
    """Take atom i out of the dictionary; the operators are projected on what the others span, on both sides.

    With `RLS` the matrix becomes the least-squares solution of what was seen in the remaining features. The
    features w.p and w.q turn along.

    Returns:
        by how much the squared distances dX and dY of the pair in `w` have grown.
    """
    outline()
    m = state[ATOMS]
    _delete_point(row[op.at_x : op.at_x + op.x_dims * op.room], op.x_dims, op.room, m, i)
    _delete_point(row[op.at_y : op.at_y + op.y_dims * op.room], op.y_dims, op.room, m, i)
    for j in range(i, m - 1):
        row[op.at_worth + j] = row[op.at_worth + j + 1]
    row[op.at_worth + m - 1] = 0.0
    delete_row(row[op.at_lx : op.at_lx + row_start(m)], m, i, w.cosine, w.sine)
    _turn_columns(w.p, 1, op.room, i, m, w)
    functions = row[op.at_functions : op.at_functions + op.functions * op.room]
    _turn_columns(functions, op.functions, op.room, i, m, w)
    _clear_column(functions, op.functions, op.room, m - 1)
    if op.gain == RLS:
        cov = row[op.at_cov : op.at_cov + op.room * op.room]
        _turn_columns(cov, m, op.room, i, m, w)
        _turn_rows(cov, op.room, i, m, w)
        covariance.symmetrise(cov, m, op.room)
        _marginalise(op, cov, m - 1, matrix(op, row), i, w)
    u = matrix(op, row)
    if op.gain != RLS:
        _turn_columns(u, op.room + op.extra, op.room, i, m, w)
        _clear_column(u, op.room + op.extra, op.room, m - 1)
    delete_row(row[op.at_ly : op.at_ly + row_start(m)], m, i, w.cosine, w.sine)
    _turn_columns(w.q, 1, op.room, i, m, w)
    _turn_rows(u, op.room, i, m, w)
    for j in range(op.room):
        u[(m - 1) * op.room + j] = 0.0
    if state[TURN] > i:
        state[TURN] -= 1
    state[ATOMS] = m - 1
    lost_x = w.p[m - 1] * w.p[m - 1]
    lost_y = w.q[m - 1] * w.q[m - 1]
    w.p[m - 1] = 0.0
    w.q[m - 1] = 0.0
    return lost_x, lost_y


@inline
def learn(op: Operator, row: np.ndarray, state: np.ndarray, w: Work) -> None:
    """One step of the matrix on the features w.p and the misfit w.g of a pair (eqs. 13, 17 in one).

    `SGD`: M <- (1 - lambda eta) M + eta g a''. `RLS`: the minimiser of the ridge-regularised squares with weights
    gamma^age; with gamma < 1 the ridge is put back as `nystrom.rls_step` does it.
    """
    outline()
    m = state[ATOMS]
    state[STEPS] += 1
    u = matrix(op, row)
    if op.gain == RLS:
        cov = row[op.at_cov : op.at_cov + op.room * op.room]
        scale = 1.0 / (op.gamma + covariance.times(cov, m, op.room, w.p, w.step))
        covariance.fade_and_subtract(cov, m, op.room, 1.0 / op.gamma, np.sqrt(scale / op.gamma), w.step, w.v)
        _scale(w.step, scale, op.room)
        add_outer(op, m, u, 1.0, w.g, 1.0, w.step)
        if op.gamma < 1.0 and state[STEPS] % nystrom.RIDGE_PERIOD == 0:
            added = op.ridge * (1.0 - nystrom.whole_power(op.gamma, nystrom.RIDGE_PERIOD * m))
            _inject(op, cov, m, u, (state[STEPS] // nystrom.RIDGE_PERIOD - 1) % m, added, w)
    else:
        add_outer(op, m, u, 1.0 - op.decay * op.eta, w.g, op.eta, w.p)


@inline
def add_outer(op: Operator, m: int, u: np.ndarray, keep: float, g: np.ndarray, factor: float, k: np.ndarray) -> None:
    """u <- keep u + factor g k', in the rows and columns in use."""
    outline()
    padded = (m + 3) // 4 * 4
    kept = fill(keep)
    for i in range(op.room + op.extra):
        if i < m or i >= op.room:
            on_k = fill(factor * g[i])
            at = i * op.room
            for j in range(0, padded, 4):
                store(u, at + j, kept * load(u, at + j) + on_k * load(k, j))


@inline
def _inject(op: Operator, cov: np.ndarray, m: int, u: np.ndarray, j: int, added: float, w: Work) -> None:
    """A <- A + added e_j e_j' with the cross products unchanged, in terms of P = A^-1 and the matrix that solves it."""
    outline()
    for i in range(op.room):
        w.step[i] = cov[j * op.room + i]
    gain = added / (1.0 + added * w.step[j])
    for i in range(op.room + op.extra):
        w.g[i] = u[i * op.room + j]
    add_outer(op, m, u, 1.0, w.g, -gain, w.step)
    covariance.fade_and_subtract(cov, m, op.room, 1.0, np.sqrt(gain), w.step, w.v)


@inline
def _scale(v: np.ndarray, factor: float, n: int) -> None:
    for i in range(n):
        v[i] *= factor


@inline
def _delete_point(atoms: np.ndarray, dims: int, room: int, m: int, i: int) -> None:
    for f in range(dims):
        for j in range(f * room + i, f * room + m - 1):
            atoms[j] = atoms[j + 1]
        atoms[f * room + m - 1] = 0.0


@inline
def _turn_columns(u: np.ndarray, rows: int, room: int, i: int, m: int, w: Work) -> None:
    """The rotations of `delete_row` on every row's entries: column m - 1 is then what the deleted point alone held."""
    outline()
    for r in range(rows):
        at = r * room
        carried = u[at + i]
        for j in range(i, m - 1):
            right = u[at + j + 1]
            u[at + j] = w.cosine[j] * carried + w.sine[j] * right
            carried = w.cosine[j] * right - w.sine[j] * carried
        u[at + m - 1] = carried


@inline
def _turn_rows(u: np.ndarray, room: int, i: int, m: int, w: Work) -> None:
    """The same on the rows."""
    outline()
    for j in range(i, m - 1):
        c = w.cosine[j]
        s = w.sine[j]
        for k in range(j * room, (j + 1) * room):
            upper = u[k]
            below = u[k + room]
            u[k] = c * upper + s * below
            u[k + room] = c * below - s * upper


@inline
def _clear_column(u: np.ndarray, rows: int, room: int, j: int) -> None:
    for r in range(rows):
        u[r * room + j] = 0.0


@inline
def _marginalise(op: Operator, cov: np.ndarray, last: int, u: np.ndarray, i: int, w: Work) -> None:
    """Drop the last feature (turned already in P) from the least squares: P <- its Schur complement, M <- the solution
    without it.
    """
    outline()
    m = last + 1
    rows = op.room + op.extra
    _turn_columns(u, rows, op.room, i, m, w)
    pivot = cov[last * op.room + last]
    for j in range(op.room):
        w.step[j] = cov[last * op.room + j] if j < m else 0.0
    for r in range(rows):
        w.g[r] = u[r * op.room + last]
    add_outer(op, m, u, 1.0, w.g, -1.0 / pivot, w.step)
    covariance.fade_and_subtract(cov, m, op.room, 1.0, 1.0 / np.sqrt(pivot), w.step, w.v)
    for j in range(op.room):
        cov[last * op.room + j] = 0.0
    _clear_column(cov, op.room, op.room, last)
    _clear_column(u, rows, op.room, last)
