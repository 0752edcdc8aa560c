"""What the detector for one stream does about serial dependence: each test of a warm-up, and what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import dependence_tables
from benchmarks.arl_dependence import run_length
from benchmarks.processes import PROCESSES, autoregression
from kstream_worker.detectors import dependence
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.ranks_layout import (
    CHANGES,
    EVERY,
    FIXED_SEQ,
    KEEPING,
    LEFT_OVER,
    MEANS,
    SQUARES_LEFT,
    STRIDE,
    THINNED,
    UNIT_ROOTS,
    VOLATILE,
)
from kstream_worker.detectors.whitening import AR_COV, AR_ORDER, AR_TERMS, ar_reset, ar_shift, ar_step, ljung_box
from kstream_worker.numerics.jit import jit
from kstream_worker.records import Scores, Transition

Matrix = NDArray[np.float64]

ARL = 1_000.0


def series(name: str, n: int, dims: int = 2, seed: int = 0) -> Matrix:
    (_, y), *_ = PROCESSES[name].chunks(seed, 1, dims, n, n)
    return y[:, 0]


def bank_of(dims: int = 2, **settings: Any) -> RankBank:
    return RankBank(dims, **{"arl": ARL, "capacity": 1, **settings})


def run(bank: RankBank, y: Matrix, slot: int | None = None, first: int = 0) -> Scores:
    slot = bank.allocate(b"key") if slot is None else slot
    return bank.update(np.full(len(y), slot), None, y, 1_000 * (first + np.arange(len(y))))


def state_after(y: Matrix, **settings: Any) -> NDArray[np.int64]:
    bank = bank_of(y.shape[1], arl=1e20, **settings)
    slot = bank.allocate(b"key")
    run(bank, y, slot)
    state: NDArray[np.int64] = bank._slots.ints[slot].copy()
    return state


def raised(scores: Scores) -> list[Transition]:
    return [t for t in scores.transitions if t.kind == "raised"]


# --- statistics and their tables ---------------------------------------------------------------------------------


def test_critical_values_lie_between_their_neighbours() -> None:
    for table in (dependence.RAW, dependence.INNOVATIONS, dependence.SQUARES):
        assert (np.diff(table, axis=1) > 0.0).all()
        for k, n in enumerate(dependence.LENGTHS):
            for i, level in enumerate(dependence.LEVELS):
                assert dependence.critical(table, int(n), level) == pytest.approx(table[k, i])
        between = dependence.critical(table, 300, 0.05)
        assert table[2:4, 1].min() < between < table[2:4, 2].max()
        assert dependence.critical(table, 400, 1e-6) > table[3, -1]
        assert dependence.critical(table, 10, 0.01) == dependence.critical(table, 40, 0.01)
        assert dependence.critical(table, 9_000, 0.01) == dependence.critical(table, 1_000, 0.01)


def test_the_tables_are_those_that_the_bench_simulates() -> None:
    raw, innovations, squares = dependence_tables.table_rows(400, 2_000)
    for table, row in ((dependence.RAW, raw), (dependence.INNOVATIONS, innovations), (dependence.SQUARES, squares)):
        np.testing.assert_allclose(row[:2], table[3, :2], rtol=0.12)
        np.testing.assert_allclose(row[2:4], table[3, 2:4], rtol=0.3)
    assert dependence_tables.unit_root_row(600, 1_000) == pytest.approx(dependence.UNIT_ROOT[1], abs=0.2)


def test_the_test_of_dependence_has_about_its_level() -> None:
    rng = np.random.default_rng(5)
    limit = dependence.critical(dependence.RAW, 400, 0.1)
    share = np.mean([ljung_box(rng.normal(size=400), 400) > limit for _ in range(600)])
    assert 0.06 < share < 0.14
    assert ljung_box(series("AR .6", 400, 1)[:, 0], 400) > dependence.critical(dependence.RAW, 400, 1e-3)
    assert ljung_box(np.full(400, 7.25), 400) == 0.0


@pytest.mark.parametrize("n", [1, 2, 37, 900])
def test_sorting(n: int) -> None:
    x = np.round(np.random.default_rng(n).normal(size=n + 3), 1)
    expected = [*sorted(x[:n]), *x[n:]]
    dependence.sort(x, n)
    assert x.tolist() == expected


def test_repeats_of_a_shuffled_series_have_the_stated_mean_and_variance() -> None:
    rng = np.random.default_rng(1)
    x = rng.poisson(1.0, size=40).astype(float)
    counts = np.unique(x, return_counts=True)[1].astype(float)
    n, s2, s3 = len(x), (counts * (counts - 1)).sum(), (counts * (counts - 1) * (counts - 2)).sum()
    found = [np.sum(np.diff(rng.permutation(x)) == 0.0) for _ in range(20_000)]
    mean = s2 / n
    second = 2 * s3 / n / (n - 1) + (s2**2 - 4 * s3 - 2 * s2) / n / (n - 1)
    assert np.mean(found) == pytest.approx(mean, abs=0.1)
    assert np.var(found) == pytest.approx(second + mean - mean**2, rel=0.05)


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("iid", 0.0),
        ("poisson", 0.0),
        ("AR .9, coarse", 0.0),
        ("binary", 0.0),
        ("bursts", 0.0),
        ("held .5", 0.5),
        ("held .2", 0.2),
        ("held counts", 0.5),
        ("held bursts", 0.5),
    ],
)
def test_chance_ties_are_not_held_samples(name: str, held: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        if name == "AR .9, coarse":
            x = np.round(autoregression((0.9,)).advance(rng, np.zeros((1, 1, 1)), 0, 600)[:, 0, 0] / 0.25)
        elif "bursts" in name:  # zeros most of the time, then for a while other values
            x = rng.exponential(size=600) * np.repeat(rng.random(60) < 0.5, 10)
        elif name in ("iid", "held .5", "held .2"):
            x = rng.normal(size=600)
        else:
            x = rng.poisson(1.0, size=600).astype(float) if name != "binary" else (rng.random(600) < 0.3) * 1.0
        if held:
            for t in np.flatnonzero(rng.random(600) < held):
                x[t] = x[max(t - 1, 0)]
        share = dependence.hold_share(x, 600, np.empty(600))
        assert share == 0.0 if not held else abs(share - held) < 0.12


def test_the_stride_leaves_one_in_two_hundred_held() -> None:
    assert [dependence.hold_stride(share) for share in (0.0, 0.04, 0.05, 0.5, 0.8, 0.81)] == [1, 1, 2, 8, 24, 1]


def test_correlation_time() -> None:
    assert dependence.correlation_time(np.random.default_rng(0).normal(size=4000), 4000) == 0.5
    assert dependence.correlation_time(np.ones(100), 100) == 0.5
    assert 6.0 < dependence.correlation_time(series("AR .9", 6000, 1)[:, 0].copy(), 6000) < 14.0


# --- what is done ------------------------------------------------------------------------------------------------


def test_held_samples_are_left_out_and_credited() -> None:
    y = series("held .5", 5_000)
    state = state_after(y)
    assert state[KEEPING] == CHANGES
    assert 6 <= state[STRIDE] <= 11
    bank = bank_of(arl=100_000.0)
    y[3_000:, 0] += 1.0
    scores = run(bank, y)
    alarm = raised(scores)[0]
    assert 0 < alarm.seq - 3_000 < 150
    assert alarm.guarantee == "approximate"
    assert "held" in alarm.guarantee_reason
    same = 1 + np.flatnonzero((np.diff(y[:2_900], axis=0) == 0.0).all(axis=1))
    same = same[same > 850]
    assert np.mean(scores.evidence[same] == scores.evidence[same - 1]) > 0.98  # nothing was bet on them
    assert np.mean(scores.log_ratio[same] == scores.log_ratio[same - 1]) > 0.98


def test_a_held_stream_that_is_stuck_is_found() -> None:
    y = series("held .5", 4_000)
    y[3_000:] = y[2_999]
    assert 0 < raised(run(bank_of(arl=10_000.0), y))[0].seq - 3_000 < 300


@pytest.mark.parametrize("kind", ["counts", "held counts", "one held of three"])
def test_what_goes_on_as_it_is(kind: str) -> None:
    """Counts repeat by chance, and so says "changed" something of their values; one feature of three is too few."""
    rng = np.random.default_rng(4)
    y = rng.normal(size=(700, 3)) if kind == "one held of three" else rng.poisson(1.0, size=(700, 2)).astype(float)
    if kind != "counts":
        for t in np.flatnonzero(rng.random(700) < 0.5):
            y[t, 0] = y[max(t - 1, 0), 0]
            if kind == "held counts":
                y[t, 1] = y[max(t - 1, 0), 1]
    state = state_after(y)
    assert (state[KEEPING], state[STRIDE]) == (EVERY, 0)


@pytest.mark.parametrize(("setting", "keeping"), [("thin", THINNED), ("block", MEANS)])
def test_thin_and_block_by_choice(setting: str, keeping: int) -> None:
    y = series("AR .6", 12_000, seed=2)
    state = state_after(y, dependence=setting)
    assert state[KEEPING] == keeping
    low, high = (3, 8) if setting == "thin" else (6, 14)
    assert low <= state[STRIDE] <= high
    y[9_000:, 0] += 2.0
    alarms = raised(run(bank_of(arl=100_000.0, dependence=setting), y))
    assert 0 < alarms[0].seq - 9_000 < 400
    assert alarms[0].guarantee == "approximate"


def test_volatility_in_clusters_is_divided_out_and_named() -> None:
    y = series("GARCH(.1, .85)", 6_000, 2, seed=3)
    bank = bank_of(2, arl=3_000.0)
    slot = bank.allocate(b"key")
    alarms = raised(run(bank, y, slot))
    assert bank._slots.ints[slot, VOLATILE] == 2
    assert bank.guarantee(slot)[0] == "approximate"
    assert "Volatility comes in clusters" in bank.guarantee(slot)[1]
    assert len(alarms) <= 4


def test_a_changing_size_that_is_not_predicted_is_not_divided_out() -> None:
    """A spread that steps up and down: what the last sizes predict is wrong at every step."""
    y = np.random.default_rng(6).normal(size=(700, 1))
    y *= np.where(np.arange(700) // 100 % 2 == 0, 1.0, 12.0)[:, None]
    state = state_after(y)
    assert state[VOLATILE] == 0
    assert state[LEFT_OVER] == SQUARES_LEFT


def test_clusters_that_most_features_have_are_divided_out_of_all() -> None:
    y = series("GARCH(.1, .85)", 600, 10)
    assert state_after(y)[VOLATILE] == 10
    y[:, 5:] = np.random.default_rng(3).normal(size=(600, 5))
    assert state_after(y)[VOLATILE] <= 5


def test_what_whitening_leaves_is_named() -> None:
    y = np.random.default_rng(6).normal(size=(3_000, 1))
    y *= np.where(np.arange(3_000) // 100 % 2 == 0, 1.0, 12.0)[:, None]
    alarms = raised(run(bank_of(1, arl=20.0), y))
    assert alarms[0].guarantee == "none"
    assert "No rate of false alarms can be stated" in alarms[0].guarantee_reason


@pytest.mark.parametrize("setting", ["none", "auto", "whiten", "thin", "block"])
def test_a_bank_says_what_it_states_of_a_key(setting: str) -> None:
    bank = bank_of(dependence=setting)
    slot = bank.allocate(b"key")
    run(bank, np.random.default_rng(1).normal(size=(700, 2)), slot)
    level, reason = bank.guarantee(slot)
    assert level == ("approximate" if setting == "whiten" or bank._slots.ints[slot, KEEPING] else "exact_if_iid")
    assert f"{ARL:g}" in reason


def test_samples_that_are_left_out_are_credited() -> None:
    """Ten times fewer tests of a thinned key: each with the credit of what it stands for."""
    y = series("AR .9", 8_000, 1, seed=5)
    bank = bank_of(1, dependence="thin", arl=1e9)
    slot = bank.allocate(b"key")
    scores = run(bank, y, slot)
    state = bank._slots.ints[slot]
    assert state[STRIDE] > 10
    armed = np.flatnonzero(scores.state == 1)
    changed = 1 + np.flatnonzero(np.diff(scores.evidence[armed]))
    assert set(np.diff(changed)) == {int(state[STRIDE])}  # nothing is bet on the others
    assert np.isfinite(scores.log_ratio[armed[changed[0] :]]).all()
    assert scores.seq[-1] - int(state[FIXED_SEQ]) < state[STRIDE]


def test_the_rate_of_a_thinned_key_is_that_of_its_samples() -> None:
    bank = bank_of(1, dependence="thin", arl=1.0, per_day=True)
    slot = bank.allocate(b"key")
    run(bank, series("AR .9", 6_000, 1, seed=5), slot)
    assert bank.arl(slot) == pytest.approx(86_400.0)


def test_a_thinned_key_goes_on_after_an_alarm() -> None:
    y = series("AR .6", 14_000, 1, seed=3)
    y[6_000:] += 5.0
    y[10_000:] -= 9.0
    scores = run(bank_of(1, dependence="thin", arl=20_000.0), y)
    assert [t.kind for t in scores.transitions] == ["raised", "cleared", "raised", "cleared"]
    assert [t.seq > start for t, start in zip(raised(scores), (6_000, 10_000), strict=True)] == [True, True]
    alarm = raised(scores)[0]
    assert alarm.explanation is not None
    assert abs(alarm.change_seq - 6_000) < 100


# --- not stationary ----------------------------------------------------------------------------------------------


def notices(scores: Scores) -> list[Transition]:
    return [t for t in scores.transitions if t.kind == "notice"]


def test_a_random_walk_is_reported_once_and_watched_on() -> None:
    y = series("random walk", 9_000, seed=1)
    bank = bank_of(arl=10_000.0)
    slot = bank.allocate(b"key")
    scores = run(bank, y, slot)
    (notice,) = notices(scores)
    assert (notice.seq, notice.reason, notice.guarantee) == (601, "not_stationary", "none")
    assert "unit root was not rejected" in notice.guarantee_reason
    assert not bank.raised(slot) or raised(scores)
    assert len(raised(scores)) <= 2
    jump = y[-1:] + 20.0 + 0.0 * y[:5]
    assert raised(run(bank, jump, slot, 9_000))[0].guarantee == "none"


@pytest.mark.parametrize("name", ["iid", "AR .6", "AR .9", "MA .8", "AR(2) oscillator", "held .5", "GARCH(.1, .85)"])
def test_stationary_streams_are_not_reported(name: str) -> None:
    bank = bank_of(arl=1e20)
    slot = bank.allocate(b"key")
    assert notices(run(bank, series(name, 2_000, seed=3), slot)) == []
    assert bank._slots.ints[slot, UNIT_ROOTS] == 0


def test_a_key_that_alarms_after_every_arming_is_reported_once() -> None:
    """Levels that last no longer than a warm-up do not look like a random walk, but never come to rest either."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(6_000, 1)) + 8.0 * np.repeat(rng.normal(size=40), 150)[:, None]
    bank = bank_of(1, arl=10_000.0, dependence="none")
    slot = bank.allocate(b"key")
    scores = run(bank, y, slot)
    alarms = raised(scores)
    (notice,) = notices(scores)
    assert alarms[2].seq < notice.seq <= alarms[3].seq
    assert {t.guarantee for t in alarms[2:]} == {"none"}
    assert "soon after an arming" in alarms[2].guarantee_reason


