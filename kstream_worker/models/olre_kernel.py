"""The compiled walk of the likelihood-ratio bank: warm-up, arming, prequential scores, one estimator step a pair."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models import nystrom, scaling
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log

# Columns of the int64 row; 0 is the key's random stream number (nothing here draws).
PHASE = 1
SEQ = 2  # pairs of this key so far
WARM = 3  # pairs of the warm-up held
ATOMS = 4  # atoms in use, m
STEPS = 5  # steps of the estimator
INTS = 6

WARMING = 0
ARMED = 1

RLS = 0
SGD = 1

RATIO_FLOOR = 1e-6  # estimates below are set to it before the logarithm
SGD_ETA = 0.5
MAX_DISTANCE_POINTS = 256

# Sums over armed pairs, faded by gamma: of f(y), f(y)^2, f(x)^2, 1.
SUMS = 4


class Plan(NamedTuple):
    """Settings, and the layout of a float64 row (`at_*` are offsets).

    While a key warms up its pairs lie from `at_weights` on, where the estimator has nothing yet: x_1, y_1, x_2, y_2,
    ...
    """

    dims: int
    room: int  # for atoms
    warmup: int
    estimator: int
    alpha: float
    gamma: float
    ridge: float
    width: float  # of the kernel, in median distances of the scaled warm-up
    tolerance: float  # smallest pivot of the choice of atoms
    at_scale: int  # [d], after the medians
    at_gain: int  # [1], -1 / (2 width^2)
    at_sums: int  # [SUMS]
    at_weights: int  # [room]
    at_mean: int  # [room], the averaged weights (SGD)
    at_atoms: int  # [d * room]
    at_inverse: int  # packed
    at_cov: int  # packed (RLS)
    floats: int  # length of a row


class Scratch(NamedTuple):
    """Work space of one bank; holds nothing between samples."""

    zx: NDArray[np.float64]  # [d]
    zy: NDArray[np.float64]  # [d]
    kx: NDArray[np.float64]  # [room] each
    ky: NDArray[np.float64]
    p: NDArray[np.float64]
    q: NDArray[np.float64]
    gp: NDArray[np.float64]
    gq: NDArray[np.float64]
    powers: NDArray[np.int64]  # [max(room, 2 warmup)]
    raw: NDArray[np.float64]  # [2 warmup * d]
    scaled: NDArray[np.float64]  # [2 warmup * d]
    column: NDArray[np.float64]  # [2 warmup]
    columns: NDArray[np.float64]  # [2 warmup * room]
    distances: NDArray[np.float64]
    chosen: NDArray[np.int64]  # [room]


def make_scratch(plan: Plan) -> Scratch:
    """Work space for a plan."""
    points = 2 * plan.warmup
    near = min(points, MAX_DISTANCE_POINTS)
    return Scratch(
        zx=np.zeros(plan.dims),
        zy=np.zeros(plan.dims),
        kx=np.zeros(plan.room),
        ky=np.zeros(plan.room),
        p=np.zeros(plan.room),
        q=np.zeros(plan.room),
        gp=np.zeros(plan.room),
        gq=np.zeros(plan.room),
        powers=np.zeros(max(plan.room, points), dtype=np.int64),
        raw=np.zeros(points * plan.dims),
        scaled=np.zeros(points * plan.dims),
        column=np.zeros(points),
        columns=np.zeros(points * plan.room),
        distances=np.zeros(near * (near - 1) // 2),
        chosen=np.zeros(plan.room, dtype=np.int64),
    )


@inline
def _features(plan: Plan, row: np.ndarray, m: int, x: np.ndarray, y: np.ndarray, s: Scratch) -> None:
    """s.p, s.q <- whitened features of the pair."""
    d = plan.dims
    scale = row[plan.at_scale : plan.at_scale + d]
    scaling.scale_sample(x, row, scale, d, s.zx)
    scaling.scale_sample(y, row, scale, d, s.zy)
    atoms = row[plan.at_atoms :]
    gain = row[plan.at_gain]
    nystrom.gaussian(s.zx, atoms, plan.room, m, d, gain, s.kx, s.powers)
    nystrom.gaussian(s.zy, atoms, plan.room, m, d, gain, s.ky, s.powers)
    nystrom.whiten_pair(row[plan.at_inverse :], m, s.kx, s.ky, s.p, s.q)


@inline
def _learn(plan: Plan, row: np.ndarray, m: int, step: int, s: Scratch) -> None:
    """One step of the estimator on the features in `s`."""
    w = row[plan.at_weights :]
    if plan.estimator == RLS:
        nystrom.rls_step(row[plan.at_cov :], m, w, s.p, s.q, plan.alpha, plan.gamma, plan.ridge, step, s.gp, s.gq)
    else:
        nystrom.sgd_step(w, m, s.p, s.q, plan.alpha, SGD_ETA, nystrom.slow_decay(step))
        nystrom.average_step(row[plan.at_mean :], w, m, step)


@inline
def _arm(plan: Plan, row: np.ndarray, ints: np.ndarray, s: Scratch) -> None:
    """End of the warm-up: scale, width and atoms from the points of both sides, then learn from its pairs."""
    d = plan.dims
    n = 2 * plan.warmup
    s.raw[:] = row[plan.at_weights : plan.at_weights + n * d]
    row[plan.at_weights :] = 0.0
    for j in range(d):
        for i in range(n):
            s.column[i] = s.raw[i * d + j]
        row[j], row[plan.at_scale + j] = scaling.center_and_scale(s.column, n)
    scale = row[plan.at_scale : plan.at_scale + d]
    for i in range(n):
        point = s.scaled[i * d : (i + 1) * d]
        scaling.scale_sample(s.raw[i * d : (i + 1) * d], row, scale, d, point)
    width = plan.width * scaling.median_distance(s.scaled, min(n, MAX_DISTANCE_POINTS), d, s.distances)
    row[plan.at_gain] = -0.5 / (width * width)
    atoms = row[plan.at_atoms : plan.at_atoms + d * plan.room]
    inverse = row[plan.at_inverse : plan.at_cov]
    m = nystrom.choose_atoms(
        s.scaled,
        n,
        d,
        row[plan.at_gain],
        plan.room,
        plan.tolerance,
        atoms,
        plan.room,
        inverse,
        s.columns,
        s.column,
        s.powers,
        s.chosen,
    )
    if plan.estimator == RLS:
        nystrom.rls_reset(m, plan.ridge, row[plan.at_cov :], row[plan.at_weights :])
    for t in range(plan.warmup):
        at = 2 * t * d
        _features(plan, row, m, s.raw[at : at + d], s.raw[at + d : at + 2 * d], s)
        _learn(plan, row, m, t + 1, s)
    ints[ATOMS] = m
    ints[STEPS] = plan.warmup
    ints[PHASE] = ARMED


@inline
def _divergence(plan: Plan, sums: np.ndarray) -> float:
    """Pearson divergence, eq. 8c with running means of prequential values; NaN before the first."""
    if sums[3] == 0.0:
        return math.nan
    live = sums[0] - 0.5 * plan.alpha * sums[1]
    return float((live - 0.5 * (1.0 - plan.alpha) * sums[2]) / sums[3] - 0.5)


@inline
def _accumulate(plan: Plan, sums: np.ndarray, fx: float, fy: float) -> None:
    for i in range(SUMS):
        sums[i] *= plan.gamma
    sums[0] += fy
    sums[1] += fy * fy
    sums[2] += fx * fx
    sums[3] += 1.0


@inline
def _hold(plan: Plan, row: np.ndarray, ints: np.ndarray, x: np.ndarray, y: np.ndarray, s: Scratch) -> None:
    """Keep one pair of the warm-up; the last one arms."""
    d = plan.dims
    at = plan.at_weights + 2 * d * ints[WARM]
    for j in range(d):
        row[at + j] = x[j]
        row[at + d + j] = y[j]
    ints[WARM] += 1
    if ints[WARM] == plan.warmup:
        _arm(plan, row, ints, s)


@jit
def walk(
    plan: Plan,
    floats: np.ndarray,
    ints: np.ndarray,
    slots: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    s: Scratch,
    state: np.ndarray,
    seq: np.ndarray,
    log_ratio: np.ndarray,
    divergence: np.ndarray,
) -> int:
    """Score each pair, then learn from it.

    Args:
        plan: of the bank.
        floats: float64[capacity, plan.floats].
        ints: int64[capacity, INTS].
        slots: int64[n].
        x: float64[n, d].
        y: float64[n, d].
        s: work space.
        state: int8[n], result.
        seq: int64[n], result.
        log_ratio: float64[n], result.
        divergence: float64[n], result.

    Returns:
        how many estimates lay below `RATIO_FLOOR`.
    """
    clipped = 0
    for t in range(slots.shape[0]):
        row = floats[slots[t]]
        whole = ints[slots[t]]
        whole[SEQ] += 1
        seq[t] = whole[SEQ]
        state[t] = whole[PHASE]
        if whole[PHASE] == WARMING:
            log_ratio[t] = math.nan
            divergence[t] = math.nan
            _hold(plan, row, whole, x[t], y[t], s)
            continue
        m = whole[ATOMS]
        _features(plan, row, m, x[t], y[t], s)
        w = row[plan.at_weights if plan.estimator == RLS else plan.at_mean :]
        fx = 1.0 + nystrom.dot(w, s.p, m)
        fy = 1.0 + nystrom.dot(w, s.q, m)
        clipped += fy < RATIO_FLOOR
        log_ratio[t] = log(max(fy, RATIO_FLOOR))
        sums = row[plan.at_sums : plan.at_sums + SUMS]
        _accumulate(plan, sums, fx, fy)
        divergence[t] = _divergence(plan, sums)
        whole[STEPS] += 1
        _learn(plan, row, m, whole[STEPS], s)
    return clipped


@jit
def evaluate(plan: Plan, row: np.ndarray, whole: np.ndarray, z: np.ndarray, s: Scratch, ratio: np.ndarray) -> None:
    """ratio[i] <- f(z[i]), unclipped, NaN while warming; changes no state.

    Args:
        plan: of the bank.
        row: float64[plan.floats].
        whole: int64[INTS].
        z: float64[n, d].
        s: work space.
        ratio: float64[n], result.
    """
    d = plan.dims
    m = whole[ATOMS]
    scale = row[plan.at_scale : plan.at_scale + d]
    w = row[plan.at_weights if plan.estimator == RLS else plan.at_mean :]
    for i in range(z.shape[0]):
        if whole[PHASE] == WARMING:
            ratio[i] = math.nan
            continue
        scaling.scale_sample(z[i], row, scale, d, s.zx)
        nystrom.gaussian(s.zx, row[plan.at_atoms :], plan.room, m, d, row[plan.at_gain], s.kx, s.powers)
        nystrom.whiten(row[plan.at_inverse :], m, s.kx, s.p)
        ratio[i] = 1.0 + nystrom.dot(w, s.p, m)


@jit
def current_divergence(plan: Plan, row: np.ndarray) -> float:
    """The running Pearson divergence of a key, NaN before the first armed pair."""
    return _divergence(plan, row[plan.at_sums : plan.at_sums + SUMS])
