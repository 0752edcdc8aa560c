"""Seasons of the detector for one stream: given and found, gaps, changes of the clock, and what stays to be seen."""

from __future__ import annotations

import csv
import math
import os
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from kstream_worker.detectors.civil import CivilClock
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.ranks_layout import ARMED, LEFT_IN, PHASE, SEASON_TESTED, SEASONS, WARMING, Options
from kstream_worker.detectors.ranks_rows import make_layout
from kstream_worker.numerics.math import sincos_of_turns
from kstream_worker.records import Scores, Transition

Matrix = NDArray[np.float64]
Times = NDArray[np.int64]

DATA = Path(os.environ.get("KSTREAM_DATA") or Path(__file__).parents[3] / "shared" / "data")
HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
MIDNIGHT = 1_700_006_400_000 // DAY * DAY


def shape(times: Times, weekly: float = 0.0) -> Matrix:
    turn = 2.0 * math.pi * times / DAY
    daily = 1.5 * np.sin(turn) + 0.7 * np.sin(2 * turn + 1.0) + 0.4 * np.cos(3 * turn)
    result: Matrix = daily + weekly * np.sin(turn / 7.0)
    return result


def noise(n: int, dims: int = 1, seed: int = 0, phi: float = 0.5) -> Matrix:
    y = np.random.default_rng(seed).normal(size=(n, dims))
    for t in range(1, n):
        y[t] = phi * y[t - 1] + math.sqrt(1.0 - phi * phi) * y[t]
    return y


def bank_of(dims: int = 1, **settings: Any) -> RankBank:
    return RankBank(dims, **{"arl": 100_000.0, "capacity": 1, **settings})


def run(bank: RankBank, y: Matrix, times: Times, slot: int | None = None) -> Scores:
    slot = bank.allocate(b"key") if slot is None else slot
    return bank.update(np.full(len(y), slot), None, y, times)


def raised(scores: Scores) -> list[Transition]:
    return [t for t in scores.transitions if t.kind == "raised"]


def test_sine_and_cosine() -> None:
    for x in np.linspace(0.0, 1.0, 1_001):
        s, c = sincos_of_turns(float(x))
        assert s == pytest.approx(math.sin(2.0 * math.pi * x), abs=1e-15)
        assert c == pytest.approx(math.cos(2.0 * math.pi * x), abs=1e-15)


# --- given -------------------------------------------------------------------------------------------------------


def test_a_given_season_raises_nothing_and_hides_no_shift() -> None:
    times = MIDNIGHT + 5 * 60_000 * np.arange(6_000)
    y = shape(times)[:, None] + noise(6_000, 2, seed=1)
    assert raised(run(bank_of(2, period=(DAY,)), y, times)) == []
    y[5_000:, 1] += 1.5
    alarm = raised(run(bank_of(2, period=(DAY,)), y, times))[0]
    assert 0 < alarm.seq - 5_000 < 150
    assert alarm.guarantee == "approximate"
    assert "Seasons of 1 d are taken out." in alarm.guarantee_reason


def test_the_warm_up_lasts_until_a_given_season_was_seen_once() -> None:
    times = MIDNIGHT + 60_000 * np.arange(6_000)
    y = shape(times)[:, None] + noise(6_000, seed=2)
    scores = run(bank_of(period=(DAY,)), y, times)
    assert int(np.flatnonzero(scores.state)[0]) in range(1_440, 1_443)
    assert raised(scores) == []


def test_a_week_and_a_day_of_hours() -> None:
    times = MIDNIGHT + HOUR * np.arange(4_000)
    y = shape(times, weekly=1.0)[:, None] + noise(4_000, seed=3)
    assert raised(run(bank_of(period=(DAY, WEEK)), y, times)) == []


@pytest.mark.parametrize(("minutes", "armed"), [(5, 600 + 2 * 288 - 100), (2, 720 + 720 - 100), (1, 1_440), (60, 600)])
def test_no_bets_before_the_bags_hold_a_day_twice(minutes: int, armed: int) -> None:
    """At arming they hold 100 samples. Of two minutes one day fits into their 1,000, of one none, which is no reason to
    wait; of an hour 100 are four days.
    """
    times = MIDNIGHT + minutes * 60_000 * np.arange(2_000)
    scores = run(bank_of(period=(DAY,)), shape(times)[:, None] + noise(2_000, seed=13), times)
    assert int(np.flatnonzero(scores.state == ARMED)[0]) in range(armed - 1, armed + 3)
    assert scores.transitions == []


