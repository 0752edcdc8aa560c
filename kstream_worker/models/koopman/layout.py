"""Where the parts of a key's row lie, and the work space of the walk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.cme import judge
from kstream_worker.models.cme.judge import USUAL_ROWS
from kstream_worker.models.cme.layout import OPERATOR_INTS, RLS, Operator, lay_out

ROW = 4  # of what the numbers of a row mean: snapshots of other rows are refused

# Columns of the int64 row; 0 is the key's random stream number (nothing here draws).
PHASE = 1
SEQ = 2  # pairs of this key so far
WARM = 3  # pairs of the warm-up held
CHAIN = 4  # pairs in a row whose x is the y of `lag` pairs before
TIME = 5  # of the latest pair, milliseconds
FOUND = 6  # modes known
LEARNED = 7  # pairs learned since the warm-up
OPERATOR = 8  # the operator's own
COUNTS = OPERATOR + OPERATOR_INTS  # [horizons] forecasts compared so far

WARMING = 0
ARMED = 1

PER_MODE = 6  # columns of a mode: modulus, argument, time constant, period, eigenfunction's real and imaginary part
HEAD = 4  # columns before them: innovation, atoms, interval, spectral change
SPECTRAL = 3  # the last of these
PER_SHIFT = 3  # sums kept of a mode: real and imaginary part of its misfits, and of their squares

FINISHED = 0
FULL = 1
STALE = 2

MAX_DISTANCE_POINTS = 256
WIDTH = 1.0  # of the kernel, in median distances of the scaled warm-up
RIDGE = 0.01  # of the summed squares
REFRESH = 64  # pairs between two computations of the spectrum
READY = 3  # scores are given after so many warm-ups
ETA = 0.1  # nominal step of the rule of admission
NOVELTY = 0.1  # of unit length: what a pair must tell beyond the dictionary to be admitted


class Plan(NamedTuple):
    """Settings, and the layout of a float64 row (`at_*` are offsets).

    While a key warms up its pairs lie from `op.at_x` on, where the operator has nothing yet: x_1, y_1, dt_1, x_2, ...
    """

    op: Operator
    dims: int
    warmup: int
    modes: int
    lag: int
    horizons: int
    longest: int  # horizon
    interval: float  # seconds from x to y; 0: from the times
    at_scale: int  # [d], after the medians
    at_gain: int  # [1], -1 / (2 width^2)
    at_interval: int  # [1], of the times, milliseconds
    at_values: int  # [2 modes], eigenvalues
    at_shifts: int  # [PER_SHIFT modes], of late, of each mode's misfit
    at_errors: int  # [horizons * (d + 2)], scaled squared errors by feature; sums: ours, of the last value
    at_misfit: int  # [2 d], squared misfit of the steps by feature: of late, then usual
    at_judge: int  # [judge.state_size]
    at_past: int  # [longest * lag * d], former y
    at_ring: int  # [sum of horizons * lag * d], forecasts that wait for their y
    floats: int  # length of a row


class Scratch(NamedTuple):
    """Work space of one bank; holds nothing between samples. Rows of `lines` are named below."""

    horizons: NDArray[np.int64]  # [horizons], rising
    lines: NDArray[np.float64]  # [LINES, room + d]
    cross: NDArray[np.float64]  # [room, room], C
    judge: judge.Scratch
    warm: NDArray[np.float64]  # what arming needs: scaled points, a column, distances, one behind the other


ZX = 0  # x, scaled
ZY = 1  # y, scaled
NOW = 2  # features of y on the x side: of the present state
KERNEL = 3  # its kernel values
LINE = 4
LINES = 5


def make_plan(
    dims: int,
    *,
    atoms: int,
    warmup: int,
    modes: int,
    lag: int,
    horizons: tuple[int, ...],
    gamma: float,
    interval: float,
) -> Plan:
    """The plan of a bank; settings as `KoopmanModel` has them."""
    longest = max(horizons)
    sizes = [
        dims,
        dims,
        1,
        1,
        2 * modes,
        PER_SHIFT * modes,
        len(horizons) * (dims + 2),
        2 * dims,
        judge.state_size(dims, dims),
        longest * lag * dims,
        sum(horizons) * lag * dims,
    ]
    at = np.concatenate(([0], np.cumsum(sizes))).tolist()
    op = lay_out(
        at[11],
        dims,
        dims,
        atoms,
        gain=RLS,
        extra=dims + USUAL_ROWS,
        eta=ETA,
        functions=2 * modes + len(horizons) * dims,
        gamma=gamma,
        ridge=RIDGE,
    )
    return Plan(
        op,
        dims,
        warmup,
        modes,
        lag,
        len(horizons),
        longest,
        float(interval),
        at_scale=at[1],
        at_gain=at[2],
        at_interval=at[3],
        at_values=at[4],
        at_shifts=at[5],
        at_errors=at[6],
        at_misfit=at[7],
        at_judge=at[8],
        at_past=at[9],
        at_ring=at[10],
        floats=max(op.end, op.at_x + warmup * (2 * dims + 1)),
    )


def make_scratch(plan: Plan, horizons: tuple[int, ...]) -> Scratch:
    """Work space for a plan."""
    room, points = plan.op.room, 2 * plan.warmup
    near = min(points, MAX_DISTANCE_POINTS)
    warm = points * (plan.dims + 1) + near * (near - 1) // 2
    return Scratch(
        np.array(horizons, dtype=np.int64),
        np.zeros((LINES, room + plan.dims)),
        np.zeros((room, room)),
        judge.make_scratch(plan.dims, plan.dims),
        np.zeros(warm),
    )
