"""What is published of a pair: modes, forecasts, and how former forecasts fared."""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models import nystrom, scaling
from kstream_worker.models.cme import operator as cme
from kstream_worker.models.cme.layout import ATOMS
from kstream_worker.models.koopman.layout import (
    CHAIN,
    COUNTS,
    FOUND,
    HEAD,
    KERNEL,
    NOW,
    OPERATOR,
    PER_MODE,
    SEQ,
    ZY,
    Plan,
    Scratch,
)
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import atan2, log
from kstream_worker.numerics.outline import outline

_ERROR_MEMORY = 1000.0  # forecasts, of the running errors
_MOST_SCALES = 1e6  # an error beyond counts as this, so that squares stay finite
_TWO_PI = 6.283185307179586


@inline
def compare(plan: Plan, row: np.ndarray, ints: np.ndarray, y: np.ndarray, horizons: np.ndarray) -> None:
    """Hold the forecasts made for this y against it, where no gap lies between."""
    outline()
    d = plan.dims
    ring = plan.at_ring
    depth = plan.longest * plan.lag
    for i in range(plan.horizons):
        ahead = horizons[i] * plan.lag
        made = ints[SEQ] - ahead
        if ints[CHAIN] > ahead - plan.lag and made > 0:
            at = ring + made % ahead * d
            past = plan.at_past + made % depth * d
            _fold(plan, row, ints, i, y, row[at : at + d], row[past : past + d])
        ring += ahead * d


@inline
def _fold(
    plan: Plan, row: np.ndarray, ints: np.ndarray, i: int, y: np.ndarray, forecast: np.ndarray, last: np.ndarray
) -> None:
    """One more squared error of horizon i into the running means; forecasts of the warm-up are NaN."""
    outline()
    if math.isnan(forecast[0]):
        return
    ints[COUNTS + i] += 1
    share = max(1.0 / ints[COUNTS + i], 1.0 / _ERROR_MEMORY)
    at = plan.at_errors + i * (plan.dims + 2)
    ours = 0.0
    theirs = 0.0
    for j in range(plan.dims):
        scale = row[plan.at_scale + j]
        error = min(max((y[j] - forecast[j]) / scale, -_MOST_SCALES), _MOST_SCALES)
        moved = min(max((y[j] - last[j]) / scale, -_MOST_SCALES), _MOST_SCALES)
        row[at + j] += share * (error * error - row[at + j])
        ours += error * error
        theirs += moved * moved
    row[at + plan.dims] += share * (ours - row[at + plan.dims])
    row[at + plan.dims + 1] += share * (theirs - row[at + plan.dims + 1])


@inline
def say(plan: Plan, row: np.ndarray, ints: np.ndarray, s: Scratch, powers: np.ndarray, values: np.ndarray) -> None:
    """values <- modes and forecasts at the state s.lines[ZY]."""
    outline()
    op = plan.op
    m = ints[OPERATOR + ATOMS]
    now = s.lines[NOW]
    lower, atoms, gain = row[op.at_lx :], row[op.at_x :], row[plan.at_gain]
    cme.project(lower, atoms, op.room, m, plan.dims, gain, s.lines[ZY], s.lines[KERNEL], now, powers)
    _report_modes(plan, row, ints[FOUND], values, now)
    _forecast(plan, row, values, s)


@jit
def answer(
    plan: Plan,
    row: np.ndarray,
    ints: np.ndarray,
    x: np.ndarray,
    s: Scratch,
    powers: np.ndarray,
    values: np.ndarray,
) -> None:
    """Modes and forecasts at any states, of an armed key; changes no state.

    Args:
        plan: of the bank.
        row: float64[plan.floats].
        ints: int64[COUNTS + horizons].
        x: float64[n, d].
        s: work space.
        powers: int64[room], scratch.
        values: float64[n, columns], result where modes and forecasts are.
    """
    for t in range(x.shape[0]):
        scaling.scale_sample(x[t], row, row[plan.at_scale :], plan.dims, s.lines[ZY])
        say(plan, row, ints, s, powers, values[t])


@inline
def _forecast(plan: Plan, row: np.ndarray, values: np.ndarray, s: Scratch) -> None:
    """values <- forecasts from the present state, in the units of the samples, and their errors."""
    outline()
    op = plan.op
    d = plan.dims
    at = HEAD + plan.modes * PER_MODE
    for i in range(plan.horizons):
        for j in range(d):
            head = op.at_functions + (2 * plan.modes + i * d + j) * op.room
            if s.horizons[i] == 1:
                head = op.at_matrix + (op.room + j) * op.room
            z = s.lines[ZY][j] + nystrom.dot(row[head : head + op.room], s.lines[NOW], op.room)
            z = min(max(z, -scaling.CLIP), scaling.CLIP)
            values[at + j] = row[j] + row[plan.at_scale + j] * z
        at += 2 * d + 1


@inline
def report_errors(plan: Plan, row: np.ndarray, ints: np.ndarray, values: np.ndarray) -> None:
    """values <- root of the running squared errors by feature, and the skill beside the last value."""
    outline()
    d = plan.dims
    at = HEAD + plan.modes * PER_MODE + d
    for i in range(plan.horizons):
        errors = plan.at_errors + i * (d + 2)
        if ints[COUNTS + i] > 0:
            for j in range(d):
                values[at + j] = row[plan.at_scale + j] * math.sqrt(row[errors + j])
            if row[errors + d + 1] > 0.0:
                values[at + d] = 1.0 - row[errors + d] / row[errors + d + 1]
        at += 2 * d + 1


@inline
def _report_modes(plan: Plan, row: np.ndarray, found: int, values: np.ndarray, now: np.ndarray) -> None:
    """values <- modulus, argument, time constant, period of each mode, and its eigenfunction at the present state."""
    outline()
    op = plan.op
    seconds = plan.interval if plan.interval > 0.0 else 1e-3 * row[plan.at_interval] * plan.lag
    if seconds > 0.0:
        values[2] = seconds
    for k in range(found):
        re = row[plan.at_values + 2 * k]
        im = row[plan.at_values + 2 * k + 1]
        at = HEAD + k * PER_MODE
        modulus = math.sqrt(re * re + im * im)
        angle = atan2(im, re)
        values[at] = modulus
        values[at + 1] = angle
        if seconds > 0.0 and 0.0 < modulus < 1.0:
            values[at + 2] = -seconds / log(modulus)
        if seconds > 0.0 and angle > 0.0:
            values[at + 3] = _TWO_PI * seconds / angle
        vector = op.at_functions + 2 * k * op.room
        values[at + 4] = nystrom.dot(row[vector : vector + op.room], now, op.room)
        values[at + 5] = nystrom.dot(row[vector + op.room : vector + 2 * op.room], now, op.room)


@inline
def remember(plan: Plan, row: np.ndarray, seq: int, y: np.ndarray, values: np.ndarray, horizons: np.ndarray) -> None:
    """Put y and the forecasts made at it into their rings."""
    outline()
    d = plan.dims
    past = plan.at_past + seq % (plan.longest * plan.lag) * d
    for j in range(d):
        row[past + j] = y[j]
    ring = plan.at_ring
    at = HEAD + plan.modes * PER_MODE
    for i in range(plan.horizons):
        ahead = horizons[i] * plan.lag
        for j in range(d):
            row[ring + seq % ahead * d + j] = values[at + j]
        ring += ahead * d
        at += 2 * d + 1
