"""Thresholds of keys: escalation after alarms, and run lengths that follow from a key's own rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from kstream_worker.detectors.pairs import PairBank
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.reference import ReferenceBank
from kstream_worker.detectors.thresholds import LARGEST, alarms_per_decay, escalator, standing_of
from kstream_worker.records import Scores

MINUTE, DAY = 60_000, 86_400_000
Escalating = RankBank | PairBank | ReferenceBank
BANKS: dict[str, Callable[..., Escalating]] = {
    "ranks": lambda **more: RankBank(1, warmup=60, dependence="none", on_alarm="hold", **more),
    "ranks-rebase": lambda **more: RankBank(1, warmup=60, dependence="none", **more),
    "reference": lambda **more: ReferenceBank(1, samples=200, **more),
    "pairs": lambda **more: PairBank(1, warmup=60, atoms=8, on_alarm="hold", **more),
}


def walk(bank: Escalating, y: np.ndarray, step: int = MINUTE, slot: int | None = None) -> Scores:
    n = len(y)
    x = np.random.default_rng(1).standard_normal((n, 1)) if isinstance(bank, PairBank) else None
    slot = bank.allocate(b"key") if slot is None else slot
    return bank.update(np.full(n, slot), x, y[:, None], step * np.arange(n, dtype=np.int64))


def flapping(n: int, half: int = 150) -> np.ndarray:
    """A level that never stays."""
    return np.random.default_rng(2).standard_normal(n) + 8.0 * ((np.arange(n) // half) % 2)


def test_the_factor_falls_to_one_on_a_logarithmic_scale() -> None:
    rules = escalator(10.0, 1000)
    level = rules.raised(0.0, 0, 50)
    assert level == pytest.approx(math.log(10.0))
    rule = rules.rule(500.0, 2.0)
    for clock, factor in ((50, 10.0), (550, math.sqrt(10.0)), (1050, 1.0), (90_000, 1.0)):
        found = standing_of(0.0, level, 50, clock, rule)
        assert found[:3] == pytest.approx((500.0, factor, 1000.0 * factor))
        assert math.isnan(found.false_alarms_per_day)
    assert rules.raised(level, 50, 550) == pytest.approx(1.5 * math.log(10.0))


@pytest.mark.parametrize("name", BANKS)
def test_each_alarm_raises_the_threshold_of_its_own_key_alone(name: str) -> None:
    bank = BANKS[name](arl=1e3, escalation=10.0)
    unit = 1e3 if name == "pairs" else 2e3
    slot, other = bank.allocate(b"key"), bank.allocate(b"other")
    y = flapping(1500)
    scores = walk(bank, y, slot=slot)
    alarms = [t for t in scores.transitions if t.kind == "raised"]
    assert len(alarms) >= 3
    assert alarms[0].threshold == unit
    exact = 0
    for before, alarm in pairwise(alarms):
        left = 1.0 - MINUTE * (alarm.row - before.row) / (7 * DAY)
        after = scores.threshold[before.row + 1 : alarm.row + 1]
        assert alarm.threshold == scores.threshold[alarm.row] == pytest.approx(unit * alarm.escalation)
        assert alarm.evidence >= alarm.threshold
        if name == "ranks" and (np.diff(after) > 0.0).any():  # the old level crossed meanwhile, which raises nothing
            continue
        exact += 1
        assert (np.diff(after) < 0.0).all()
        assert math.log(alarm.escalation) == pytest.approx(left * math.log(10.0 * before.escalation))
    assert exact >= 2
    assert set(walk(bank, y[:100], slot=other).threshold) == {unit}


@pytest.mark.parametrize("name", BANKS)
def test_with_factor_one_thresholds_stand_still(name: str) -> None:
    bank = BANKS[name](arl=1e3)
    scores = walk(bank, flapping(900))
    assert any(t.kind == "raised" for t in scores.transitions)
    assert {t.escalation for t in scores.transitions} == {1.0}
    assert len(set(scores.threshold)) == 1


def test_a_key_that_never_comes_to_rest_has_a_bounded_number_of_alarms() -> None:
    """Evidence is not told apart beyond `LARGEST`: above, a key is silent until its threshold has fallen."""
    bank = RankBank(1, arl=1e6, warmup=60, dependence="none", on_alarm="hold", escalation=1e6)
    at_once, per_decay = alarms_per_decay(1e6, 2.0, 1e6)
    assert (at_once, per_decay) == (4.0, pytest.approx(4.95, abs=0.01))
    y = np.concatenate([np.random.default_rng(3).standard_normal(2000), np.full(9000, 9.0)])
    y[2000:] += np.repeat(np.arange(45) % 2, 200) * 40.0
    scores = walk(bank, y, step=1000)
    alarms = [t for t in scores.transitions if t.kind == "raised"]
    assert 2 <= len(alarms) <= at_once
    assert max(t.threshold for t in alarms) <= LARGEST
    assert scores.evidence.max() <= max(LARGEST, *(t.evidence for t in alarms))
    assert np.isfinite(scores.evidence).all()


def test_run_lengths_of_a_fleet_follow_from_each_keys_rate() -> None:
    days = 40.0
    for bank in (
        RankBank(1, arl=days, per_day=True, warmup=60, dependence="none"),
        PairBank(1, arl=days, per_day=True, warmup=60, atoms=8),
    ):
        unit = 1.0 if isinstance(bank, PairBank) else 2.0
        for step in (MINUTE, 10 * MINUTE):
            y = np.concatenate([np.random.default_rng(4).standard_normal(60), np.full(400, 9.0)])
            slot = bank.allocate(b"%d" % step)
            scores = walk(bank, y, step, slot)
            arl = days * DAY / step
            alarm = next(t for t in scores.transitions if t.kind == "raised")
            assert alarm.arl == pytest.approx(arl)
            assert alarm.false_alarms_per_day == pytest.approx(1.0 / days)
            assert np.isnan(scores.threshold[:60]).all()
            assert scores.threshold[60] == pytest.approx(unit * arl)
        bank.retune(2.0 * days)
        assert walk(bank, np.zeros(1), slot=slot).threshold[0] >= unit * 2.0 * arl * 0.999


def test_a_key_without_times_has_the_longest_run_length() -> None:
    bank = RankBank(1, arl=40.0, per_day=True, warmup=60, dependence="none")
    scores = walk(bank, np.random.default_rng(5).standard_normal(100), step=0)
    assert scores.threshold[-1] == 2e12


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"escalation": 0.5}, "must lie in 1..1e6"),
        ({"escalation": math.nan}, "must lie in 1..1e6"),
        ({"escalation_decay_ms": 0}, "must be at least 1"),
    ],
)
@pytest.mark.parametrize("name", BANKS)
def test_settings_out_of_range_are_refused(name: str, settings: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BANKS[name](**settings)
