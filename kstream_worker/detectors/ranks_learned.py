"""The learned score of the rank detector: trained on even samples (T), ranking odd ones (H).

The estimate f = 1 + u of the relative density ratio is a function of T alone, so that for samples of H it is a fixed
score at every moment. For ranking, its weights are copied at every 16th sample of H, and all members of the bag are
scored afresh with the copy: bag and newcomer are always scored by the same function, in single precision and in the
same order of summation, which exact ranks require.

That function replaces the exponential of the Gaussian kernel by kappa(v) = (1 - t + t^2/2 - t^3/6)^64, t = v / 64,
within 4e-5 of e^-v up to v = 4: any score will do, and this one needs a third of the time. The published ratio uses the
exact kernel.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.ranking import STEPS
from kstream_worker.detectors.ranks_layout import (
    AT_ATOMS,
    AT_COV,
    AT_DUALS,
    AT_H_BAG,
    AT_H_SCORES,
    AT_INVERSE,
    AT_T_RING,
    AT_WEIGHTS,
    ATOM_COUNT,
    ATOM_ROOM,
    DIMS,
    DIVERGENCE,
    FADED,
    GAIN,
    H_ROOM,
    H_SIZE,
    KERNEL,
    PHI_X,
    PHI_Z,
    PX,
    PZ,
    T_COUNT,
    T_SIZE,
    UNITS,
    X,
    Z,
    singles,
)
from kstream_worker.models import nystrom
from kstream_worker.numerics.jit import inline

ALPHA = 0.1  # weight of the live side in the relative ratio
FORGETTING = 0.995
RIDGE = 1.0
REFRESH = 16

_UNIT = 1.0 / STEPS
_SINGLE_UNIT = np.float32(_UNIT)
_ZERO = np.float32(0.0)
_FAR = np.float32(64.0)
_SHARE = np.float32(1.0 / 64.0)
_ONE = np.float32(1.0)
_HALF = np.float32(0.5)
_SIXTH = np.float32(1.0 / 6.0)


@inline
def kappa(square: np.float32, gain: np.float32) -> np.float32:
    """The kernel at a squared distance, in single precision."""
    v = -gain * square
    t = (v if v < _FAR else _FAR) * _SHARE
    s = _ONE - t * (_ONE - t * (_HALF - t * _SIXTH))
    s *= s
    s *= s
    s *= s
    s *= s
    s *= s
    return s * s


@inline
def refresh(row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray, work: np.ndarray) -> None:
    """Copy the weights for ranking, and score the bag with them, atom by atom over all members.

    Bit for bit this is what `score` gives for each of them.
    """
    m = state[ATOM_COUNT]
    duals = singles(row, plan[AT_DUALS], m)
    exact = work[KERNEL, :m]
    nystrom.dual_weights(_factor(row, plan), m, row[plan[AT_WEIGHTS] :], exact)
    for a in range(m):
        duals[a] = np.float32(exact[a])
    n = state[H_SIZE]
    last = plan[DIMS] - 1
    for j in range(last + 1):
        start = plan[AT_H_BAG] + j * plan[H_ROOM]
        column = shorts[start : start + n]
        units = singles(work[UNITS + j], 0, n)
        for i in range(n):
            units[i] = np.float32(column[i]) * _SINGLE_UNIT
    gain = np.float32(row[GAIN])
    scores = singles(row, plan[AT_H_SCORES], n)
    squares = singles(work[KERNEL], 0, n)
    for i in range(n):
        scores[i] = _ZERO
        squares[i] = _ZERO
    room = plan[ATOM_ROOM]
    atoms = singles(row, plan[AT_ATOMS], room * plan[DIMS])
    for a in range(m):
        for j in range(last):
            units = singles(work[UNITS + j], 0, n)
            atom = atoms[j * room + a]
            for i in range(n):
                delta = units[i] - atom
                squares[i] += delta * delta
        units = singles(work[UNITS + last], 0, n)
        atom = atoms[last * room + a]
        dual = duals[a]
        for i in range(n):
            delta = units[i] - atom
            scores[i] += dual * kappa(squares[i] + delta * delta, gain)
            squares[i] = _ZERO


@inline
def score(row: np.ndarray, m: int, plan: np.ndarray, work: np.ndarray) -> np.float32:
    """The score of the sample `work[Z]` with the copied weights of m atoms."""
    kernel = singles(work[KERNEL], 0, m)
    for a in range(m):
        kernel[a] = _ZERO
    room = plan[ATOM_ROOM]
    atoms = singles(row, plan[AT_ATOMS], room * plan[DIMS])
    for j in range(plan[DIMS]):
        own = atoms[j * room : j * room + m]
        z = np.float32(work[Z, j])  # exact, as a number of steps
        for a in range(m):
            delta = z - own[a]
            kernel[a] += delta * delta
    gain = np.float32(row[GAIN])
    for a in range(m):
        kernel[a] = kappa(kernel[a], gain)
    duals = singles(row, plan[AT_DUALS], m)
    total = _ZERO
    for a in range(m):
        total += duals[a] * kernel[a]
    return total


@inline
def ratio(
    row: np.ndarray,
    m: int,
    point: int,
    phi: int,
    plan: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> float:
    """f at a sample, with the present weights.

    Args:
        row: the key's floats.
        m: atoms in use.
        point: row of `work` that holds the sample.
        phi: row of `work` for its whitened features.
        plan: layout.
        work: scratch matrix.
        powers: int64[>= m], scratch.
    """
    room, d = plan[ATOM_ROOM], plan[DIMS]
    nystrom.gaussian(work[point], singles(row, plan[AT_ATOMS], room * d), room, m, d, row[GAIN], work[KERNEL], powers)
    nystrom.whiten(_factor(row, plan), m, work[KERNEL], work[phi])
    return 1.0 + nystrom.dot(row[plan[AT_WEIGHTS] :], work[phi], m)


@inline
def train(
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    live: float,
    pick: int,
    replaced: int,
    q: np.ndarray,
    plan: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> None:
    """One step on (a reference member, the sample); then the sample joins the ring, in the place of another if it
    is full.

    Args:
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers.
        live: f at the sample, its whitened features in `work[PHI_Z]`.
        pick: the reference member, drawn uniformly.
        replaced: drawn uniformly from the room of the ring.
        q: int16[>= d], the sample in steps.
        plan: layout.
        work: scratch matrix.
        powers: scratch.
    """
    learn(row, shorts, state, live, pick, plan, work, powers)
    ring, room = plan[AT_T_RING], plan[H_ROOM]
    at = state[T_SIZE] if state[T_SIZE] < room else replaced
    for j in range(plan[DIMS]):
        shorts[ring + j * room + at] = q[j]
    state[T_SIZE] = min(state[T_SIZE] + 1, room)


@inline
def learn(
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    live: float,
    pick: int,
    plan: np.ndarray,
    work: np.ndarray,
    powers: np.ndarray,
) -> None:
    """One step of the estimate on (a reference member, the sample); the ring stays. Arguments as of `train`."""
    m = state[ATOM_COUNT]
    for j in range(plan[DIMS]):
        work[X, j] = shorts[plan[AT_T_RING] + j * plan[H_ROOM] + pick] * _UNIT
    reference = ratio(row, m, X, PHI_X, plan, work, powers)
    # Relative Pearson divergence (likelihood-ratio estimation by Pearson-divergence minimisation, eq. 8c), a
    # faded mean.
    term = live - 0.5 * (ALPHA * live * live + (1.0 - ALPHA) * reference * reference) - 0.5
    row[FADED] = FORGETTING * row[FADED] + 1.0
    row[DIVERGENCE] += (term - row[DIVERGENCE]) / row[FADED]
    state[T_COUNT] += 1
    nystrom.rls_step(
        row[plan[AT_COV] :],
        m,
        row[plan[AT_WEIGHTS] :],
        work[PHI_X],
        work[PHI_Z],
        ALPHA,
        FORGETTING,
        RIDGE,
        state[T_COUNT],
        work[PX],
        work[PZ],
    )


@inline
def _factor(row: np.ndarray, plan: np.ndarray) -> np.ndarray:
    """L^-1, packed: in single precision it is as fixed a map, within 1e-3 of the one that whitens exactly."""
    return singles(row, plan[AT_INVERSE], 2 * (plan[AT_WEIGHTS] - plan[AT_INVERSE]))