def test_gaps_do_no_harm() -> None:
    """Samples that are missing at random, and whole days: the season is one of event time."""
    rng = np.random.default_rng(4)
    times = MIDNIGHT + 5 * 60_000 * np.arange(9_000)
    keep = rng.random(9_000) < 0.7
    keep[4_000:4_900] = False
    keep[6_000:6_130] = False
    y = (shape(times)[:, None] + noise(9_000, seed=4, phi=0.3))[keep]
    assert raised(run(bank_of(period=(DAY,)), y, times[keep])) == []


def test_a_gap_shows_nothing_of_a_given_season() -> None:
    times = MIDNIGHT + 60_000 * np.arange(4_000)
    times[800:] += 3 * DAY
    scores = run(bank_of(period=(DAY,)), shape(times)[:, None] + noise(4_000, seed=10), times)
    assert int(np.flatnonzero(scores.state)[0]) in range(1_380, 1_441)  # the hours at both ends count in full


def test_a_time_far_ahead_holds_no_key_back() -> None:
    for at in (0, 700):
        times = MIDNIGHT + 60_000 * np.arange(4_000)
        times[at] += 900 * DAY
        scores = run(bank_of(period=(DAY,)), shape(times)[:, None] + noise(4_000, seed=11), times)
        assert int(np.flatnonzero(scores.state)[0]) in range(at + 1_440, at + 1_444)


def test_the_season_outlives_an_alarm() -> None:
    times = MIDNIGHT + 60_000 * np.arange(9_000)
    y = shape(times)[:, None] + noise(9_000, seed=5)
    y[4_000:] += 4.0
    scores = run(bank_of(period=(DAY,)), y, times)
    assert [t.kind for t in scores.transitions] == ["raised", "cleared"]
    alarm, over = scores.transitions
    assert over.seq - alarm.seq == 600  # no second wait for a whole day


# --- found -------------------------------------------------------------------------------------------------------


def test_a_day_is_found_and_said() -> None:
    times = MIDNIGHT + 5 * 60_000 * np.arange(6_000)
    y = shape(times)[:, None] + noise(6_000, seed=6)
    bank = bank_of(period="auto")
    slot = bank.allocate(b"key")
    assert raised(run(bank, y, times, slot)) == []
    assert bank._slots.ints[slot, SEASONS] == 1
    later = times[-1] + 5 * 60_000 * (1 + np.arange(400))
    alarm = raised(run(bank, shape(later)[:, None] + 5.0, later, slot))[0]
    assert "Seasons of 1 d are taken out as found by a test." in alarm.guarantee_reason


def office_hours(times: Times, seed: int, spread: float) -> Matrix:
    """20 at night, 80 from about nine to six; both edges come some minutes early or late."""
    rng = np.random.default_rng(seed)
    day, late = times // DAY - times[0] // DAY, rng.integers(-10, 11, size=(int(np.ptp(times) // DAY) + 2, 2)) * 60_000
    at = times % DAY
    on = (at >= 9 * HOUR + late[day, 0]) & (at < 18 * HOUR + late[day, 1])
    result: Matrix = np.where(on, 80.0, 20.0) + spread * rng.uniform(size=len(times))
    return result[:, None]


def test_a_day_with_edges_is_left_in_and_said() -> None:
    """Three harmonics would make a wave of a level night."""
    times = MIDNIGHT + 5 * 60_000 * np.arange(4_000)
    bank = bank_of(arl=1e20, period="auto")
    slot = bank.allocate(b"key")
    scores = run(bank, office_hours(times, 14, spread=0.1), times, slot)
    assert bank._slots.ints[slot, SEASONS] == 0
    assert bank._slots.ints[slot, SEASON_TESTED] == LEFT_IN
    level, reason = bank.guarantee(slot)
    assert level == "none"
    assert "A season was found and is left in" in reason
    assert "could not be looked for yet" not in reason
    assert (np.diff((scores.state == WARMING).astype(int)) == 1).sum() == 1  # it warmed up anew once, to find that out


