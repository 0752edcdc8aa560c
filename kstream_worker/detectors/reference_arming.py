"""From a full reference to an armed detector: test of dependence, scales, atoms, the frozen bags. Compiled.

The first half gives scales, kernel width, atoms and the samples that the learned score is trained against. Coordinates
are ranked in the whole reference (their ranks do not depend on the scale), everything else in its second half: scores
that were fitted to the samples they are ranked in would be biased.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.dependence import RAW, SQUARES, critical
from kstream_worker.detectors.ranking import place
from kstream_worker.detectors.ranks_arming import fit_scales, start_learning, take_samples
from kstream_worker.detectors.ranks_layout import (
    AT_H_BAG,
    AT_T_RING,
    AT_V_BAG,
    COUNT,
    DIMS,
    H_ROOM,
    H_SIZE,
    LEVELS_LEFT,
    NOTHING_LEFT,
    SQUARES_LEFT,
    V_ROOM,
    V_ROWS,
    V_SIZE,
)
from kstream_worker.detectors.ranks_sample import clip_raw, to_steps
from kstream_worker.detectors.reference_layout import LEFT_OVER
from kstream_worker.detectors.whitening import clipped_squares, ljung_box
from kstream_worker.models import scaling
from kstream_worker.numerics.jit import inline, jit

LEVELS_LEVEL = 0.01  # of a false claim that samples are dependent; it costs a word, the opposite error a promise
SQUARES_LEVEL = 0.01


@jit
def freeze(row: np.ndarray, shorts: np.ndarray, state: np.ndarray, test: bool, plan: np.ndarray) -> None:
    """Turn the reference that the row holds into an armed detector; phase and counter are the caller's.

    Args:
        row: float64[plan[FLOATS]], the key's floats, with state[COUNT] samples from plan[AT_UNION] on.
        shorts: int16[plan[SHORTS]], the key's shorts.
        state: int64[plan[INTS]], the key's integers; sizes of bags are 0.
        test: whether the reference is tested for serial dependence.
        plan: layout.
    """
    d = plan[DIMS]
    n = state[COUNT]
    half = n // 2
    samples = take_samples(row, shorts, n, plan)
    state[LEFT_OVER] = _left_over(samples, n, d) if test else NOTHING_LEFT
    fit_scales(samples, half, row, plan)
    q = np.empty(d + 1, dtype=np.int16)
    z = np.empty(d)
    start_learning(samples, half, row, shorts, state, plan, q, z)
    room, h_room = plan[V_ROOM], plan[H_ROOM]
    for i in range(n):
        to_steps(samples[i * d : (i + 1) * d], row, plan, q, z)
        place(shorts[plan[AT_V_BAG] : plan[AT_H_BAG]], room, plan[V_ROWS], i, room, q)
        if i >= max(half, n - h_room):
            place(shorts[plan[AT_H_BAG] : plan[AT_T_RING]], h_room, d, state[H_SIZE], h_room, q)
            state[H_SIZE] += 1
    state[V_SIZE] = n


@inline
def _left_over(samples: np.ndarray, n: int, d: int) -> int:
    """Serial dependence of the reference (Ljung-Box, 10 lags, each feature): in levels, squares or nothing."""
    values = np.empty(n)
    work = np.empty(n)
    found = NOTHING_LEFT
    for j in range(d):
        for i in range(n):
            work[i] = samples[i * d + j]
        center, scale = scaling.center_and_scale(work, n)
        for i in range(n):
            values[i] = clip_raw(samples[i * d + j], center, scale)
        if ljung_box(values, n) > critical(RAW, n, LEVELS_LEVEL / d):
            return LEVELS_LEFT
        clipped_squares(values, n, work)
        if ljung_box(values, n) > critical(SQUARES, n, SQUARES_LEVEL / d):
            found = SQUARES_LEFT
    return found
