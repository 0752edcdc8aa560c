"""From a full warm-up to an armed rank detector: tests of dependence, scales, bags, atoms. Compiled.

With tests of dependence the warm-up has two parts: the first (two thirds) is for the tests and the scale of the
autoregressions alone; the last third arms. The arming part is halved: scales, kernel width, atoms and the reference
ring come from its first half (T), the bags of ranked samples from its second (V and H).
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.ranking import place
from kstream_worker.detectors.ranks_layout import (
    AT_AR_COV,
    AT_ATOMS,
    AT_CENTER,
    AT_COEF,
    AT_COV,
    AT_H_BAG,
    AT_INVERSE,
    AT_RAW_CENTER,
    AT_RAW_SCALE,
    AT_RING,
    AT_ROOTED,
    AT_SCALE,
    AT_STEPS,
    AT_T_RING,
    AT_UNION,
    AT_V_BAG,
    AT_WEIGHTS,
    ATOM_COUNT,
    ATOM_ROOM,
    DEPENDENCE,
    DIMS,
    GAIN,
    H_ROOM,
    H_SIZE,
    LEFT_OVER,
    LEVELS_LEFT,
    NOTHING_LEFT,
    ROOT_ALL,
    ROOT_AUTO,
    SQUARES_LEFT,
    T_SIZE,
    TEST,
    TRANSFORM,
    V_ROOM,
    V_ROWS,
    V_SIZE,
    WARMUP,
    WHITEN,
    WHITENED,
    singles,
    warmup_room,
)
from kstream_worker.detectors.ranks_learned import RIDGE
from kstream_worker.detectors.ranks_sample import clip_raw, take_roots, to_steps, wants_root, whiten_sample
from kstream_worker.detectors.whitening import (
    AR_COV,
    AR_ORDER,
    AR_TERMS,
    ar_reset,
    chi_square_tail,
    clipped_squares,
    ljung_box,
)
from kstream_worker.models import nystrom, scaling
from kstream_worker.numerics.jit import inline, jit

WHITEN_LEVEL = 0.2  # lenient: to whiten independent samples by mistake costs nothing measurable
LEVELS_LEVEL = 0.001
SQUARES_LEVEL = 0.0001  # of 400 independent normal samples .0008 are below it, of Student's t with 3 degrees .007
WIDTH = 0.7  # of the kernel, in median distances


@jit
def arm(row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Turn the warm-up that fills the row into an armed detector; phase, counter and alarm are the caller's.

    Args:
        row: float64[plan[FLOATS]], the key's floats, with plan[WARMUP] samples from plan[AT_UNION] on.
        shorts: int16[plan[SHORTS]], the key's shorts, with those samples that did not fit there.
        state: int64[plan[INTS]], the key's integers; sizes of bags are 0.
        plan: layout.
    """
    d = plan[DIMS]
    samples = take_samples(row, shorts, plan[WARMUP], plan)
    _take_roots(samples, state, plan)
    state[WHITENED] = 0
    state[LEFT_OVER] = NOTHING_LEFT
    if plan[TEST] > 0:
        _test_and_whiten(samples, row, state, plan)
    used = samples[plan[TEST] * d :]
    n = plan[WARMUP] - plan[TEST]
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
def _take_roots(samples: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Decide whose square roots are taken, from that part of the warm-up that fills no bag, and take them."""
    d = plan[DIMS]
    n = plan[TEST] if plan[TEST] > 0 else plan[WARMUP] // 2
    values = np.empty(n)
    for j in range(d):
        for i in range(n):
            values[i] = samples[i * d + j]
        chosen = plan[TRANSFORM] == ROOT_ALL or (plan[TRANSFORM] == ROOT_AUTO and wants_root(values, n))
        state[plan[AT_ROOTED] + j] = 1 if chosen else 0
    for i in range(plan[WARMUP]):
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
def _test_and_whiten(samples: np.ndarray, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Decide whether to whiten; if so replace the samples by innovations. Then test what is left."""
    d = plan[DIMS]
    n = plan[TEST]
    values = np.empty(plan[WARMUP])
    dependent = plan[DEPENDENCE] == WHITEN
    for j in range(d):
        for i in range(n):
            values[i] = samples[i * d + j]
        center, scale = scaling.center_and_scale(values, n)
        row[plan[AT_RAW_CENTER] + j] = center
        row[plan[AT_RAW_SCALE] + j] = scale
        for i in range(n):
            values[i] = clip_raw(samples[i * d + j], center, scale)
        if chi_square_tail(ljung_box(values, n)) < WHITEN_LEVEL / d:
            dependent = True
    if dependent:
        state[WHITENED] = 1
        _whiten_all(samples, row, plan)
    # Of innovations the second half of the test part and the arming part: the first are those of a model yet untaught.
    first = n // 2 if dependent else 0
    last = plan[WARMUP] if dependent else n
    for j in range(d):
        for i in range(first, last):
            value = samples[i * d + j]
            if not dependent:
                value = clip_raw(value, row[plan[AT_RAW_CENTER] + j], row[plan[AT_RAW_SCALE] + j])
            values[i - first] = value
        found = _left_over(values, last - first, d, dependent)
        if found != NOTHING_LEFT and state[LEFT_OVER] != LEVELS_LEFT:
            state[LEFT_OVER] = found


@inline
def _left_over(values: np.ndarray, n: int, d: int, innovations: bool) -> int:
    """What a feature's values (overwritten) still show: dependence of levels, of squares, or nothing."""
    if innovations and chi_square_tail(ljung_box(values, n)) < LEVELS_LEVEL / d:
        return LEVELS_LEFT
    clipped_squares(values, n, np.empty(n))
    if chi_square_tail(ljung_box(values, n)) < SQUARES_LEVEL / d:
        return SQUARES_LEFT
    return NOTHING_LEFT


@inline
def _whiten_all(samples: np.ndarray, row: np.ndarray, plan: np.ndarray) -> None:
    d = plan[DIMS]
    for j in range(d):
        ring = plan[AT_RING] + j * AR_ORDER
        coef = plan[AT_COEF] + j * AR_TERMS
        cov = plan[AT_AR_COV] + j * AR_COV
        ar_reset(row[ring : ring + AR_ORDER], row[coef : coef + AR_TERMS], row[cov : cov + AR_COV])
    gain = np.empty(AR_TERMS)
    for i in range(plan[WARMUP]):
        sample = samples[i * d : (i + 1) * d]
        whiten_sample(sample, i >= AR_ORDER, row, plan, sample, gain)


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
