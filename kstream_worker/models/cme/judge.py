"""Two scores of a pair, how far its misfit lies beyond what is usual, which stay alike while nothing changes.

`innovation`: log |phi(y) - U phi(x)|^2. A logarithm, since the misfit's spread goes with its size, at each x another.

`drift`: the error of the predicted mean of y in the direction in which the errors of the last twenty pairs or so, as a
linear function of x, expect it; of mean 0 given the past where the model is right. A linear function, as it is learned
from few pairs.

What is usual is told in two stages. First the mean and variance at this x, which rows beside the operator learn; of the
drift the variance alone: its mean is 0 at any x while the operator is right, and what is learned of it within some
hundred pairs after a change is the change. What that leaves goes together along the path of a system that is nearly
deterministic: in states it seldom visits the operator knows less, and errs alike from one sample to the next. So the
second stage expects of a score a mean and a variance that are linear in four terms: 1; how little is known of this x,
by log(1 + v / usual) of two parts of the prediction's variance, p' P p and the squared distance of phi(x) from the
dictionary's span; and the score's own recent values (squares, for the variance). Its coefficients are at least `BLOCK`
pairs old, so that a change under way is not taken for usual.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.cme import covariance, fading
from kstream_worker.models.cme.layout import RLS, Operator, Work
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.math import log
from kstream_worker.numerics.outline import outline

SCORES = 2
USUAL_ROWS = 3  # beside the operator, beyond usual at x: the innovation's mean and variance, the drift's variance
USUAL = 0.002  # share of a pair in running means
LEAST_SHARE = 0.1  # a predicted variance is at least this share of the usual one
LEAST_INNOVATION = 0.1  # of the usual one, added before the logarithm
TINY = 1e-12
BOUND = 4.0  # of x and of standardised errors, where a drift is learned; of standard deviations, where the usual is

DRIFT_KEEP = 0.95  # forgetting
DRIFT_RIDGE = 5.0

TERMS = 4
TERMS_KEEP = 0.9995
TERMS_RIDGE = 10.0
LEAST_VARIANCE = 0.2
RECENT = 0.6  # weight of the score's former values against the latest
BLOCK = 100  # pairs from one renewal of the coefficients to the next

# Sections of what a key holds: running means, then for each score:
_LEVERAGE, _DISTANCE, _INNOVATION, _HEAD = 0, 1, 2, 3
_MEAN, _VARIANCE, _VALUE, _SQUARE = 0, 1, 2, 3  # usual ones (a drift's mean stays 0); recent values and squares
_FIT = 4
_FIT_SIZE = fading.section_size(TERMS, 1)
_WAITING = _FIT + 2 * _FIT_SIZE  # coefficients of mean and variance that are in use from the next block on
_ACTIVE = _WAITING + 2 * TERMS
_SCORE_SIZE = _ACTIVE + 2 * TERMS
_ERRORS = _HEAD + SCORES * _SCORE_SIZE  # [y_dims] running squares of errors; then what is learned of the drift


class Scratch(NamedTuple):
    """Work space; holds nothing between samples. `errors` is the caller's to fill: what y's predicted means miss."""

    errors: NDArray[np.float64]  # [y_dims]
    inputs: NDArray[np.float64]  # [x_dims + 1]
    solved: NDArray[np.float64]  # the same
    turned: NDArray[np.float64]  # [max(x_dims + 1, TERMS)]
    raw: NDArray[np.float64]  # [SCORES]
    terms: NDArray[np.float64]  # [TERMS]
    weights: NDArray[np.float64]  # [TERMS]
    target: NDArray[np.float64]  # [1]


def make_scratch(x_dims: int, y_dims: int) -> Scratch:
    """Work space for x and y of so many features."""
    sizes = (y_dims, x_dims + 1, x_dims + 1, max(x_dims + 1, TERMS), SCORES, TERMS, TERMS, 1)
    return Scratch(*(np.zeros(size) for size in sizes))


def state_size(x_dims: int, y_dims: int) -> int:
    """Entries of what a key holds."""
    return _ERRORS + y_dims + fading.section_size(x_dims + 1, y_dims)


@inline
def start(held: np.ndarray, x_dims: int, y_dims: int) -> None:
    """Before the first pair that is judged.

    Args:
        held: float64[state_size], changed.
        x_dims: features of x.
        y_dims: features of y.
    """
    held[:] = 0.0
    for k in range(SCORES):
        own = held[_HEAD + k * _SCORE_SIZE : _HEAD + (k + 1) * _SCORE_SIZE]
        own[_SQUARE] = 1.0
        for which in range(2):
            at = _FIT + which * _FIT_SIZE
            fading.start(own[at : at + _FIT_SIZE], TERMS, TERMS_RIDGE)
    fading.start(held[_ERRORS + y_dims :], x_dims + 1, DRIFT_RIDGE)


@inline
def judge(
    op: Operator,
    row: np.ndarray,
    at: int,
    m: int,
    first: int,
    judged: int,
    warmup: int,
    ready: int,
    x: np.ndarray,
    rest_x: float,
    innovation: float,
    w: Work,
    s: Scratch,
    scores: np.ndarray,
) -> None:
    """Both scores of a pair, before the operator learns from it; sets the misfits of the rows that learn the usual.

    Args:
        op: settings and layout.
        row: of the key, changed.
        at: where in it the part of `state_size` begins.
        m: atoms in use.
        first: the operator's first row of `USUAL_ROWS`.
        judged: pairs of this key judged before.
        warmup: so many are judged before the second stage learns.
        ready: and so many before there are scores.
        x: float64[x_dims], scaled.
        rest_x: squared distance of phi(x) from the span.
        innovation: |phi(y) - U phi(x)|^2.
        w: as `operator.observe` left it.
        s: work space, `errors` filled.
        scores: float64[SCORES], NaN on entry; result.
    """
    outline()
    held = row[at:]
    share = max(1.0 / (judged + 1), USUAL)
    s.raw[0] = log(innovation + LEAST_INNOVATION * held[_INNOVATION] + TINY)
    s.raw[1] = _drift(held[_ERRORS:], op, judged, share, x, s)
    held[_INNOVATION] += share * (innovation - held[_INNOVATION])
    leverage = 0.0
    if op.gain == RLS:
        leverage = covariance.times(row[op.at_cov : op.at_cov + op.room * op.room], m, op.room, w.p, w.step)
    s.terms[0] = 1.0
    s.terms[1] = _beside_usual(held, _LEVERAGE, leverage, share)
    s.terms[2] = _beside_usual(held, _DISTANCE, rest_x, share)
    for k in range(SCORES):
        own = held[_HEAD + k * _SCORE_SIZE : _HEAD + (k + 1) * _SCORE_SIZE]
        if k == 0:
            score = _beyond_usual_here(own, s.raw[0], share, first, w)
        else:
            score = _in_usual_spread_here(own, s.raw[1], share, first + 2, TINY, w)
        if judged >= warmup:
            score = _beyond_expected(own, score, judged, ready, s)
        if judged >= ready:
            scores[k] = score


@inline
def _drift(held: np.ndarray, op: Operator, judged: int, share: float, x: np.ndarray, s: Scratch) -> float:
    """The error, in usual ones, in the direction in which the recent ones expect it; then they are joined by it."""
    section = held[op.y_dims :]
    terms = op.x_dims + 1
    s.inputs[0] = 1.0
    for j in range(op.x_dims):
        s.inputs[j + 1] = min(max(x[j], -BOUND), BOUND)
    fading.solve(section, terms, s.inputs, s.solved)
    along = 0.0
    square = 0.0
    for j in range(op.y_dims):
        error = s.errors[j]
        s.errors[j] = min(max(error / math.sqrt(max(held[j], TINY)), -BOUND), BOUND)
        held[j] += share * (error * error - held[j])
        expected = fading.times(section, terms, j, s.solved)
        along += expected * s.errors[j]
        square += expected * expected
    fading.learn(section, terms, DRIFT_KEEP, DRIFT_RIDGE, judged, s.inputs, s.errors, s.turned)
    return along / math.sqrt(square) if square > TINY else 0.0


@inline
def _beside_usual(held: np.ndarray, which: int, value: float, share: float) -> float:
    """log(1 + value / its running mean), which moves first."""
    held[which] += share * (value - held[which])
    term: float = log(1.0 + value / max(held[which], TINY))
    return term


@inline
def _beyond_usual_here(own: np.ndarray, raw: float, share: float, beside: int, w: Work) -> float:
    """First stage: a raw score beyond its mean at x, in standard deviations there; sets the misfits of its two rows."""
    error = raw - (own[_MEAN] + w.c[beside])
    w.g[beside] = error
    own[_MEAN] += share * (raw - own[_MEAN])
    return _in_usual_spread_here(own, error, share, beside + 1, 1e-30, w)


@inline
def _in_usual_spread_here(own: np.ndarray, error: float, share: float, beside: int, least: float, w: Work) -> float:
    """First stage of what has mean 0: in standard deviations at x (variance >= `least`); sets its row's misfit."""
    variance = max(own[_VARIANCE] + w.c[beside], LEAST_SHARE * own[_VARIANCE], least)
    w.g[beside] = error * error - own[_VARIANCE] - w.c[beside]
    own[_VARIANCE] += share * (error * error - own[_VARIANCE])
    return float(error / math.sqrt(variance))


