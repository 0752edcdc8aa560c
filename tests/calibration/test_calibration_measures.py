"""Rates, delays and seasons on simulated histories whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from calibration_data import history, normal

from kstream_worker.calibration.changes import CHANGES, Feature, Place, changed, choose_places, eligible_rows
from kstream_worker.calibration.delays import PLACES, Delay, Trials, try_changes
from kstream_worker.calibration.rates import Rate, poisson_interval, pooled
from kstream_worker.calibration.replay import ARMED, replay, snapshots, walk
from kstream_worker.calibration.seasons import DAY_S, WEEK_S, explained, seasons_of
from kstream_worker.detectors.pairs import PairBank
from kstream_worker.detectors.ranks import RankBank

BY_NAME = {change.name: change for change in CHANGES}


def test_the_interval_is_garwoods() -> None:
    assert poisson_interval(0) == (0.0, pytest.approx(3.6889, abs=1e-4))
    assert poisson_interval(10) == (pytest.approx(4.7954, abs=1e-4), pytest.approx(18.3904, abs=1e-4))


def test_a_rate_is_judged_by_what_chance_allows() -> None:
    rate = Rate(alarms=30, armed=100_000, allowed=10.0)
    assert (rate.per_1e5, rate.stated_per_1e5, rate.verdict) == (30.0, 10.0, "more")
    assert rate.chance < 1e-6
    assert Rate(12, 100_000, 10.0).verdict == "unclear"
    assert Rate(1, 100_000, 10.0).verdict == "fewer"
    nothing = Rate(0, 0, 0.0)
    assert (nothing.interval_per_1e5(), nothing.stated_per_1e5, nothing.verdict) == (None, None, "unclear")
    assert pooled([Rate(1, 10, 5.0), Rate(2, 30, 2.5)]) == Rate(3, 40, 7.5)


def test_without_a_change_alarms_are_no_more_than_stated() -> None:
    bank = RankBank(1, arl=1000.0, warmup=100, dependence="none")
    found = replay(bank, history(normal(60_000)))
    rate = Rate(len(found.alarms), found.count(ARMED), found.count(ARMED) / 1000.0)
    assert rate.alarms >= 5  # about a third of what is allowed: the bound is not sharp
    assert rate.verdict == "fewer"


def test_a_change_in_history_is_an_alarm_in_history() -> None:
    y = normal(3000, 2)
    y[2000:, 1] += 3.0
    found = replay(RankBank(2, arl=1e6), history(y))
    (alarm,) = found.alarms
    assert 2000 <= alarm.row < 2050
    assert alarm.said.features[0][0] == "f1"


def test_a_key_that_starts_afresh_is_a_new_key() -> None:
    y = np.concatenate([normal(800), 50.0 + normal(800, seed=1)])
    bank = RankBank(1, arl=1e6, warmup=100, dependence="none")
    assert len(replay(bank, history(y)).alarms) == 1
    assert replay(bank, history(y, starts=(0, 800))).alarms == []


def test_a_trial_is_what_a_walk_through_the_changed_history_gives() -> None:
    """Each place is tried from a snapshot; the whole history with the change in it must give the same alarm."""
    y, place, horizon = normal(2500, 2), Place(1700, 1, -1.0), 600
    for bank, x in ((RankBank(2, arl=1e4), None), (PairBank(2, arl=1e4), normal(2500, 2, seed=9))):
        of_key = history(y, x=x)
        feature = Feature.of(y[:, 1])
        ((row, state),) = snapshots(bank, of_key, [place.row])
        assert row == place.row
        for change in CHANGES:
            whole = y.copy()
            whole[place.row : place.row + horizon] = changed(of_key, place, change, feature, horizon)
            end = place.row + horizon
            slot = bank.allocate(of_key.key)
            said = walk(bank, slot, None if x is None else x[:end], whole[:end], of_key.times[:end])
            expected = [one.row - place.row for one in said if one.kind == "raised"][:1]
            bank.restore(slot, state)
            part = slice(place.row, end)
            there = walk(bank, slot, None if x is None else x[part], whole[part], of_key.times[part])
            assert [one.row for one in there if one.kind == "raised"][:1] == expected
            bank.free(slot)


def test_delays_of_known_changes() -> None:
    bank = RankBank(1, arl=10_000.0, warmup=200, dependence="none")
    of_key = history(normal(12_000, seed=3))
    found = replay(bank, of_key)
    trials = try_changes(bank, of_key, found, seed=5)
    assert trials.horizon == 2000
    delays = {name: Delay.of(name, one) for name, one in trials.by_change.items()}
    assert all(delay.places == PLACES for delay in delays.values())
    assert all(delay.share == 1.0 for delay in delays.values())
    bounds = {"shift 1": (15, 45), "shift 2": (5, 20), "spread x2": (10, 60), "stuck": (10, 40), "ramp": (200, 900)}
    for name, (low, high) in bounds.items():
        median = delays[name].median_samples
        assert median is not None
        assert low <= median <= high, name
        assert delays[name].median_s == 60.0 * (median - 1)
    assert trials.last_arming is not None
    assert trials.last_arming[0] == "exact_if_iid"
    again = try_changes(bank, of_key, found, seed=5)
    assert again.by_change == trials.by_change


def test_delays_of_pairs() -> None:
    bank = PairBank(1, arl=10_000.0)
    of_key = history(normal(4000), x=normal(4000, seed=1))
    trials = try_changes(bank, of_key, replay(bank, of_key), seed=0)
    delay = Delay.of("shift 2", trials.by_change["shift 2"])
    assert delay.share == 1.0
    assert delay.median_samples is not None
    assert 10 <= delay.median_samples <= 45
    assert trials.last_arming is not None
    assert trials.last_arming[0] == "exact_if_iid"


def test_a_short_history_has_no_places() -> None:
    bank = RankBank(1, arl=1e4)
    for n in (100, 700):
        of_key = history(normal(n))
        trials = try_changes(bank, of_key, replay(bank, of_key), seed=0)
        assert trials.horizon == 0
        assert all(one == Trials() for one in trials.by_change.values())
        assert (trials.last_arming is None) == (n == 100)


def test_places_are_where_the_key_is_armed_and_quiet() -> None:
    y = normal(6000)
    y[3000:] += 4.0
    bank = RankBank(1, arl=1e6, warmup=200, dependence="none")
    of_key = history(y, starts=(0, 5000))
    found = replay(bank, of_key)
    (alarm,) = found.alarms
    rows = eligible_rows(of_key, found, 400)
    assert rows.min() == 201
    assert (found.states[rows] == ARMED).all()
    assert (found.states[rows - 1] == ARMED).all()
    assert not ((rows > alarm.row - 400) & (rows <= alarm.row + 1)).any()
    assert not ((rows > 4600) & (rows <= 5200)).any()  # no change reaches into another life of the key
    assert rows.max() == 5600
    places = choose_places(rows, [Feature.of(y[:, 0]), Feature(0.0, 0.0, False)], 12, 1, b"k")
    assert len(places) == 12
    assert {place.feature for place in places} == {0}
    assert {place.sign for place in places} == {1.0, -1.0}
    assert all(place.row in rows for place in places)
    assert choose_places(rows, [Feature(0.0, 0.0, False)], 12, 1, b"k") == []


def test_what_is_put_in_keeps_the_kind_of_the_feature() -> None:
    counts = np.random.default_rng(0).poisson(1.0, (3000, 1)).astype(np.float64)
    feature = Feature.of(counts[:, 0])
    assert (feature.step, feature.nonnegative) == (1.0, True)
    for change in CHANGES:
        y = changed(history(counts), Place(1000, 0, -1.0), change, feature, 300)
        assert y.min() >= 0.0, change.name
        assert np.array_equal(y, np.round(y)), change.name
    tenths = np.round(20.0 + normal(3000), 1)
    assert Feature.of(tenths[:, 0]).step == pytest.approx(0.1)
    assert Feature.of(normal(3000)[:, 0]).step == 0.0
    assert Feature.of(np.full(10, 7.0)).spread == 0.0


def test_changes_are_of_the_stated_size() -> None:
    y = 5.0 + 2.0 * normal(4000)
    of_key, feature, place = history(y), Feature.of(y[:, 0]), Place(2000, 0, 1.0)
    part = y[2000:3000, 0]
    assert feature.spread == pytest.approx(2.0, rel=0.1)
    made = {name: changed(of_key, place, change, feature, 1000)[:, 0] for name, change in BY_NAME.items()}
    assert np.allclose(made["shift 2"] - part, 2.0 * feature.spread)
    assert made["spread x1.5"].std() == pytest.approx(1.5 * part.std())
    assert set(made["stuck"].tolist()) == {float(y[1999, 0])}
    assert made["ramp"][-1] - part[-1] == pytest.approx(2.0 * feature.spread)
    assert np.array_equal(of_key.y, y)


def test_what_was_missed_counts_as_later_than_the_horizon() -> None:
    trials = Trials()
    for found in (4, None, 9, None):
        trials.add(found, 60.0 * (found or 0))
    delay = Delay.of("x", trials)
    assert (delay.places, delay.found, delay.share) == (4, 2, 0.5)
    assert (delay.median_samples, delay.p90_samples) == (10, None)
    assert (delay.median_s, delay.p90_s) == (540.0, None)
    unknown = Trials([3.0], [math.nan])
    assert Delay.of("x", unknown).median_s is None
    assert Delay.of("x", Trials()).share is None


def test_seasons_are_those_that_predict() -> None:
    n = 6 * 1440
    times = history(np.zeros((n, 1))).times
    phase = 2 * np.pi * (times % 86_400_000) / 86_400_000
    noise = normal(n)[:, 0]
    assert explained(times, np.sin(phase) + noise, DAY_S) == pytest.approx(1 / 3, abs=0.05)
    assert explained(times, noise, DAY_S) < 0.02
    assert explained(times, np.cumsum(noise), DAY_S) < 0.1
    assert explained(times[: 3 * 1440], np.sin(phase)[: 3 * 1440], DAY_S) == 0.0
    (season,) = seasons_of(("a", "b"), times, np.column_stack([noise, np.sin(phase)]))
    assert (season.feature, season.period_s) == ("b", DAY_S)
    assert seasons_of(("a",), np.full(n, -1), noise[:, None]) == []


def test_a_week_is_told_from_a_day() -> None:
    times = np.arange(8 * 7 * 24, dtype=np.int64) * 3_600_000
    weekend = ((times // 86_400_000) % 7 >= 5).astype(np.float64)
    (season,) = seasons_of(("a",), times, (3 * weekend + normal(len(times))[:, 0])[:, None])
    assert season.period_s == WEEK_S
