"""From a full warm-up to an armed rank detector: tests of dependence, scales, bags, atoms. Compiled.

With tests of dependence the warm-up has two parts: the first (two thirds) is for the tests and the scale of the
autoregressions alone; the last third arms. The arming part is halved: scales, kernel width, atoms and the reference
ring come from its first half (T), the bags of ranked samples from its second (V and H).
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.ranking import place
from kstream_worker.detectors.ranks_dependence import season_harms, whiten_warmup
from kstream_worker.detectors.ranks_keeping import choose_keeping, take_warmup
from kstream_worker.detectors.ranks_layout import (
    AT_ATOMS,
    AT_CENTER,
    AT_COV,
    AT_H_BAG,
    AT_INVERSE,
    AT_ROOTED,
    AT_SCALE,
    AT_STEPS,
    AT_T_RING,
    AT_UNION,
    AT_V_BAG,
    AT_WEIGHTS,
    ATOM_COUNT,
    ATOM_ROOM,
    COUNT,
    DEPENDENCE,
    DIMS,
    GAIN,
    H_ROOM,
    H_SIZE,
    LEFT_OVER,
    NEED,
    NO_DEPENDENCE,
    NOTHING_LEFT,
    PERIODS,
    ROOT_ALL,
    ROOT_AUTO,
    SEASON_AUTO,
    SEASON_STARTED,
    SEASONS,
    T_SIZE,
    TRANSFORM,
    V_ROOM,
    V_ROWS,
    V_SIZE,
    WHITENED,
    singles,
    warmup_room,
)
from kstream_worker.detectors.ranks_learned import RIDGE
from kstream_worker.detectors.ranks_sample import take_roots, to_steps, wants_root
from kstream_worker.detectors.season_search import leave_in, take_seasons_out
from kstream_worker.models import nystrom, scaling
from kstream_worker.numerics.jit import inline, jit

WIDTH = 0.7  # of the kernel, in median distances


@jit
def arm(row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> bool:
    """Turn the warm-up that fills the row into an armed detector; phase, counter and alarm are the caller's.

    Args:
        row: float64[plan[FLOATS]], the key's floats, with state[COUNT] samples from plan[AT_UNION] on.
        shorts: int16[plan[SHORTS]], the key's shorts, with those samples that did not fit there.
        state: int64[plan[INTS]], the key's integers; sizes of bags are 0.
        plan: layout.

    Returns:
        False where the warm-up must go on: samples were taken out of it, or a given season was not seen once.
    """
    d = plan[DIMS]
    tests = plan[DEPENDENCE] != NO_DEPENDENCE
    if tests and state[NEED] == 0:
        choose_keeping(row, shorts, state, plan)
        if state[COUNT] < state[NEED]:
            return False
    full = min(state[COUNT], state[NEED]) if tests else state[COUNT]
    tested = full * 2 // 3 if tests else 0
    samples = np.empty(full * d)
    times = np.empty(full, dtype=np.int64)
    take_warmup(row, shorts, state, plan, samples, times)
    _take_roots(samples, full, tested if tests else full // 2, state, plan)
    if plan[PERIODS] > 0:
        raw = samples.copy()
        if not take_seasons_out(samples, times, row, shorts, state, plan):
            return False
        found = plan[SEASON_AUTO] == 1 and state[SEASONS] != 0
        if found and season_harms(samples, raw, full, tested, row, plan):
            leave_in(state)
            samples = raw
    row[plan[AT_UNION] :] = 0.0
    shorts[: plan[AT_STEPS]] = 0
    state[WHITENED] = 0
    state[LEFT_OVER] = NOTHING_LEFT
    if tests:
        whiten_warmup(samples, full, tested, row, state, plan)
    used = samples[tested * d :]
    n = full - tested
    half = n // 2
    fit_scales(used, half, row, plan)
    q = np.empty(d + 1, dtype=np.int16)
    z = np.empty(d)
    start_learning(used, half, row, shorts, state, plan, q, z)
    v_room, h_room = plan[V_ROOM], plan[H_ROOM]
    for i in range(half, n):
        to_steps(used[i * d : (i + 1) * d], row, plan, q, z)
        if i >= n - v_room:
            place(shorts[plan[AT_V_BAG] : plan[AT_H_BAG]], v_room, plan[V_ROWS], state[V_SIZE], v_room, q)
            state[V_SIZE] += 1
        if i >= n - h_room:
            place(shorts[plan[AT_H_BAG] : plan[AT_T_RING]], h_room, d, state[H_SIZE], h_room, q)
            state[H_SIZE] += 1
    return True


@inline
def fit_scales(samples: np.ndarray, n: int, row: np.ndarray, plan: np.ndarray) -> None:
    """Center and scale of each feature from the first n of the samples (float64[>= n * d])."""
    d = plan[DIMS]
    values = np.empty(n)
    for j in range(d):
        for i in range(n):
            values[i] = samples[i * d + j]
        row[plan[AT_CENTER] + j], row[plan[AT_SCALE] + j] = scaling.center_and_scale(values, n)


@inline
def _take_roots(samples: np.ndarray, full: int, n: int, state: np.ndarray, plan: np.ndarray) -> None:
    """Decide whose square roots are taken, from the first n samples, which fill no bag, and take them of all."""
    d = plan[DIMS]
    values = np.empty(n)
    for j in range(d):
        if state[SEASON_STARTED] == 1:
            break  # a season is learned in the units of the first choice
        for i in range(n):
            values[i] = samples[i * d + j]
        chosen = plan[TRANSFORM] == ROOT_ALL or (plan[TRANSFORM] == ROOT_AUTO and wants_root(values, n))
        state[plan[AT_ROOTED] + j] = 1 if chosen else 0
    for i in range(full):
        take_roots(samples[i * d : (i + 1) * d], state, plan, samples[i * d : (i + 1) * d])


@inline
def take_samples(row: np.ndarray, shorts: np.ndarray, n: int, plan: np.ndarray) -> np.ndarray:
    """The n samples that were collected before arming, float64[n * d]; their room is cleared."""
    samples = np.empty(n * plan[DIMS])
    for entry in range(len(samples)):
        room, at = warmup_room(row, shorts, entry, plan)
        samples[entry] = room[at]
    row[plan[AT_UNION] :] = 0.0
    shorts[: plan[AT_STEPS]] = 0
    return samples


@inline
def start_learning(
    used: np.ndarray,
    half: int,
    row: np.ndarray,
    shorts: np.ndarray,
    state: np.ndarray,
    plan: np.ndarray,
    q: np.ndarray,
    z: np.ndarray,
) -> None:
    """Reference ring, kernel width, atoms and whitening from the first half; the estimate starts as f = 1.

    Args:
        used: float64[>= half * d], samples in their order.
        half: how many of them.
        row: the key's floats, scales set.
        shorts: the key's shorts.
        state: the key's integers.
        plan: layout.
        q: int16[d + 1], scratch.
        z: float64[>= d], scratch.
    """
    d = plan[DIMS]
    room, h_room = plan[ATOM_ROOM], plan[H_ROOM]
    n = min(half, h_room)
    sample = np.empty(n * d)
    for i in range(n):
        start = (half - n + i) * d
        to_steps(used[start : start + d], row, plan, q, z)
        for j in range(d):
            shorts[plan[AT_T_RING] + j * h_room + i] = q[j]
            sample[i * d + j] = z[j]
    state[T_SIZE] = n
    width = WIDTH * scaling.median_distance(sample, n, d, np.empty(n * (n - 1) // 2))
    row[GAIN] = -0.5 / (width * width)
    inverse = np.zeros(nystrom.packed_size(room))
    state[ATOM_COUNT] = nystrom.choose_atoms(
        sample,
        n,
        d,
        row[GAIN],
        room,
        nystrom.PIVOT_TOLERANCE,
        singles(row, plan[AT_ATOMS], room * d),
        room,
        inverse,
        np.empty(n * room),
        np.empty(n),
        np.empty(n, dtype=np.int64),
        np.empty(room, dtype=np.int64),
    )
    rounded = singles(row, plan[AT_INVERSE], len(inverse))
    for i in range(len(inverse)):
        rounded[i] = np.float32(inverse[i])
    nystrom.rls_reset(state[ATOM_COUNT], RIDGE, row[plan[AT_COV] :], row[plan[AT_WEIGHTS] :])
