"""Where the parts of a compressed operator lie in a key's row, and the work space of its steps."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.cme.triangle import row_start
from kstream_worker.models.nystrom import RIDGE_PERIOD

ROW = 4  # of what the numbers of cme's row mean: snapshots of other rows are refused

# Columns of the operator's int64 state.
ATOMS = 0  # m, atoms in use
STEPS = 1  # steps of the gain since the start, for the phase of the ridge
TURN = 2  # the atom whose contribution is measured next
REPLACED = 3  # atoms replaced so far
OPERATOR_INTS = 4

SGD = 0
RLS = 1

MOST_GROWTH = 1e4  # of the covariance between two injections of the ridge in one direction


class Operator(NamedTuple):
    """Settings of one compressed operator U: H_X -> H_Y, and where its parts lie in a float64 row (`at_*`).

    In whitened coordinates, U = sum over i, j of M[i, j] v_i (x) u_j with u and v the orthonormal bases that the
    Cholesky factors of the kernel matrices of the atoms' x and y sides make. The matrix has room + extra rows of `room`
    entries: M, then (from row `room` on) one row for each further function of y, whose conditional mean is
    learned with the same gain.

    Attributes:
        x_dims: features of x.
        y_dims: features of y.
        room: D, most atoms, a multiple of 4.
        extra: further functions of y, E.
        functions: functions of x in whitened coordinates (f(x) = sum_j f_j a'_j), set by the caller and kept right when
            atoms come and go.
        gain: `SGD` or `RLS`.
        eta: step size of `SGD`; with `RLS` the nominal one of the rule of admission.
        decay: lambda of `SGD`.
        gamma: forgetting of `RLS`, 0 < gamma <= 1.
        ridge: of `RLS`, of the summed squares.
        at_x: [x_dims * room], feature j of atom i at j * room + i.
        at_y: [y_dims * room].
        at_lx: packed by rows.
        at_ly: packed by rows.
        at_worth: [room], the last measured contribution of each atom.
        at_matrix: [(room + extra) * room].
        at_functions: [functions * room].
        at_cov: [room * room] with `RLS`, else nothing.
        end: behind the last part.
    """

    x_dims: int
    y_dims: int
    room: int
    extra: int
    functions: int
    gain: int
    eta: float
    decay: float
    gamma: float
    ridge: float
    at_x: int
    at_y: int
    at_lx: int
    at_ly: int
    at_worth: int
    at_matrix: int
    at_functions: int
    at_cov: int
    end: int


def lay_out(
    start: int,
    x_dims: int,
    y_dims: int,
    room: int,
    *,
    gain: int,
    extra: int = 0,
    functions: int = 0,
    eta: float = 0.2,
    decay: float = 1e-3,
    gamma: float = 1.0,
    ridge: float = 1.0,
) -> Operator:
    """The layout of an operator whose parts begin at `start` of a row; arguments as `Operator` has them.

    Raises:
        ValueError: room is no positive multiple of 4.
    """
    if room < 4 or room % 4:
        raise ValueError(f"room is {room}; it must be a multiple of 4, at least 4")
    triangle = row_start(room)
    matrix = (room + extra) * room
    sizes = [x_dims * room, y_dims * room, triangle, triangle, room, matrix, functions * room]
    at = np.concatenate(([start], start + np.cumsum(sizes))).tolist()
    end = at[7] + (room * room if gain == RLS else 0)
    return Operator(
        x_dims,
        y_dims,
        room,
        extra,
        functions,
        gain,
        float(eta),
        float(decay),
        float(gamma),
        float(ridge),
        at_x=at[0],
        at_y=at[1],
        at_lx=at[2],
        at_ly=at[3],
        at_worth=at[4],
        at_matrix=at[5],
        at_functions=at[6],
        at_cov=at[7],
        end=end,
    )


def check_forgetting(forgetting: float, room: int) -> None:
    """Refuse a forgetting that `RLS` does not survive.

    In a direction in which no pair comes, the covariance grows by 1 / forgetting a pair until the ridge is put back
    there, once in RIDGE_PERIOD * room pairs: beyond what float64 resolves it ends in numbers that are not finite.

    Raises:
        ValueError: it lies outside (0, 1], or is too small for so many atoms; says how small it may be.
    """
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting is {forgetting}; it must be in (0, 1]")
    turn = RIDGE_PERIOD * room
    if forgetting**turn < 1.0 / MOST_GROWTH:
        least = math.ceil(1e4 * MOST_GROWTH ** (-1.0 / turn)) / 1e4
        raise ValueError(f"forgetting is {forgetting}; with {room} atoms it must be at least {least}, or take fewer")


class Work(NamedTuple):
    """What a pair is to an operator, filled by `observe`, and work space. Vectors of `room` are 0 from entry m on.

    Attributes:
        kx: [room], a: kernel values of x against the atoms.
        ky: [room], b: of y.
        p: [room], a' = LX^-1 a, whitened features of x.
        q: [room], b' = LY^-1 b, whitened features of y.
        c: [room + extra], U phi(x): c' = M a', then the predicted means of the further functions.
        g: [room + extra], b' - c', then target minus prediction of the further functions, which the caller sets.
        step: [room], the gain vector.
        cosine: [room]
        sine: [room]
        u: [room]
        v: [room]
        powers: int64[room]
    """

    kx: NDArray[np.float64]
    ky: NDArray[np.float64]
    p: NDArray[np.float64]
    q: NDArray[np.float64]
    c: NDArray[np.float64]
    g: NDArray[np.float64]
    step: NDArray[np.float64]
    cosine: NDArray[np.float64]
    sine: NDArray[np.float64]
    u: NDArray[np.float64]
    v: NDArray[np.float64]
    powers: NDArray[np.int64]


def make_work(op: Operator) -> Work:
    """Work space for an operator; holds nothing between samples."""
    room, rows = op.room, op.room + op.extra
    return Work(
        kx=np.zeros(room),
        ky=np.zeros(room),
        p=np.zeros(room),
        q=np.zeros(room),
        c=np.zeros(rows),
        g=np.zeros(rows),
        step=np.zeros(room),
        cosine=np.zeros(room),
        sine=np.zeros(room),
        u=np.zeros(room),
        v=np.zeros(room),
        powers=np.zeros(room, dtype=np.int64),
    )
