"""Limits of the next y: how often they are missed by sequences that nobody promised anything of, and what cme says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from kstream_worker.models.cme import OnlineCME, intervals
from kstream_worker.numerics.jit import jit

Float = NDArray[np.float64]

TAIL = 0.05
LEEWAY = (2.0 * intervals.MOST + intervals.STEP) / intervals.STEP + 1e-6  # misses beyond the stated ones, at most


@jit
def begin(held: np.ndarray, tail: float) -> None:
    intervals.start(held, 1, tail)


@jit
def say(held: np.ndarray, told: np.ndarray) -> None:
    intervals.tell(held, 1, told)


@jit
def see(held: np.ndarray, tail: float, judged: int, y: np.ndarray, told: np.ndarray) -> None:
    intervals.learn(held, 1, tail, judged, y, told)


def drive(choose: Callable[[int, float, float], float], n: int) -> tuple[Float, Float, Float]:
    """Distances of y that are chosen in sight of the limits, about mean 0 with a standard deviation of 1.

    Returns:
        y, float64[n]; limits and share covered, float64[n, 3]; q of both sides, float64[n + 1, 2].
    """
    held, told = np.zeros(intervals.PER_VALUE), np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    y, said, q = np.empty(n), np.empty((n, 3)), np.empty((n + 1, 2))
    begin(held, TAIL)
    q[0] = held[:2]
    for t in range(n):
        say(held, told)
        y[t] = choose(t, told[2], told[3])
        see(held, TAIL, t, y[t : t + 1], told)
        said[t], q[t + 1] = told[2:], held[:2]
    return y, said, q


rng = np.random.default_rng(0)
BOUNDED: dict[str, Callable[[int, float, float], float]] = {
    "normal": lambda t, low, high: float(np.clip(rng.normal(), -10.0, 10.0)),
    "ever farther out": lambda t, low, high: -10.0 + 20.0 * t / 6000.0,
    "one side, then the other": lambda t, low, high: 10.0 if t % 2000 < 1000 else -10.0,
    "just beyond": lambda t, low, high: min(high + 1e-3, 10.0),
    "just beyond where that is near": lambda t, low, high: high + 1e-3 if high < 3.0 else 0.0,
    "at the edge": lambda t, low, high: -10.0,
    "still": lambda t, low, high: 0.0,
}


@pytest.mark.parametrize("name", sorted(BOUNDED))
def test_each_side_of_any_bounded_sequence_misses_as_stated(name: str) -> None:
    _, _, q = drive(BOUNDED[name], 6000)
    missed = np.diff(q, axis=0) > 0.0
    sums = np.concatenate((np.zeros((1, 2)), np.cumsum(missed - TAIL, axis=0)))
    assert sums == pytest.approx((q - q[0]) / intervals.STEP, abs=1e-6)
    assert (sums.max(axis=0) - sums.min(axis=0) <= LEEWAY).all()  # over all stretches of pairs


def test_a_published_side_is_missed_where_it_is_told_to_be() -> None:
    y, said, q = drive(BOUNDED["normal"], 4000)
    assert (np.diff(q, axis=0) > 0.0).tolist() == np.column_stack((y < said[:, 0], y > said[:, 1])).tolist()
    share = 0.0
    for t in range(4000):
        share += max(1.0 / (t + 1), intervals.RECENT) * (float(said[t, 0] <= y[t] <= said[t, 1]) - share)
        assert said[t, 2] == share


def test_residuals_that_grow_without_end_cost_limits_and_not_misses() -> None:
    y, said, q = drive(lambda t, low, high: 1.1**t if t < 3000 else 0.0, 4000)
    above = y > said[:, 1]
    sums = np.concatenate(([0.0], np.cumsum(above - TAIL)))
    assert (sums - np.minimum.accumulate(sums)).max() <= LEEWAY
    assert np.isinf(said[200:3000, 1]).mean() > 0.9
    assert np.isfinite(said[3100:, 1]).all()  # it comes back when they do
    assert q[:, 0].min() >= -intervals.MOST - intervals.STEP * TAIL


def test_sides_that_cross_are_exchanged() -> None:
    held, told = np.array([-2.0, -1.0, 0.0]), np.array([5.0, 1.0, 0.0, 0.0, 0.0])
    say(held, told)
    assert told[2:4].tolist() == [4.0, 7.0]


def curve(n: int, seed: int) -> tuple[Float, Float]:
    """y follows x in heavy-tailed noise that is larger where x is; its level jumps half-way."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-2.0, 2.0, size=(n, 1))
    y = np.sin(2.0 * x) + np.where(x > 0.0, 0.3, 0.1) * generator.standard_t(3, size=(n, 1))
    y[n // 2 :] += 1.0
    return 1e3 * x, 50.0 + 1e-3 * y


def test_intervals_of_cme_hold_the_stated_share_and_are_told_before_y_is_seen() -> None:
    x, y = curve(6000, 2)
    model = OnlineCME(1, 1, coverage=0.8)
    model.update(x[:2000], y[:2000])
    lower, upper = model.interval(x[2000:2001])
    answers = model.update(x[2000:], y[2000:])
    said = {
        name: answers.values[:, model.columns.index(f"{name}.y0")] for name in ("mean", "lower", "upper", "covered")
    }
    assert (said["lower"][0], said["upper"][0]) == (lower[0, 0], upper[0, 0])
    for rest in (slice(0, 1000), slice(1300, 4000)):  # before the jump, and from 300 pairs behind it on
        below, above = y[2000:, 0] < said["lower"], y[2000:, 0] > said["upper"]
        assert below[rest].mean() == pytest.approx(0.1, abs=0.02)
        assert above[rest].mean() == pytest.approx(0.1, abs=0.02)
    assert said["covered"][-1] == pytest.approx(0.8, abs=0.06)
    narrow, wide = model.interval([[-1000.0], [1000.0]])[1] - model.interval([[-1000.0], [1000.0]])[0]
    assert 1.5 < wide[0] / narrow[0] < 6.0


def test_while_a_key_warms_up_no_interval_is_told() -> None:
    model = OnlineCME(1, 2)
    model.update(np.zeros((10, 1)), np.zeros((10, 2)))
    assert all(np.isnan(side).all() and side.shape == (3, 2) for side in model.interval(np.zeros((3, 1))))