@inline
def _beyond_expected(own: np.ndarray, score: float, judged: int, ready: int, s: Scratch) -> float:
    """Second stage: a score beyond what its terms let expect, in standard deviations expected; then it is learned."""
    outline()
    if (judged - ready) % BLOCK == 0:
        _renew(own, judged <= ready, s)
    squares = own[_FIT + _FIT_SIZE : _WAITING]
    s.terms[3] = own[_VALUE]
    error = score - _line(own, _ACTIVE, s.terms)
    at_mean = _expected(own[_FIT : _FIT + _FIT_SIZE], s)
    s.terms[3] = own[_SQUARE] - 1.0
    result = error / math.sqrt(max(1.0 + _line(own, _ACTIVE + TERMS, s.terms), LEAST_VARIANCE))
    bound = BOUND * math.sqrt(max(1.0 + _expected(squares, s), LEAST_VARIANCE))
    missed = min(max(score - at_mean, -bound), bound)
    s.target[0] = missed * missed - 1.0
    fading.learn(squares, TERMS, TERMS_KEEP, TERMS_RIDGE, judged, s.terms, s.target, s.turned)
    s.terms[3] = own[_VALUE]
    s.target[0] = at_mean + missed
    fading.learn(own[_FIT : _FIT + _FIT_SIZE], TERMS, TERMS_KEEP, TERMS_RIDGE, judged, s.terms, s.target, s.turned)
    bounded = min(max(result, -BOUND), BOUND)
    own[_VALUE] = RECENT * own[_VALUE] + (1.0 - RECENT) * bounded
    own[_SQUARE] = RECENT * own[_SQUARE] + (1.0 - RECENT) * bounded * bounded
    return float(result)


@inline
def _renew(own: np.ndarray, at_once: bool, s: Scratch) -> None:
    """The coefficients that waited are used from now on, and those learned so far wait; at once where none are needed
    to be old yet.
    """
    for which in range(2):
        at = _FIT + which * _FIT_SIZE
        section = own[at : at + _FIT_SIZE]
        for i in range(TERMS):
            s.weights[i] = section[_FIT_SIZE - TERMS + i]
        fading.solve(section, TERMS, s.weights, s.weights)
        for i in range(TERMS):
            place = which * TERMS + i
            own[_ACTIVE + place] = s.weights[i] if at_once else own[_WAITING + place]
            own[_WAITING + place] = s.weights[i]


@inline
def _line(own: np.ndarray, at: int, terms: np.ndarray) -> float:
    total = 0.0
    for i in range(TERMS):
        total += own[at + i] * terms[i]
    return total


@inline
def _expected(section: np.ndarray, s: Scratch) -> float:
    """With the coefficients as they are by now."""
    fading.solve(section, TERMS, s.terms, s.weights)
    return fading.times(section, TERMS, 0, s.weights)