def test_a_day_with_edges_raises_no_more_alarms_than_stated() -> None:
    times = MIDNIGHT + 5 * 60_000 * np.arange(4_000)
    settings = {"arl": 1_000.0, "period": "auto", "on_alarm": "hold", "dead_time_ms": DAY, "escalation": 10.0}
    bank = bank_of(capacity=8, **settings)
    alarms = []
    for key in range(8):
        slot = bank.allocate(b"%d" % key)
        alarms += raised(run(bank, office_hours(times, key, spread=(0.0, 0.1, 1.0, 5.0)[key % 4]), times, slot))
    assert len(alarms) <= 8 * 3_400 / 1_000  # 44 of such keys while three harmonics were taken out
    assert {alarm.guarantee for alarm in alarms} == {"none"}


def test_a_day_is_found_later_where_the_warm_up_is_short_of_three() -> None:
    """At a sample a minute the key is armed after ten hours, and warms up anew once 3 days have shown the season."""
    times = MIDNIGHT + 60_000 * np.arange(6_000)
    y = shape(times)[:, None] + noise(6_000, seed=7)
    bank = bank_of(arl=1e20, period="auto")
    slot = bank.allocate(b"key")
    scores = run(bank, y[:4_200], times[:4_200], slot)
    assert scores.state[599] == 0
    assert scores.state[600] == scores.state[-1] == 1
    assert bank._slots.ints[slot, SEASONS] == 0
    level, reason = bank.guarantee(slot)
    assert level == "none"
    assert "a daily season could not be looked for yet" in reason
    run(bank, y[4_200:4_800], times[4_200:4_800], slot)
    assert bank._slots.ints[slot, SEASONS] == 1
    assert bank._slots.ints[slot, PHASE] == WARMING
    assert run(bank, y[4_800:], times[4_800:], slot).state[-1] == 1


def test_a_gap_is_no_history_to_find_a_day_in() -> None:
    times = MIDNIGHT + 60_000 * np.arange(3_000)
    times[1_500:] += 4 * DAY
    bank = bank_of(arl=1e20, period="auto")
    slot = bank.allocate(b"key")
    run(bank, shape(times)[:, None] + noise(3_000, seed=12), times, slot)
    assert "a daily season could not be looked for yet" in bank.guarantee(slot)[1]


def test_a_key_that_warms_up_without_a_season_is_held_no_more() -> None:
    times = MIDNIGHT + 60_000 * np.arange(6_000)
    y = shape(times)[:, None] + noise(6_000, seed=7)
    y[1_000] += 1e3
    bank = bank_of(arl=1e9, period="auto", on_alarm="hold", escalation=1e6)
    slot = bank.allocate(b"key")
    run(bank, y[:4_200], times[:4_200], slot)
    assert "held alarm" in bank.guarantee(slot)[1]
    run(bank, y[4_200:], times[4_200:], slot)
    assert bank._slots.ints[slot, SEASONS] == 1
    assert "held alarm" not in bank.guarantee(slot)[1]


def test_a_week_is_found_after_three() -> None:
    times = MIDNIGHT + HOUR * np.arange(1_500)
    bank = bank_of(period="auto")
    slot = bank.allocate(b"key")
    run(bank, shape(times, weekly=1.5)[:, None] + noise(1_500, seed=8), times, slot)
    assert bank._slots.ints[slot, SEASONS] == 3
    assert bank.guarantee(slot)[0] == "approximate"


@pytest.mark.parametrize("kind", ["iid", "AR .9", "random walk"])
def test_no_season_is_found_where_there_is_none(kind: str) -> None:
    times = MIDNIGHT + 15 * 60_000 * np.arange(3_000)
    bank = bank_of(2, arl=1e20, period="auto", capacity=20)
    found = 0
    for key in range(20):
        y = noise(3_000, 2, seed=key, phi=0.9 if kind == "AR .9" else 0.0)
        slot = bank.allocate(b"%d" % key)
        run(bank, np.cumsum(y, axis=0) if kind == "random walk" else y, times, slot)
        found += bank._slots.ints[slot, SEASONS] != 0
    assert found <= 1


# --- the clock ---------------------------------------------------------------------------------------------------


def test_civil_time() -> None:
    zone = ZoneInfo("Europe/Berlin")
    times = 1_000 * np.arange(1_640_000_000, 1_680_000_000, 1_234_567)
    local = CivilClock("Europe/Berlin").local(times)
    for time, civil in zip(times.tolist(), local.tolist(), strict=True):
        offset = datetime.fromtimestamp(time / 1_000, UTC).astimezone(zone).utcoffset()
        assert offset is not None
        assert civil - time == 1_000 * offset.total_seconds()
    assert CivilClock("UTC").local(times) is times
    extremes = np.array([np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2])
    assert (np.abs(CivilClock("Asia/Tokyo").local(extremes) - extremes) <= DAY).all()


