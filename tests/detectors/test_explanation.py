"""What alarms say of simulated changes: the short form of `make bench-explain`, and the parts behind it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import explain as bench
from kstream_worker.detectors.before_after import compare, correlation, kind_of, severity_of, turned
from kstream_worker.detectors.history import rank_sum
from kstream_worker.detectors.level_split import split_levels
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.splitting import split_set

ORIGIN = 1_700_000_000_000


@pytest.mark.parametrize("name", ["independent", "pairs"])
def test_alarms_say_the_truth_as_often_as_they_state(name: str) -> None:
    scheme = bench.SCHEMES[name]
    rows = {name: bench.explain(name, 12, 100 + seed, 10_000.0, scheme) for seed, name in enumerate(bench.CHANGES)}
    total = bench.summed(rows)
    assert total["alarms"] >= 100
    assert bench.failures(total) == []
    assert rows["level 1"]["severity"] < rows["level 2"]["severity"] < rows["level 10"]["severity"]


@pytest.mark.parametrize("dependence", ["none", "whiten"])
def test_numbers_are_in_the_units_of_the_input_and_add_up(dependence: str) -> None:
    rng = np.random.default_rng(3)
    y = np.stack((2e6 + 0.5 * rng.normal(size=2200), 0.1 * rng.normal(size=2200)), axis=1)
    y[1800:, 0] += 1.5
    bank = RankBank(2, feature_names=("power", "leak"), arl=1e4, dependence=dependence)
    scores = bank.update(np.full(2200, bank.allocate(b"key")), None, y, ORIGIN + 60_000 * np.arange(2200))
    alarm = next(t for t in scores.transitions if t.kind == "raised" and t.seq > 1800)
    told = alarm.explanation
    assert told is not None
    assert (told.kind, alarm.direction, told.summaries[0].name) == ("level", "up", "power")
    first = told.summaries[0]
    assert first.before[0] == pytest.approx(2e6, abs=0.15)
    assert first.before[1] == pytest.approx(0.5, rel=0.2)
    assert first.after[0] == pytest.approx(2e6 + 1.5, abs=0.75)
    assert first.size == pytest.approx(first.after[0] - first.before[0])
    assert first.before[2] + first.after[2] > 200
    assert math.fsum(one.value for one in told.contributions) == pytest.approx(told.log_evidence)
    assert {one.name for one in told.contributions} == {"power", "leak", "radius", "power*leak"}
    assert told.contributions[0].value == max(one.value for one in told.contributions)
    assert min(one.value for one in told.contributions) < 0.0
    assert told.change_seq_low is not None
    assert told.change_seq_low <= alarm.change_seq <= told.change_seq_high
    assert told.change_time_low == ORIGIN + 60_000 * (told.change_seq_low - 1)
    assert told.change_time_high == ORIGIN + 60_000 * (told.change_seq_high - 1)
    assert alarm.false_alarms_per_day == pytest.approx(1440.0 / 1e4)


def test_a_change_that_may_lie_before_what_is_remembered_has_an_open_interval() -> None:
    rng = np.random.default_rng(5)
    y = rng.normal(size=(700, 1))
    y[190:] += 1.5  # within the warm-up's end: the bag holds a little of it
    bank = RankBank(1, arl=100.0, dependence="none")
    scores = bank.update(np.full(700, bank.allocate(b"key")), None, y, np.arange(700))
    told = next(t for t in scores.transitions if t.kind == "raised").explanation
    assert told is not None
    assert (told.change_seq_low, told.change_time_low) == (None, None)


def test_a_step_of_a_whitened_stream_is_dated_by_the_samples_themselves() -> None:
    rng = np.random.default_rng(8)
    y = rng.normal(size=(1500, 12))
    for t in range(1, len(y)):
        y[t] = 0.6 * y[t - 1] + 0.8 * y[t]
    y[1000:] += 3.0
    bank = RankBank(1, arl=1e4, dependence="whiten")
    slots = np.array([bank.allocate(b"%d" % key) for key in range(12)])
    scores = bank.update(np.tile(slots, 1500), None, y.reshape(-1, 1), np.repeat(1000 * np.arange(1500), 12))
    alarms = [t for t in scores.transitions if t.kind == "raised" and 1000 < t.seq < 1100]
    assert len(alarms) == 12
    assert sum(abs(t.change_seq - 1001) <= 2 for t in alarms) >= 10  # by ranks of innovations 6 are
    widths = [t.explanation.change_seq_high - (t.explanation.change_seq_low or 0) for t in alarms if t.explanation]
    assert np.median(widths) <= 8.0


def test_the_split_of_levels_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=60) + np.where(np.arange(60) < 22, 0.0, 1.5)
    found = np.empty(60)
    largest = split_levels(x.copy(), found)
    squares = np.array([len(x) * x.var(), *(x[:k].var() * k + x[k:].var() * (60 - k) for k in range(1, 60))])
    expected = -30.0 * np.log(squares / squares[0])
    best = 2 + int(np.argmax(expected[2:59]))
    off = x - np.where(np.arange(60) < best, x[:best].mean(), x[best:].mean())
    r = max(0.0, float(off[1:] @ off[:-1] / (off @ off)))
    assert largest == found[best] == found.max()
    assert found[2:59] == pytest.approx(expected[2:59] * (1 - r) / (1 + r) - 0.5 * math.log(60))
    assert np.isneginf(found[[0, 1, 59]]).all()


def test_what_wanders_says_less_of_a_level_than_what_does_not() -> None:
    rng = np.random.default_rng(6)
    walks, steps = rng.normal(size=(20, 100)).cumsum(axis=1), rng.normal(size=(20, 100))
    steps[:, 60:] += 3.0
    of_walks, of_steps = ([split_levels(x.copy(), np.empty(100)) for x in series] for series in (walks, steps))
    assert max(of_walks) < min(of_steps)
    assert split_levels(np.ones(9), np.empty(9)) == split_levels(np.arange(3.0), np.empty(3)) == -math.inf


def test_the_set_of_splits_holds_nine_tenths() -> None:
    shares = np.array([0.02, 0.03, 0.5, 0.02, 0.4, 0.03])
    assert split_set(np.log(shares)) == (2, 2, 4)
    assert split_set(np.zeros(10)) == (0, 0, 8)
    assert split_set(np.array([-3.0])) == (0, 0, 0)


def test_rank_sums_and_correlations_are_those_of_scipy() -> None:
    from scipy.stats import mannwhitneyu

    a, b = np.random.default_rng(1).normal(size=(2, 40))
    a = a[:25] + 0.4
    u = mannwhitneyu(a, b, method="asymptotic", use_continuity=False).statistic
    assert rank_sum(a, b) == pytest.approx((u - 500.0) / math.sqrt(25 * 40 * 66 / 12))
    assert rank_sum(np.zeros(3), np.zeros(5)) == 0.0
    assert correlation(b[:25], a) == pytest.approx(np.corrcoef(b[:25], a)[0, 1])
    assert correlation(np.zeros(4), b[:4]) == 0.0
    assert turned(0.0, 0.8, 200, 53) == pytest.approx(math.atanh(0.8) / math.sqrt(1 / 197 + 1 / 50))


def test_kinds_and_severities_of_two_samples() -> None:
    rng = np.random.default_rng(2)
    before = rng.normal(size=300)
    cases = {
        "level": rng.normal(size=40) + 1.0,
        "spread": 3.0 * rng.normal(size=40),
        "stuck": np.full(12, before[7]),
        "spike": np.array([25.0]),
    }
    for kind, after in cases.items():
        change = compare(before, after, 300)
        assert kind_of(change, len(after)) == kind
        assert 0.0 < severity_of(kind, change) <= 1.0
    short, longer = (compare(before, rng.normal(size=n) + 1.0, 300) for n in (40, 400))
    assert severity_of("level", longer) == pytest.approx(severity_of("level", short), abs=0.15)
    assert longer.level > 1.5 * short.level  # the evidence grows with waiting
    zeros = np.where(np.arange(300) % 4 == 0, before, 0.0)
    assert kind_of(compare(zeros, np.zeros(12), 300), 12) != "stuck"