def test_a_notice_does_not_depend_on_the_cut_of_polls() -> None:
    y = series("random walk", 1_000, seed=1)
    whole = notices(run(bank_of(), y))
    bank = bank_of()
    slot = bank.allocate(b"key")
    cut = [t for at in range(0, 1_000, 7) for t in notices(run(bank, y[at : at + 7], slot, at))]
    assert [(t.seq, t.change_time) for t in cut] == [(t.seq, t.change_time) for t in whole]


# --- features that drift -------------------------------------------------------------------------------------------


@jit
def innovations(x: Matrix, at: int, by: float) -> Matrix:
    """Of an autoregression whose units are moved before sample `at`."""
    ring, coef, cov, gain = np.empty(AR_ORDER), np.empty(AR_TERMS), np.empty(AR_COV), np.empty(AR_TERMS)
    ar_reset(ring, coef, cov)
    found = np.empty(len(x))
    zero = 0.0
    for i in range(len(x)):
        if i == at:
            ar_shift(by, ring, coef, cov)
            zero = by
        found[i] = ar_step(x[i] - zero, i >= AR_ORDER, ring, coef, cov, gain)
    return found


def test_an_autoregression_in_moved_units_has_the_same_innovations() -> None:
    x = 10.0 + 0.3 * np.random.default_rng(0).normal(size=600).cumsum()
    as_it_is = innovations(x, -1, 0.0)
    for at, by in ((300, 30.0), (20, -45.0)):
        np.testing.assert_allclose(innovations(x, at, by)[AR_ORDER:], as_it_is[AR_ORDER:], atol=1e-9)


@pytest.mark.parametrize("name", ["trend .2", "total of counts"])
def test_a_feature_that_drifts_for_ever_raises_no_more_alarms_than_stated(name: str) -> None:
    found = run_length(name, 1, 6, 9_000, 10_000.0)
    assert found["alarms"] <= 3  # 5 are stated; of values that are cut off at the edge of a range dozens come
