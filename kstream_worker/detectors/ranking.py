"""Exact randomised ranks in a bag of former samples, in integers.

A sample is scaled and rounded to steps of 1/4096 (int16) *before* it is ranked; beyond +-6 the steps grow with it, so
that 15 bits hold any size. That is a fixed function of the sample, so that its rank is exact, ties included. For
independent, identically distributed samples

    p = (#{v in bag: s(v) > s(z)} + U (#{v in bag: s(v) = s(z)} + 1)) / (|bag| + 1)

is uniform; if z then joins the bag, and from a full bag one of its m + 1 members is taken out at random, z included,
the p of successive samples are independent as well (smoothed conformal p-values: Vovk, Gammerman, Shafer,
"Algorithmic Learning in a Random World"; the uniform removal makes the bounded bag exact).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.math import exp as _exp
from kstream_worker.numerics.math import log as _log

STEPS = 4096  # a power of two, so that exact ties of lengths and products of grid values stay ties
_INV_LN2 = 1.44269504088896338700
_FARTHEST = 1e12  # has the largest number of steps, as has what lies beyond
KNEE = 6.0  # steps are equal up to here
LARGEST = 32767  # steps
_KNEE_STEPS = 24576.0
_OCTAVE = 220.0  # steps per doubling beyond the knee: .3 %; up to 6 x 2^37
_LN2_PER_STEP = 1.0 / (_OCTAVE * _INV_LN2)


@inline
def quantise(z: float) -> np.int16:
    """z in units of scale in steps; what is not 0 is at least one step away from it.

    The last makes the smallest move of a feature that was constant visible.
    """
    size = min(abs(z), _FARTHEST)
    if size > KNEE:
        steps = min(_KNEE_STEPS + math.floor(_OCTAVE * _log(size / KNEE) * _INV_LN2), 1.0 * LARGEST)
    elif size > 0.0:
        steps = max(1.0, math.floor(size * STEPS + 0.5))
    else:
        steps = 0.0
    return np.int16(steps if z > 0.0 else -steps)


@inline
def magnitude(steps: float) -> float:
    """The size, in units of scale, that so many steps >= 0 stand for."""
    if steps <= _KNEE_STEPS:
        return steps / STEPS
    return KNEE * _exp((steps - _KNEE_STEPS) * _LN2_PER_STEP)


@inline
def radius(q: np.ndarray, dims: int) -> np.int16:
    """|q|_2, rounded down to a multiple of the smallest power of two that lets it fit into int16.

    A function of the sample like any other, so its ranks are exact; equal lengths give equal results.

    Args:
        q: int16[dims].
        dims: number of features.
    """
    square = np.int64(0)
    for j in range(dims):
        square += np.int64(q[j]) * np.int64(q[j])
    unit = 2.0
    while math.sqrt(1.0 * dims) * LARGEST >= 32767.0 * unit:
        unit *= 2.0
    return np.int16(math.floor(math.sqrt(np.float64(square)) / unit))


# The counters below are int16 (a bag holds at most 1,000) so that one vector instruction compares as many entries as
# fit.


@inline
def count(bag: np.ndarray, z: np.int16) -> tuple[np.int16, np.int16]:
    """How many entries of the bag (int16[n]) are larger than z, how many are equal."""
    larger = np.int16(0)
    equal = np.int16(0)
    for i in range(len(bag)):
        larger = np.int16(larger + np.int16(bag[i] > z))
        equal = np.int16(equal + np.int16(bag[i] == z))
    return larger, equal


@inline
def product(a: np.int16, b: np.int16) -> np.int16:
    """a b / 2^16, rounded down: a function of the sample that takes one vector instruction for sixteen of them."""
    return np.int16(np.int32(np.int32(a) * np.int32(b)) >> 16)


@inline
def count_products(a: np.ndarray, b: np.ndarray, z: np.int16) -> tuple[np.int16, np.int16]:
    """How many of the products of a[i] and b[i] (int16[n] each) are larger than z, how many are equal."""
    larger = np.int16(0)
    equal = np.int16(0)
    for i in range(len(a)):
        value = np.int16(np.int32(np.int32(a[i]) * np.int32(b[i])) >> 16)
        larger = np.int16(larger + np.int16(value > z))
        equal = np.int16(equal + np.int16(value == z))
    return larger, equal


@inline
def count_scores(bag: np.ndarray, score: np.float32) -> tuple[np.int32, np.int32]:
    """How many scores (float32[n]) are larger than `score`, how many are equal."""
    larger = np.int32(0)
    equal = np.int32(0)
    for i in range(len(bag)):
        larger = np.int32(larger + np.int32(bag[i] > score))
        equal = np.int32(equal + np.int32(bag[i] == score))
    return larger, equal


@inline
def p_value(larger: int | np.integer[Any], equal: int | np.integer[Any], size: int, u: float) -> float:
    """(larger + u (equal + 1)) / (size + 1)."""
    p: float = (larger + u * (equal + 1)) / (size + 1)
    return p


@inline
def place(bag: np.ndarray, room: int, rows: int, size: int, removed: int, q: np.ndarray) -> int:
    """Put q into a bag: behind the others while there is room, else in the place of member `removed`.

    Args:
        bag: int16[rows * room], entry j of member i at j * room + i.
        room: members that fit.
        rows: entries of a member.
        size: members now.
        removed: drawn uniformly from 0..room; `room` means q itself. Not used while there is room.
        q: int16[>= rows].

    Returns:
        where q stands, or -1 if it was the one taken out.
    """
    at = size if size < room else removed
    if at >= room:
        return -1
    for j in range(rows):
        bag[j * room + at] = q[j]
    return at