def test_the_change_of_the_clock_raises_no_alarm() -> None:
    """People rise by the wall's clock: a season of civil time stays in step where one of UTC is an hour late."""
    zone = "Europe/Berlin"
    start = int(datetime(2022, 2, 25, tzinfo=UTC).timestamp() * 1_000)
    times = start + 15 * 60_000 * np.arange(5_500)  # until late in April; the clocks change on 27 March
    civil = CivilClock(zone).local(times)
    y = 6.0 * shape(civil)[:, None] + 0.3 * noise(5_500, seed=9)
    assert raised(run(bank_of(period=(DAY,), time_zone=zone), y, times)) == []
    assert raised(run(bank_of(period=(DAY,)), y, times))[0].seq in range(2_800, 3_100)


def test_zones_are_those_of_the_package_whatever_the_host_has() -> None:
    """A system's database is another one on the next host, and what it says of a zone would change bits."""
    zoneinfo.reset_tzpath(to=())
    try:
        assert CivilClock("Europe/Berlin").local(np.array([0])).tolist() == [3_600_000]
        assert CivilClock("UTC").local(np.array([0])).tolist() == [0]
    finally:
        zoneinfo.reset_tzpath()
    with pytest.raises(ValueError, match="tz database"):
        CivilClock("localtime")  # of this host


def test_unknown_zones_and_periods_are_named() -> None:
    with pytest.raises(ValueError, match="tz database"):
        bank_of(period=(DAY,), time_zone="Mars/Olympus")
    with pytest.raises(ValueError, match="whole days"):
        bank_of(period=(DAY, HOUR), time_zone="Europe/Berlin")
    with pytest.raises(ValueError, match="'none', 'auto' or periods"):
        bank_of(period="daily")
    with pytest.raises(ValueError, match="at most 3"):
        bank_of(period=(DAY, WEEK, HOUR, 2 * DAY))
    with pytest.raises(ValueError, match="1 s"):
        bank_of(period=(10,))
    with pytest.raises(ValueError, match="needs dependence 'auto' or 'whiten'"):
        bank_of(period=(DAY,), dependence="none")


def test_what_seasons_cost() -> None:
    """Bytes of a row: two given periods, and `auto` with its three weeks of hours."""
    plain, given, auto = (
        make_layout(10, 600, 1, Options(periods=periods, season_auto=found))
        for periods, found in (((), False), ((DAY, WEEK), False), ((DAY, WEEK), True))
    )
    for layout in (given, auto):
        assert 8 * (layout.floats - plain.floats) <= 7_500
    assert 2 * (auto.shorts - plain.shorts) == 2 * 504 * 10


# --- real data ---------------------------------------------------------------------------------------------------


def column(path: str, value: str, time: str) -> tuple[Times, Matrix]:
    file = DATA / path
    if not file.is_file():
        pytest.skip(f"{file} is not there: set KSTREAM_DATA to the folder of the real series")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    moments = [datetime.fromisoformat(row[time]) for row in rows]
    stamps = [moment if moment.tzinfo else moment.replace(tzinfo=UTC) for moment in moments]
    return (
        np.array([round(1_000 * stamp.timestamp()) for stamp in stamps]),
        np.array([[float(row[value])] for row in rows]),
    )


def test_water_flow_neither_gaps_nor_the_clock_raise_alarms() -> None:
    """Hourly flow from 20 March to May 2022 with gaps; the clocks change a week in, which the warm-up covers."""
    times, y = column("waterflow/water-flow.csv", "Water flow [l/s]", "Time")
    scores = run(bank_of(period=(DAY,), time_zone="Europe/Rome"), y, times)
    gaps = times[1:][np.diff(times) > HOUR]
    assert len(gaps) >= 8
    for alarm in raised(scores):
        assert not ((alarm.change_time >= gaps) & (alarm.change_time <= gaps + 6 * HOUR)).any()


def test_taxi_rides_have_a_day() -> None:
    times, y = column("nab/data/realKnownCause/nyc_taxi.csv", "value", "timestamp")
    bank = bank_of(period="auto")
    slot = bank.allocate(b"key")
    seasonal = raised(run(bank, y, times, slot))
    assert bank._slots.ints[slot, SEASONS] & 1
    assert len(seasonal) <= 5
