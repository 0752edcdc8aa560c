"""Which samples of a key go on to be ranked, where not all do. Compiled.

`THINNED` keeps one of `STRIDE` samples, `MEANS` the mean of `STRIDE`. The next test is credited with all samples since
the last one, kept or not: run lengths count samples.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.dependence import correlation_time
from kstream_worker.detectors.ranks_layout import (
    AT_LAST,
    BLOCKS,
    COUNT,
    DEPENDENCE,
    DIMS,
    EVERY,
    KEEPING,
    MEANS,
    NEED,
    STRIDE,
    THIN,
    THINNED,
    WAITED,
    WARMUP,
    warmup_room,
)
from kstream_worker.detectors.ranks_sample import clip_raw
from kstream_worker.models import scaling
from kstream_worker.numerics.jit import inline, jit

ENOUGH_KEPT = 200  # kept samples that a warm-up needs where not all are kept
MOST_STRIDE = 10  # the share of a warm-up that a stride may reach, inverted
THIN_TIMES = 2.0  # correlation times from one kept sample to the next
BLOCK_TIMES = 4.0  # and in a block


@inline
def kept(raw: np.ndarray, row: np.ndarray, state: np.ndarray, plan: np.ndarray, out: np.ndarray) -> bool:
    """Whether the sample goes on.

    Args:
        raw: float64[>= d].
        row: the key's floats.
        state: the key's integers.
        plan: layout.
        out: float64[>= d], filled with what goes on; may be `raw`.
    """
    d = plan[DIMS]
    keeping = state[KEEPING]
    going = True
    if keeping != EVERY:
        state[WAITED] += 1
        going = state[WAITED] >= state[STRIDE]
    if keeping == MEANS:
        for j in range(d):
            row[plan[AT_LAST] + j] += raw[j] / state[STRIDE]
    if going:
        state[WAITED] = 0
        for j in range(d):
            out[j] = raw[j]
            if keeping == MEANS:
                out[j] = row[plan[AT_LAST] + j]
                row[plan[AT_LAST] + j] = 0.0
    return bool(going)


@inline
def put_sample(place: int, sample: np.ndarray, row: np.ndarray, shorts: np.ndarray, plan: np.ndarray) -> None:
    """Write a sample (float64[>= d]) to a place of the warm-up."""
    for j in range(plan[DIMS]):
        room, at = warmup_room(row, shorts, place * plan[DIMS] + j, plan)
        room[at] = sample[j]


@inline
def get_sample(place: int, sample: np.ndarray, row: np.ndarray, shorts: np.ndarray, plan: np.ndarray) -> None:
    """Read a sample (float64[>= d], filled) from a place of the warm-up."""
    for j in range(plan[DIMS]):
        room, at = warmup_room(row, shorts, place * plan[DIMS] + j, plan)
        sample[j] = room[at]


@jit
def choose_keeping(row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """From a full warm-up of all samples choose which are kept; what is not is taken out of it.

    Afterwards `COUNT` is the number of kept samples; where not all are, the warm-up waits for `NEED` of them.

    Args:
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers.
        plan: layout.
    """
    d = plan[DIMS]
    n = plan[WARMUP]
    state[NEED] = n
    if plan[DEPENDENCE] != THIN and plan[DEPENDENCE] != BLOCKS:
        return
    values = np.empty(n)
    stride = 1
    sample = np.empty(d)
    for j in range(d):
        for i in range(n):
            get_sample(i, sample, row, shorts, plan)
            values[i] = sample[j]
        stride = max(stride, _correlation_stride(values, n, plan[DEPENDENCE] == BLOCKS))
    stride = min(stride, max(1, n // MOST_STRIDE))
    if stride > 1:
        state[KEEPING] = MEANS if plan[DEPENDENCE] == BLOCKS else THINNED
        state[STRIDE] = stride
        _take_out(row, shorts, state, plan)
        state[NEED] = max(min(n, ENOUGH_KEPT), state[COUNT])


@inline
def _correlation_stride(values: np.ndarray, n: int, blocks: bool) -> int:
    """Correlation times of a feature's scaled values (overwritten) in samples, times 2, or times 4 for blocks."""
    center, scale = scaling.center_and_scale(values.copy(), n)
    for i in range(n):
        values[i] = clip_raw(values[i], center, scale)
    return math.ceil((BLOCK_TIMES if blocks else THIN_TIMES) * correlation_time(values, n))


@inline
def _take_out(row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    state[COUNT] = 0
    state[WAITED] = 0
    sample = np.empty(plan[DIMS])
    for i in range(plan[WARMUP]):
        get_sample(i, sample, row, shorts, plan)
        if kept(sample, row, state, plan, sample):
            put_sample(state[COUNT], sample, row, shorts, plan)
            state[COUNT] += 1
