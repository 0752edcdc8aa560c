"""Scores of misfit that stay alike while nothing changes, and the fading least squares that they stand on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kstream_worker.models.cme import OnlineCME, fading
from kstream_worker.models.koopman import Koopman
from kstream_worker.numerics.jit import jit

Float = NDArray[np.float64]


@jit
def follow(section: np.ndarray, terms: int, keep: float, ridge: float, t: np.ndarray, y: np.ndarray) -> None:
    fading.start(section, terms, ridge)
    scratch = np.empty(terms)
    for i in range(len(t)):
        fading.learn(section, terms, keep, ridge, i, t[i], y[i], scratch)


@jit
def expect(section: np.ndarray, terms: int, t: np.ndarray, found: np.ndarray) -> None:
    solved = np.empty(terms)
    fading.solve(section, terms, t, solved)
    for j in range(len(found)):
        found[j] = fading.times(section, terms, j, solved)


def logistic(n: int, seed: int) -> Float:
    """x' = 3.9 x (1 - x) in little noise, reflected into [0, 1]: now and then it stays by its fixed point for long."""
    rng, z = np.random.default_rng(seed), np.empty(n)
    z[0] = 0.3
    for t in range(1, n):
        z[t] = abs(3.9 * z[t - 1] * (1.0 - z[t - 1]) + 0.02 * rng.normal())
        z[t] = 2.0 - z[t] if z[t] > 1.0 else z[t]
    return z


def test_fading_least_squares_are_those_of_dense_sums() -> None:
    rng = np.random.default_rng(0)
    terms, keep, ridge = 5, 0.9, 2.0
    t, y = rng.normal(size=(83, terms)), rng.normal(size=(83, 3))
    section = np.zeros(fading.section_size(terms, 3))
    follow(section, terms, keep, ridge, t, y)
    a, c = ridge * np.eye(terms), np.zeros((3, terms))
    for i in range(83):
        a = keep * a + np.outer(t[i], t[i])
        a[i % terms, i % terms] += ridge * (1.0 - keep**terms)
        c = keep * c + np.outer(y[i], t[i])
    found = np.empty(3)
    expect(section, terms, t[0], found)
    assert found == pytest.approx(c @ np.linalg.solve(a, t[0]), rel=1e-10)


def test_the_ridge_stays_where_nothing_comes() -> None:
    terms, keep, ridge = 4, 0.95, 3.0
    t = np.zeros((20_000, terms))
    t[:, 0] = 1.0
    section = np.zeros(fading.section_size(terms, 1))
    follow(section, terms, keep, ridge, t, np.ones((20_000, 1)))
    pivots = section[[2, 5, 9]] ** 2  # of the terms that are always 0
    assert (pivots >= ridge * keep**terms - 1e-9).all()
    assert (pivots <= ridge + 1e-9).all()
    found = np.empty(1)
    expect(section, terms, t[0], found)
    assert 0.8 < found[0] < 1.0  # the mean, drawn to 0 by the ridge


@pytest.mark.parametrize("model", [Koopman(1), OnlineCME(1, 1)])
def test_large_scores_of_a_nearly_deterministic_system_do_not_come_together(model: Koopman | OnlineCME) -> None:
    z = logistic(8001, 3)
    scores = model.update(z[:-1], z[1:]).scores[1000:]
    assert scores.std(axis=0) == pytest.approx([1.0, 1.0], abs=0.2)
    large = scores > np.quantile(scores, 0.98, axis=0)
    again = np.stack([(large[k:] & large[:-k]).mean(axis=0) for k in (1, 2, 3)]).mean(axis=0) / 0.02**2
    assert (again < 3.0).all()  # times as often as by chance


def turned_back(seed: int) -> Float:
    """A rotation in noise that turns the other way from sample 2,000 on: a sample has the same law."""
    rng, turn = np.random.default_rng(seed), np.array([[0.6, 0.3], [-0.3, 0.6]])
    z = np.zeros((2101, 2))
    for t in range(1, len(z)):
        z[t] = (turn if t <= 2000 else turn.T) @ z[t - 1] + rng.normal(size=2)
    return z


def test_drift_rises_with_a_turn_that_leaves_the_law_of_a_sample_alone() -> None:
    for make in (lambda: Koopman(2), lambda: OnlineCME(2, 2)):
        scores = np.stack([make().update(z[:-1], z[1:]).scores for z in map(turned_back, range(5))])
        assert np.abs(scores[:, 600:2000].mean(axis=(0, 1))).max() < 0.1
        assert scores[:, 2010:2060, 1].mean() > 0.5


def begins_to_follow(seed: int) -> Float:
    """Independent noise that becomes an AR(1) of .6 behind sample 2,000: a sample has the same law."""
    rng, z = np.random.default_rng(seed), np.zeros(2501)
    for t in range(1, len(z)):
        z[t] = 0.6 * z[t - 1] + rng.normal() if t > 2000 else 1.25 * rng.normal()
    return z


def test_drift_lasts_while_the_model_still_has_to_learn_the_change() -> None:
    """Were its mean at x taken for usual, it would be back at 0 within 200 pairs, before a weak change is found."""
    scores = np.stack([OnlineCME(1, 1).update(z[:-1], z[1:]).scores for z in map(begins_to_follow, range(8))])
    assert abs(scores[:, 600:2000, 1].mean()) < 0.05
    assert scores[:, 2200:2500, 1].mean() > 0.1


def test_drift_has_one_spread_whatever_y_scatters_at_x() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(6000, 1))
    y = x + np.exp(0.7 * x) * rng.normal(size=(6000, 1))
    drift = OnlineCME(1, 1).update(x, y).scores[2000:, 1]
    high, low = drift[x[2000:, 0] > 0.7], drift[x[2000:, 0] < -0.7]
    assert 0.7 < high.std() / low.std() < 1.4  # of y it is about 5
    assert drift.std() == pytest.approx(1.0, abs=0.15)
