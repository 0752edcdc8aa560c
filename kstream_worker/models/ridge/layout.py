"""Where the numbers of a key's window lie in its row, and the work space of a bank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.nystrom import packed_size

# Columns of the int64 row; 0 is the key's random stream number (nothing here draws).
PHASE = 1
SEQ = 2  # pairs of this key so far
NEXT = 3  # slot that the next pair takes; of a full window, the oldest pair's
STATUS = 4  # of the current coefficients, index into `STATUSES`
REPAIRED = 5  # SEQ of the last factorisation
FAILED = 6  # 1 where that one failed: the inverse is a stand-in
CLIPPED = 7  # pairs of this turn of the window with a value beyond the clipping limit
REFINED = 8  # refinements so far
FACTORED = 9  # factorisations so far, the first included
INTS = 10

WARMING = 0
ARMED = 1

STATUSES = ("certified", "uncertified", "budget-exhausted")
CERTIFIED = 0
UNCERTIFIED = 1
EXHAUSTED = 2

NEAR = 256  # pairs of the warm-up at most whose distances give the median
TRIAL = 48  # pairs of the warm-up on which ridge and width are chosen


class Plan(NamedTuple):
    """Settings, and the layout of a float64 row (`at_*` are offsets).

    The window has `room` circular slots; matrices over them are packed lower triangles by columns. While a key warms
    up its pairs fill `at_x` and `at_y` unscaled; once it is armed they lie there scaled.
    """

    dx: int
    dy: int
    room: int  # slots of the window, in fours
    ridge: float  # tau, 0 to choose
    eta: float  # tolerance of the residual, in scales of y
    at_y_center: int  # [dy]; [dx] centres of x lie before, from 0 on, and then their scales
    at_y_scale: int  # [dy]
    at_gain: int  # [1], -1 / (2 width^2)
    at_tau: int  # [1]
    at_norms: int  # [dy], residual norms of the current coefficients, in scales of y
    at_misfit: int  # [dy], faded squares of standardised errors
    at_x: int  # [dx * room], feature j of slot i at j * room + i
    at_y: int  # [dy * room]
    at_b: int  # [dy * room], coefficients
    at_kernel: int  # packed K
    at_inverse: int  # packed (K + tau I)^-1
    floats: int  # length of a row


class Scratch(NamedTuple):
    """Work space of one bank; holds nothing between pairs."""

    zx: NDArray[np.float64]  # [dx]
    zy: NDArray[np.float64]  # [dy]
    k: NDArray[np.float64]  # [room] each
    g: NDArray[np.float64]
    w: NDArray[np.float64]
    r: NDArray[np.float64]
    trial: NDArray[np.float64]
    powers: NDArray[np.int64]
    sample: NDArray[np.float64]  # [near * dx], rows are points, near = min(room, NEAR)
    distances: NDArray[np.float64]  # [near (near - 1) / 2]
    matrix: NDArray[np.float64]  # packed, of order TRIAL
    squares: NDArray[np.float64]  # packed, of order TRIAL


def lay_out(dx: int, dy: int, room: int, ridge: float, eta: float) -> Plan:
    """The plan of a bank."""
    packed = packed_size(room)
    sizes = [2 * dx, dy, dy, 1, 1, dy, dy, dx * room, dy * room, dy * room, packed, packed]
    starts = np.concatenate(([0], np.cumsum(sizes))).tolist()
    return Plan(dx, dy, room, ridge, eta, *starts[1:13])


def make_scratch(plan: Plan) -> Scratch:
    """Work space for a plan."""
    room, near, trial = plan.room, min(plan.room, NEAR), packed_size(TRIAL)
    return Scratch(
        zx=np.zeros(plan.dx),
        zy=np.zeros(plan.dy),
        k=np.zeros(room),
        g=np.zeros(room),
        w=np.zeros(room),
        r=np.zeros(room),
        trial=np.zeros(room),
        powers=np.zeros(max(room, trial), dtype=np.int64),
        sample=np.zeros(near * plan.dx),
        distances=np.zeros(near * (near - 1) // 2),
        matrix=np.zeros(trial),
        squares=np.zeros(trial),
    )
