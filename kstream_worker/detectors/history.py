"""What a key remembers of its raw samples, for explanations of its alarms.

The *history* is a ring of the last 256 samples (128 from five features on, compact 64): raw values, their event times,
and what was ranked of them (steps). Every eighth sample that leaves it replaces a random one of those *kept*: 96
samples (48) that are up to about 1,000 samples old. While an alarm is up, and until a regime that came back has
settled, they stay as they are: they stand for the regime before the alarm. Any other new warm-up forgets all of it.

Raw values are 32-bit floats relative to the key's origin (its first sample, from the arming on the medians of its
history), two in one entry of the row. They decide no first alarm; while one is up or settles they say whether
the old regime is back.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.detectors.ranking import magnitude
from kstream_worker.detectors.ranks_layout import (
    ALARM,
    AT_HISTORY,
    AT_KEPT,
    AT_ORIGIN,
    AT_STEPS,
    AT_TIMES,
    AT_UNION,
    DIMS,
    KEPT_ROOM,
    KEPT_SIZE,
    LENGTH,
    SEQ,
    SETTLING,
    STEPS_SEQ,
    WARM_SEQ,
)
from kstream_worker.models.bank import STREAM
from kstream_worker.models.scaling import select
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.random import below

KEEP_EVERY = 8  # of the samples that leave the history, so many pass for one that is kept
UNRANKED = -32768  # in the place of a sample's steps where it has no values

_KEEP = 40  # role of random draws
_LARGEST = 3e38


@inline
def narrow(value: float) -> np.float32:
    """As a 32-bit float, the largest in the place of larger ones."""
    return np.float32(min(max(value, -_LARGEST), _LARGEST))


@inline
def start_memory(raw: np.ndarray, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """A warm-up begins with the sample `raw`, float64[d], whose number is state[SEQ] already."""
    state[WARM_SEQ] = state[SEQ]
    if state[ALARM] == 1:  # older samples stay, relative to the origin that they have
        return
    state[KEPT_SIZE] = 0
    if plan[LENGTH] > 0:
        for j in range(plan[DIMS]):
            row[plan[AT_ORIGIN] + j] = raw[j]


@inline
def remember(
    raw: np.ndarray, time: int, row: np.ndarray, shorts: np.ndarray, state: np.ndarray, q: np.ndarray, plan: np.ndarray
) -> None:
    """Put a sample into the history; state[SEQ] is its number already.

    Args:
        raw: float64[d].
        time: its event time.
        row: the key's floats.
        shorts: the key's shorts.
        state: the key's integers.
        q: int16[>= d], the sample in steps (of no meaning while warming).
        plan: layout.
    """
    length = plan[LENGTH]
    if length == 0:
        return
    d = plan[DIMS]
    seq = state[SEQ]
    at = seq % length
    history = row[plan[AT_HISTORY] : plan[AT_KEPT]].view(np.float32)
    steps = shorts[plan[AT_STEPS] + at * d : plan[AT_STEPS] + (at + 1) * d]
    settled = state[ALARM] == 0 and state[SETTLING] == 0
    if seq % KEEP_EVERY == 0 and seq - length >= state[WARM_SEQ] and settled and steps[0] != UNRANKED:
        _keep(history[at * d : (at + 1) * d], row, state, plan)
    for j in range(d):
        history[at * d + j] = narrow(raw[j] - row[plan[AT_ORIGIN] + j])
        steps[j] = q[j]
    state[plan[AT_TIMES] + at] = time


@inline
def remember_steps(time: int, shorts: np.ndarray, state: np.ndarray, q: np.ndarray, plan: np.ndarray) -> None:
    """As `remember`, where steps alone are kept; `raw_of` gives what they stand for."""
    at = state[SEQ] % plan[LENGTH]
    for j in range(plan[DIMS]):
        shorts[plan[AT_STEPS] + at * plan[DIMS] + j] = q[j]
    state[plan[AT_TIMES] + at] = time


@jit
def raw_of(steps: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """float64[n, d], raw samples relative to the center of their scale, of int16[n, d] and float64[d]."""
    out = np.empty(steps.shape)
    for i in range(steps.shape[0]):
        for j in range(steps.shape[1]):
            size = magnitude(abs(np.float64(steps[i, j]))) * scale[j]
            out[i, j] = size if steps[i, j] > 0 else -size
    return out


@inline
def remember_nothing(time: int, shorts: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """As `remember`, of a sample without values: it has a place and a time."""
    if plan[LENGTH] == 0:
        return
    at = state[SEQ] % plan[LENGTH]
    shorts[plan[AT_STEPS] + at * plan[DIMS]] = UNRANKED
    state[plan[AT_TIMES] + at] = time


@inline
def _keep(sample: np.ndarray, row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    d = plan[DIMS]
    at = state[KEPT_SIZE]
    if at < plan[KEPT_ROOM]:
        state[KEPT_SIZE] += 1
    else:
        at = below(np.uint64(state[STREAM]), _KEEP, state[SEQ], plan[KEPT_ROOM])
    kept = row[plan[AT_KEPT] : plan[AT_UNION]].view(np.float32)
    for j in range(d):
        kept[at * d + j] = sample[j]


@jit
def settle(row: np.ndarray, state: np.ndarray, plan: np.ndarray) -> None:
    """At an arming: medians of the history become the origin, so that 32 bits are enough for what lies around it."""
    state[STEPS_SEQ] = state[SEQ]
    if plan[LENGTH] == 0:
        return
    d = plan[DIMS]
    n = min(state[SEQ] - state[WARM_SEQ] + 1, plan[LENGTH])
    values = np.empty(n)
    remembered = row[plan[AT_HISTORY] : plan[AT_UNION]].view(np.float32)
    for j in range(d):
        for i in range(n):
            values[i] = remembered[(state[SEQ] - i) % plan[LENGTH] * d + j]
        shift = select(values, n, n // 2)
        row[plan[AT_ORIGIN] + j] += shift
        for i in range(len(remembered) // d):
            remembered[i * d + j] = narrow(np.float64(remembered[i * d + j]) - shift)


@jit
def rank_sum(a: np.ndarray, b: np.ndarray) -> float:
    """Standardised Mann-Whitney statistic of a against b: positive where a lies higher; ties count one half.

    H. B. Mann, D. R. Whitney, On a test of whether one of two random variables is stochastically larger than the other,
    Annals of Mathematical Statistics 18, 1947. The variance is that without ties.

    Args:
        a: float64[n].
        b: float64[m].
    """
    n, m = len(a), len(b)
    if n == 0 or m == 0:
        return 0.0
    total = 0.0
    for i in range(n):
        for k in range(m):
            total += 1.0 if a[i] > b[k] else 0.5 if a[i] == b[k] else 0.0
    return (total - 0.5 * n * m) / math.sqrt(n * m * (n + m + 1.0) / 12.0)
