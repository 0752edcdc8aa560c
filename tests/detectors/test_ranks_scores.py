"""Scores of the stream detector beside ranks at every sample: sizes of single samples, square roots, the pick."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import hidden
from kstream_worker.detectors import ranking, ranks_spikes
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.ranks_layout import FACTORS, FAIR, PICKED, Options
from kstream_worker.detectors.ranks_report import column_scores
from kstream_worker.detectors.ranks_rows import column_weights, make_layout
from kstream_worker.detectors.ranks_sample import root, wants_root
from kstream_worker.records import Transition

Matrix = NDArray[np.float64]

COMPACT = Options("compact")


def run(bank: RankBank, y: Matrix) -> list[Transition]:
    slots = np.full(len(y), bank.allocate(b"key"))
    scores = bank.update(slots, None, y, np.arange(len(y)))
    assert np.isfinite(scores.evidence).all()
    return [t for t in scores.transitions if t.kind == "raised"]


def one(dims: int = 1, **settings: Any) -> RankBank:
    return RankBank(dims, **{"arl": 10_000.0, "dependence": "none", "capacity": 1, **settings})


# --- the pick ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [0.0, 1.0])
def test_p_values_of_the_pick_are_uniform_and_independent(unit: float) -> None:
    """Read off the statistic of the bet 1 + .95 b; bags of 125, full for most of the samples."""
    keys, dims, warmup, n = 40, 3, 60, 1000
    y = np.random.default_rng(23).normal(size=(n, keys, dims))
    y = np.round(y / unit) * unit if unit else y
    bank = RankBank(dims, arl=1e20, dependence="none", warmup=warmup, profile="compact", capacity=keys, seed=5)
    layout = make_layout(dims, warmup, 0, COMPACT)
    slots = np.array([bank.allocate(b"key %d" % key) for key in range(keys)])
    bank.update(np.tile(slots, warmup), None, y[:warmup].reshape(-1, dims), np.zeros(warmup * keys, dtype=np.int64))
    former, found, picks = np.zeros(keys), [], set()
    for t in range(n - warmup):
        bank.update(slots, None, y[warmup + t], np.zeros(keys, dtype=np.int64))
        R = bank._slots.floats[slots, layout.R : layout.values].view(np.float32)[:, layout.R_hidden + 3].astype(float)
        if t % 2 == 1:
            found.append((1.0 - (R / (former + 2.0) - 1.0) / 0.95) / 2.0)
            former = R
        picks |= set(bank._slots.ints[slots, PICKED])
    assert len(picks) == layout.hidden_count
    p = np.array(found)
    distance = np.abs(np.sort(p.ravel()) - (np.arange(p.size) + 0.5) / p.size).max()
    assert distance < 1.63 / math.sqrt(p.size)  # Kolmogorov-Smirnov, 1 %
    centred = p - 0.5
    for lag in (1, 2, 16):
        products = centred[lag:] * centred[:-lag]
        assert abs(products.mean()) * 12.0 < 3.3 / math.sqrt(products.size), lag


@pytest.mark.parametrize("dims", [1, 2, 3, 5, 10, 20, 40])
@pytest.mark.parametrize("spikes", [False, True])
def test_every_column_has_a_name_and_a_weight(dims: int, spikes: bool) -> None:
    layout = make_layout(dims, 200, 0, Options(spikes=spikes))
    names = [score.name for score in column_scores(tuple(f"f{j}" for j in range(dims)), layout)]
    assert len(set(names)) == len(names) == layout.columns
    weights = column_weights(layout)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights > 0.0).all()
    assert ("spike(f0)" in names) == spikes


def test_parity_of_three_features_is_found_and_named() -> None:
    (row,) = hidden.run(short=True).values()
    assert row["found"] == row["runs"]
    assert row["before"] == 0
    assert "f0*f1*f2" in row["by"]


# --- sizes of single samples -------------------------------------------------------------------------------------


def test_beyond_the_knee_steps_keep_the_order_and_tell_the_size() -> None:
    sizes = np.exp(np.linspace(math.log(0.01), math.log(1e12), 4000))
    steps = [int(ranking.quantise(z)) for z in sizes]
    assert steps == sorted(steps)
    assert steps == [-int(ranking.quantise(-z)) for z in sizes]
    for z, step in zip(sizes, steps, strict=True):
        if z < 8e11:
            assert ranking.magnitude(float(step)) == pytest.approx(z, rel=4e-3, abs=1.3e-4)
    assert ranking.quantise(math.inf) == ranking.LARGEST == -ranking.quantise(-math.inf)


def tail_of(z: Matrix) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    bag = np.array([ranking.quantise(v) for v in z], dtype=np.int16)
    tail = np.zeros(5, dtype=np.float32)
    ranks_spikes.fit_tail(bag, np.zeros(len(bag), dtype=np.int16), tail)
    return bag, tail


def test_the_tail_of_an_exponential_law_is_that_of_an_exponential_law() -> None:
    bag, tail = tail_of(np.random.default_rng(3).exponential(size=1000))
    assert tail[ranks_spikes.SHAPE] < 0.2
    assert tail[ranks_spikes.MASS] == pytest.approx(0.1, abs=0.002)
    for z in (5.0, 8.0):
        assert ranks_spikes.log_p(ranking.quantise(z), bag, tail) == pytest.approx(-z, rel=0.25)
    assert ranks_spikes.log_p(ranking.quantise(1e9), bag, tail) >= ranks_spikes.LOG_FLOOR


def test_a_size_that_was_there_before_has_at_least_its_rank() -> None:
    z = np.random.default_rng(4).normal(size=1000)
    z[::100] = 30.0
    bag, tail = tail_of(z)
    assert ranks_spikes.log_p(ranking.quantise(30.0), bag, tail) == pytest.approx(math.log(11.0 / 1001.0))


def test_too_few_sizes_give_no_tail() -> None:
    assert tail_of(np.zeros(1000))[1][ranks_spikes.MASS] == 0.0
    assert tail_of(np.random.default_rng(1).normal(size=190))[1][ranks_spikes.MASS] == 0.0


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_one_sample_far_out_is_an_alarm_that_says_what_it_rests_on(side: float) -> None:
    y = np.random.default_rng(6).normal(size=(2600, 2))
    y[2500, 1] = 25.0 * side
    assert run(one(2, spikes=False), y) == []
    (alarm,) = run(one(2), y)
    assert (alarm.seq, alarm.reason, alarm.change_seq) == (2501, "spike(f1)", 2501)
    assert alarm.direction == ("up" if side > 0.0 else "down")
    assert alarm.features[0][0] == "f1"
    assert alarm.guarantee == "approximate"
    assert "extrapolated" in alarm.guarantee_reason
    assert "80%" in alarm.guarantee_reason


@pytest.mark.parametrize("spikes", [False, True])
def test_what_is_stated_of_other_scores_leaves_sizes_out(spikes: bool) -> None:
    """Their p-values are not exact, so that no bound of all scores together is proved where they are bet on."""
    y = np.random.default_rng(7).normal(size=(900, 1))
    y[600:] += 1.5
    alarm = run(one(spikes=spikes), y)[0]
    assert (alarm.reason, alarm.guarantee) == ("f0", "exact_if_iid")
    assert ("but the size of single samples" in alarm.guarantee_reason) == spikes


def test_an_alarm_for_a_size_says_what_it_rests_on_where_innovations_are_ranked() -> None:
    y = np.random.default_rng(6).normal(size=(2600, 1))
    y[2500] = 25.0
    alarm = run(one(dependence="whiten"), y)[-1]
    assert (alarm.reason, alarm.guarantee) == ("spike(f0)", "approximate")
    assert "autoregressions" in alarm.guarantee_reason
    assert "extrapolated" in alarm.guarantee_reason


# --- square roots ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "wanted"),
    [
        (lambda rng: rng.poisson(1.0, 200).astype(float), True),
        (lambda rng: rng.exponential(size=200), True),
        (lambda rng: rng.lognormal(size=200), True),
        (lambda rng: rng.poisson(400.0, 200).astype(float), True),
        (lambda rng: np.arange(200) * 1.5, False),
        (lambda rng: rng.poisson(3.0, 200).cumsum().astype(float), False),
        (lambda rng: np.exp(0.1 * rng.normal(size=200).cumsum()), False),
        (lambda rng: 300.0 + rng.normal(size=200), False),
        (lambda rng: rng.normal(size=200), False),
        (lambda rng: -rng.exponential(size=200), False),
    ],
)
def test_counts_and_skewed_sizes_get_a_root(law: Any, wanted: bool) -> None:
    assert bool(wants_root(law(np.random.default_rng(8)), 200)) == wanted


def test_a_count_below_zero_keeps_its_sign() -> None:
    assert [root(v) for v in (9.0, -4.0, 0.0)] == [3.0, -2.0, 0.0]
    y = np.random.default_rng(9).poisson(3.0, (3000, 1)).astype(float)
    assert run(one(), y) == []
    y[2500:] = -8.0
    assert 2500 < run(one(), y)[0].seq < 2520


def test_root_by_option_is_that_of_the_roots() -> None:
    y = np.random.default_rng(10).gamma(2.0, size=(2000, 2))
    y[1000:] *= 2.0
    by_option, by_hand = run(one(2, transform="sqrt"), y), run(one(2, transform="none"), np.sqrt(y))
    assert [(t.seq, t.evidence) for t in by_option] == [(t.seq, t.evidence) for t in by_hand]
    assert len(by_option) > 0


# --- bets that stay fair -----------------------------------------------------------------------------------------


def watched(y: Matrix, **settings: Any) -> NDArray[np.float64]:
    """Factors on the bets of each score, after samples without an alarm; all 1 where nothing was found."""
    bank = one(y.shape[1], arl=1e19, **settings)
    assert run(bank, y) == []
    layout = make_layout(y.shape[1], 200, 0)
    state, row = bank._slots.ints[0], bank._slots.floats[0]
    factors = row[layout.fair_factors :].view(np.float32)[: FACTORS * layout.payoffs].reshape(-1, FACTORS)
    return factors.astype(float) if state[FAIR] == 1 else np.ones_like(factors, dtype=float)


def test_independent_samples_are_paid_in_full() -> None:
    factors = watched(np.random.default_rng(11).normal(size=(6000, 3)))
    assert factors.max() == 1.0
    assert factors.min() > 0.9
    assert np.median(factors) == 1.0


def test_what_varies_together_for_long_is_paid_less() -> None:
    t = np.arange(6000)
    noise = np.random.default_rng(12).normal(size=(6000, 2))
    noise[:, 0] *= 1.0 + 0.8 * np.sin(t / 60.0)  # its spread has a period of 377 samples
    first, second = watched(noise)[:2]
    spread, level = slice(4, 6), slice(0, 4)
    assert first[spread].max() < 0.95
    assert first[5] < 0.75
    assert first[level].min() > 0.8
    assert second.min() > 0.95


def test_a_change_under_way_is_paid_in_full() -> None:
    """Factors are renewed at sample 2248, in the middle of it, from what came before sample 1224."""
    y = np.random.default_rng(13).normal(size=(2260, 1))
    step = y.copy()
    step[2200:] += 1.0
    np.testing.assert_array_equal(watched(step), watched(y))


def test_after_an_event_a_step_is_found_as_soon_as_before() -> None:
    y = np.random.default_rng(14).normal(size=(8100, 1))
    y[3000:3040] += 1.5
    y[8000:] += 1.5
    found = [t.seq for t in run(one(arl=10_000.0, on_alarm="hold", dead_time_ms=400), y)]
    assert any(3000 < seq < 3030 for seq in found)
    assert any(8000 < seq < 8030 for seq in found)
