"""What the detector for one stream does about serial dependence: each test of a warm-up, and what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import dependence_tables
from benchmarks.processes import PROCESSES
from kstream_worker.detectors import dependence
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.ranks_layout import FIXED_SEQ, KEEPING, MEANS, STRIDE, THINNED
from kstream_worker.detectors.whitening import ljung_box
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


def test_the_test_of_dependence_has_about_its_level() -> None:
    rng = np.random.default_rng(5)
    limit = dependence.critical(dependence.RAW, 400, 0.1)
    share = np.mean([ljung_box(rng.normal(size=400), 400) > limit for _ in range(600)])
    assert 0.06 < share < 0.14
    assert ljung_box(series("AR .6", 400, 1)[:, 0], 400) > dependence.critical(dependence.RAW, 400, 1e-3)
    assert ljung_box(np.full(400, 7.25), 400) == 0.0


def test_correlation_time() -> None:
    assert dependence.correlation_time(np.random.default_rng(0).normal(size=4000), 4000) == 0.5
    assert dependence.correlation_time(np.ones(100), 100) == 0.5
    assert 6.0 < dependence.correlation_time(series("AR .9", 6000, 1)[:, 0].copy(), 6000) < 14.0


# --- what is done ------------------------------------------------------------------------------------------------


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


def test_what_whitening_leaves_is_named() -> None:
    y = np.random.default_rng(6).normal(size=(3_000, 1))
    y *= np.where(np.arange(3_000) // 100 % 2 == 0, 1.0, 12.0)[:, None]
    alarms = raised(run(bank_of(1, arl=20.0), y))
    assert alarms[0].guarantee == "none"
    assert "no rate of false alarms can be stated" in alarms[0].guarantee_reason


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
