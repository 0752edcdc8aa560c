"""The end of a pair detector's warm-up: scales, kernel width, atoms and whitening, compiled."""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.pairs_kernel import RIDGE
from kstream_worker.detectors.pairs_state import (
    AT_ATOMS,
    AT_CENTER,
    AT_COV,
    AT_DIVERGENCE,
    AT_GAIN,
    AT_MIDDLE,
    AT_NARROW,
    AT_SCALE,
    AT_W,
    AT_WIDE,
    ATOMS,
    DIMS,
    ESTIMATORS,
    ROOM,
    WARMUP,
)
from kstream_worker.models import nystrom, scaling
from kstream_worker.numerics.jit import inline, jit

WIDTH = 0.7  # of the middle kernel, in median distances; the wide one has twice, the narrow one half of it
WIDTH_POINTS = 400  # points of the warm-up that set the width: 79,800 distances
ATOM_POINTS = 2000  # points of the warm-up among which atoms are chosen; both bound the time and memory of a fit


@jit
def fit(row: np.ndarray, state: np.ndarray, at: np.ndarray) -> None:
    """From both sides of the warm-up pairs in `row`: all that the walk needs, everything else as before the first pair.

    Args:
        row: float64[plan.floats] of the key, changed.
        state: int64[INTS + plan.length] of the key; the number of atoms is set.
        at: the plan's table.
    """
    d = at[DIMS]
    n = 2 * at[WARMUP]
    sample = row[at[AT_ATOMS] : at[AT_ATOMS] + n * d].copy()
    center = row[at[AT_CENTER] :]
    scale = row[at[AT_SCALE] :]
    values = np.empty(n)
    for j in range(d):
        for i in range(n):
            values[i] = sample[i * d + j]
        center[j], scale[j] = scaling.center_and_scale(values, n)
    for i in range(n):
        point = sample[i * d : (i + 1) * d]
        scaling.scale_sample(point, center, scale, d, point)
    used = min(n, WIDTH_POINTS)
    width = WIDTH * scaling.median_distance(sample, used, d, np.empty(used * (used - 1) // 2))
    row[at[AT_DIVERGENCE] :] = 0.0
    row[at[AT_GAIN]] = -1.0 / (8.0 * width * width)
    state[ATOMS] = _choose(row, sample, min(n, ATOM_POINTS), 4.0 * row[at[AT_GAIN]], at)
    for e in range(ESTIMATORS):
        nystrom.rls_reset(state[ATOMS], RIDGE, row[at[AT_COV] :], row[at[AT_W] + e * at[ROOM] :])


@inline
def _choose(row: np.ndarray, sample: np.ndarray, n: int, gain: float, at: np.ndarray) -> int:
    """Atoms by pivoted Cholesky at the middle width, then their whitening at the other two; the number of atoms."""
    d = at[DIMS]
    room = at[ROOM]
    powers = np.empty(max(n, room), dtype=np.int64)
    atoms = row[at[AT_ATOMS] :]
    tolerance = nystrom.PIVOT_TOLERANCE
    m = nystrom.choose_atoms(
        sample,
        n,
        d,
        gain,
        room,
        tolerance,
        atoms,
        room,
        row[at[AT_MIDDLE] :],
        np.empty(n * room),
        np.empty(n),
        powers,
        np.empty(room, dtype=np.int64),
    )
    point = np.empty(d)
    k = np.empty(room)
    for factor, start in ((0.25, AT_WIDE), (4.0, AT_NARROW)):
        nystrom.factor(atoms, room, m, d, factor * gain, tolerance, row[at[start] :], point, k, powers)
    return m
