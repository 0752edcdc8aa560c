"""Which samples of a key go on to be ranked, where not all do. Compiled.

Held samples repeat their predecessor because nothing new was measured. With `auto`, where at least half of the features
are held, `CHANGES` leaves them out: a sample is kept once every feature that is held has changed, or after `STRIDE`
samples at the latest, so that a feature that is stuck still comes to be ranked. Where values also repeat by chance
nothing is left out: the choice "changed" would itself depend on the values. `THINNED` keeps one of `STRIDE` samples,
`MEANS` the mean of `STRIDE`. The next test is credited with all samples since
the last one, kept or not: run lengths count samples.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.dependence import correlation_time, hold_share, hold_stride, repeat_chance
from kstream_worker.detectors.ranks_layout import (
    AT_CENTER,
    AT_HELD,
    AT_HISTORY,
    AT_KEPT,
    AT_LAST,
    AT_ORIGIN,
    AT_UNION,
    ATOM_COUNT,
    AUTO,
    BLOCKS,
    CHANGES,
    COUNT,
    DEPENDENCE,
    DIMS,
    EVERY,
    HEADER,
    HELD,
    KEEPING,
    MEANS,
    NEED,
    OUTLIVING,
    PERIODS,
    PHASE,
    STRIDE,
    THIN,
    THINNED,
    V_SIZE,
    WAITED,
    WARMING,
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
RARE_TIES = 0.05  # chance of equal neighbours up to which "changed" says nothing of the values


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
    elif keeping == CHANGES and not going:
        going = True
        for j in range(d):
            if row[plan[AT_HELD] + j] == 1.0 and raw[j] == row[plan[AT_LAST] + j]:
                going = False
    if going:
        state[WAITED] = 0
        for j in range(d):
            out[j] = raw[j]
            if keeping == MEANS:
                out[j] = row[plan[AT_LAST] + j]
                row[plan[AT_LAST] + j] = 0.0
            elif keeping == CHANGES:
                row[plan[AT_LAST] + j] = raw[j]
    return bool(going)


@inline
def put_sample(
    place: int, sample: np.ndarray, civil: int, row: np.ndarray, shorts: np.ndarray, plan: np.ndarray
) -> None:
    """Write a sample (float64[>= d]) and, where there are seasons, its civil time to a place of the warm-up."""
    for j in range(plan[DIMS]):
        room, at = warmup_room(row, shorts, place * plan[DIMS] + j, plan)
        room[at] = sample[j]
    if plan[PERIODS] > 0:
        room, at = warmup_room(row, shorts, plan[WARMUP] * plan[DIMS] + place, plan)
        room[at] = civil


@inline
def get_sample(place: int, sample: np.ndarray, row: np.ndarray, shorts: np.ndarray, plan: np.ndarray) -> int:
    """Read a sample (float64[>= d], filled) from a place of the warm-up; its civil time, 0 without seasons."""
    for j in range(plan[DIMS]):
        room, at = warmup_room(row, shorts, place * plan[DIMS] + j, plan)
        sample[j] = room[at]
    if plan[PERIODS] == 0:
        return 0
    room, at = warmup_room(row, shorts, plan[WARMUP] * plan[DIMS] + place, plan)
    return int(room[at])


@inline
def take_warmup(
    row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray, samples: np.ndarray, times: np.ndarray
) -> None:
    """Copy the last samples of a warm-up and their civil times, oldest first.

    Args:
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers; state[COUNT] samples were put.
        plan: layout.
        samples: float64[n * d], filled; the places are a ring of n.
        times: int64[n], filled.
    """
    d = plan[DIMS]
    n = len(times)
    first = state[COUNT] % n if state[COUNT] > n else 0
    for i in range(n):
        times[i] = get_sample((first + i) % n, samples[i * d : (i + 1) * d], row, shorts, plan)


@jit
def warm_up_again(row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """Forget all but the rate, the escalation, the seasons and older samples, and warm up.

    Args:
        row: the key's floats.
        state: the key's integers.
        plan: layout.
    """
    row[OUTLIVING:HEADER] = 0.0
    row[plan[AT_CENTER] : plan[AT_ORIGIN]] = 0.0
    row[plan[AT_HISTORY] : plan[AT_KEPT]] = 0.0
    row[plan[AT_UNION] :] = 0.0
    state[V_SIZE : ATOM_COUNT + 1] = 0
    state[PHASE] = WARMING
    state[COUNT] = 0
    state[HELD] = 0


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
    n = plan[WARMUP]
    state[NEED] = n
    stride = 1
    keeping = EVERY
    if plan[DEPENDENCE] == AUTO:
        stride, keeping = _hold(row, shorts, plan), CHANGES
    elif plan[DEPENDENCE] == THIN:
        stride, keeping = _correlation_stride(THIN_TIMES, row, shorts, plan), THINNED
    elif plan[DEPENDENCE] == BLOCKS:
        stride, keeping = _correlation_stride(BLOCK_TIMES, row, shorts, plan), MEANS
    stride = min(stride, max(1, n // MOST_STRIDE))
    if stride > 1:
        state[KEEPING] = keeping
        state[STRIDE] = stride
        _take_out(row, shorts, state, plan)
        state[NEED] = max(min(n, ENOUGH_KEPT), state[COUNT])


@inline
def _hold(row: np.ndarray, shorts: np.ndarray, plan: np.ndarray) -> int:
    """Note which features are held; the stride of the one held longest, 1 where nothing is to be left out."""
    d = plan[DIMS]
    n = plan[WARMUP]
    values = np.empty(n)
    work = np.empty(n)
    stride = 1
    held = 0
    by_chance = False
    for j in range(d):
        _one_feature(j, values, row, shorts, plan)
        own = hold_stride(hold_share(values, n, work))
        row[plan[AT_HELD] + j] = 1.0 if own > 1 else 0.0
        if own > 1:
            held += 1
            stride = max(stride, own)
            by_chance = by_chance or repeat_chance(values, n, work) > RARE_TIES
    return 1 if by_chance or 2 * held < d else stride


@inline
def _one_feature(j: int, values: np.ndarray, row: np.ndarray, shorts: np.ndarray, plan: np.ndarray) -> None:
    for i in range(plan[WARMUP]):
        room, at = warmup_room(row, shorts, i * plan[DIMS] + j, plan)
        values[i] = room[at]


@inline
def _correlation_stride(times: float, row: np.ndarray, shorts: np.ndarray, plan: np.ndarray) -> int:
    """So many correlation times in samples, of the feature that has the longest."""
    n = plan[WARMUP]
    values = np.empty(n)
    stride = 1
    for j in range(plan[DIMS]):
        _one_feature(j, values, row, shorts, plan)
        center, scale = scaling.center_and_scale(values.copy(), n)
        for i in range(n):
            values[i] = clip_raw(values[i], center, scale)
        stride = max(stride, math.ceil(times * correlation_time(values, n)))
    return stride


@inline
def _take_out(row: np.ndarray, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    state[COUNT] = 0
    state[WAITED] = 0
    sample = np.empty(plan[DIMS])
    for i in range(plan[WARMUP]):
        civil = get_sample(i, sample, row, shorts, plan)
        if kept(sample, row, state, plan, sample):
            put_sample(state[COUNT], sample, civil, row, shorts, plan)
            state[COUNT] += 1
