"""One change is one incident: repeats belong to it, and its end is found when the old regime is back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.steps import BEFORE, Kind, transitions_of
from kstream_worker.detectors.alarms import AlarmBank
from kstream_worker.detectors.pairs import PairBank
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.reference import ReferenceBank
from kstream_worker.records import Incident, Transition

Matrix = NDArray[np.float64]

SECOND = 1000
STREAMS = 24


def walk(bank: AlarmBank, y: Matrix, *, paired: bool = False) -> list[list[Transition]]:
    """Transitions of each stream of float64[n, streams, d]."""
    n, streams, d = y.shape
    slots = np.array([bank.allocate(b"%d" % key) for key in range(streams)])
    x = np.random.default_rng(99).normal(size=(n * streams, d)) if paired else None
    times = np.repeat(SECOND * np.arange(n), streams)
    scores = bank.update(np.tile(slots, n), x, np.ascontiguousarray(y.reshape(-1, d)), times)  # type: ignore[attr-defined]
    return [[one for one in scores.transitions if one.slot == slot] for slot in slots.tolist()]


def raised(told: Sequence[Transition]) -> list[Transition]:
    return [one for one in told if one.kind == "raised"]


def incidents(told: Sequence[Transition]) -> set[int]:
    return {one.incident.seq for one in raised(told) if one.incident is not None}


def check_protocol(told: Sequence[Transition]) -> None:
    """An incident begins with its first alarm, counts its repeats, and is cleared once, before the next begins."""
    up: Incident | None = None
    for one in told:
        if one.kind == "notice":
            assert one.incident is None
            continue
        assert one.incident is not None
        if up is None:
            assert one.kind == "raised"
            assert (one.incident.seq, one.incident.repeat) == (one.seq, 0)
        else:
            assert one.incident == (up._replace(repeat=up.repeat + 1) if one.kind == "raised" else up)
        up = None if one.kind == "cleared" else one.incident


# --- of streams --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 2.0])
def test_a_held_step_is_one_incident_however_often_it_is_repeated(size: float) -> None:
    streams = transitions_of(Kind(2, size, STREAMS, 2500, 0), "hold", seed=5)
    for told in streams:
        check_protocol(told)
    counts = [len(incidents(told)) for told in streams]
    assert len(counts) > STREAMS - 3
    assert min(counts) == 1
    assert sum(counts) <= len(counts) + 1
    assert sum(len(raised(told)) for told in streams) > 2 * len(counts)
    assert sum(one.reason == "recovered" for told in streams for one in told) <= 1


@pytest.mark.parametrize(("on_alarm", "stay"), [("rebase", 100), ("hold", 100), ("hold", 600)])
@pytest.mark.parametrize("size", [1.0, 2.0])
def test_the_end_of_a_visit_is_found_and_pages_nobody(on_alarm: str, stay: int, size: float) -> None:
    end = BEFORE + stay
    streams = transitions_of(Kind(2, size, STREAMS, stay, 1000), on_alarm, seed=6)
    found = [told for told in streams if any(one.seq <= end for one in raised(told))]
    for told in found:
        check_protocol(told)
    back = [next((one.seq for one in told if one.reason == "recovered"), 0) for told in found]
    assert sum(end < seq < end + 300 for seq in back) >= 0.75 * len(found) > 12
    assert sum(0 < seq <= end for seq in back) <= 1
    new = [one for told in found for one in raised(told) if one.incident == Incident(one.seq, SECOND * (one.seq - 1))]
    assert sum(one.seq > end for one in new) <= (0.1 if stay == 100 else 0.25) * len(found)


def test_a_held_step_is_no_second_incident_once_bags_are_renewed() -> None:
    """The bag of means remembers 12,500 samples: with those of the old regime three of four streams paged again."""
    y = np.random.default_rng(14).normal(size=(10_000, 12, 1))
    y[2000:] += 1.0
    bank = RankBank(1, arl=1e4, dependence="none", on_alarm="hold", dead_time_ms=100 * SECOND, escalation=10.0)
    for told in walk(bank, y):
        check_protocol(told)
        later = [one for one in told if one.seq > 2000]
        assert sum(one.incident is not None and one.incident.seq == one.seq for one in raised(later)) == 1
        assert any(one.reason == "rearmed" for one in later)


def test_autocorrelated_streams_recover_later_and_rarely_without_reason() -> None:
    n, streams, end = 5000, 16, 3400
    noise = np.random.default_rng(8).normal(size=(n, streams, 1))
    y = np.zeros_like(noise)
    for i in range(1, n):
        y[i] = 0.7 * y[i - 1] + noise[i]
    y[3000:end] += 8.0
    found = walk(RankBank(1, arl=1e4, on_alarm="hold", dead_time_ms=100 * SECOND, escalation=10.0), y)
    up = [told for told in found if any(3000 < one.seq <= end for one in raised(told))]
    assert len(up) >= 12
    for told in found:
        check_protocol(told)
    back = [next((one.seq for one in told if one.reason == "recovered" and one.seq > 3000), 0) for told in up]
    assert sum(seq > end for seq in back) >= 0.6 * len(up)
    assert sum(0 < seq <= end for seq in back) <= 1


def test_another_change_begins_another_incident() -> None:
    y = np.random.default_rng(9).normal(size=(3500, STREAMS, 2))
    y[1500:, :, 0] += 2.0
    y[2500:, :, 1] += 2.0
    found = walk(RankBank(2, arl=1e4, dependence="none", on_alarm="hold", dead_time_ms=50 * SECOND), y)
    seen = 0
    for told in found:
        check_protocol(told)
        over = next((i for i, one in enumerate(told) if one.reason == "superseded" and one.seq > 2500), None)
        if over is not None:
            assert (told[over + 1].kind, told[over + 1].row) == ("raised", told[over].row)
            seen += told[over + 1].features[0][0] == "f1" and told[over].seq < 2600
    assert seen >= 0.8 * STREAMS


def test_a_level_that_comes_and_goes_is_bounded_by_the_escalation() -> None:
    y = np.random.default_rng(10).normal(size=(9000, 8, 1))
    y[1000:] += 3.0 * (np.arange(8000) // 150 % 2)[:, None, None]
    for on_alarm in ("rebase", "hold"):
        bank = RankBank(1, arl=1e4, dependence="none", on_alarm=on_alarm, escalation=10.0)
        for told in walk(bank, y):
            check_protocol(told)
            assert sum(one.kind == "cleared" for one in told) <= len(raised(told)) <= 27  # log10(1e30 / 2e4) + 1


def test_nothing_recovers_once_the_new_regime_is_armed() -> None:
    """Rebased, with a dead time that outlasts the warm-up; the old regime comes back in what is left of it."""
    y = np.random.default_rng(13).normal(size=(2200, STREAMS, 2))
    y[1000:1400, :, 0] *= 3.0
    found = walk(RankBank(2, arl=1e4, dependence="none", dead_time_ms=600 * SECOND), y)
    for told in found:
        check_protocol(told)
    ends = [(told[1].reason, told[1].seq - told[0].seq) for told in found if 1000 < told[0].seq < 1150]
    assert len(ends) > STREAMS - 3
    assert ends.count(("rearmed", 600)) >= 0.9 * len(ends)
    assert all(length < 200 for reason, length in ends if reason == "recovered")


def test_what_recovers_is_the_same_however_polls_cut_it() -> None:
    y = np.random.default_rng(11).normal(size=(2200, 2))
    y[900:1000, 0] += 2.0
    y[1500:1900, 1] *= 3.0
    times = SECOND * np.arange(len(y))
    for on_alarm in ("rebase", "hold"):
        answers = []
        for cuts in ([], [905, 950, 1001, 1031, 1032, 1520, 1950], range(880, 1200)):
            bank = RankBank(2, arl=1e4, dependence="none", on_alarm=on_alarm, dead_time_ms=40 * SECOND)
            slot = bank.allocate(b"key")
            told = []
            for first, last in pairwise([0, *cuts, len(y)]):
                part = slice(first, last)
                scores = bank.update(np.full(last - first, slot), None, y[part], times[part])
                told += [(first + one.row, one.kind, one.reason, one.seq, one.incident) for one in scores.transitions]
            answers.append((told, bank.snapshot(slot)))
        assert answers[0] == answers[1] == answers[2]
        assert "recovered" in [reason for _, _, reason, _, _ in answers[0][0]]


# --- of pairs and of a frozen reference --------------------------------------------------------------------------

BANKS: dict[str, Callable[[], Any]] = {
    "pairs, rebase": lambda: PairBank(2, arl=1e4, escalation=10.0),
    "pairs, hold": lambda: PairBank(2, arl=1e4, escalation=10.0, on_alarm="hold", dead_time_ms=100 * SECOND),
    "reference": lambda: ReferenceBank(2, samples=500, arl=1e4, escalation=10.0, dead_time_ms=100 * SECOND),
}


@pytest.mark.parametrize("name", BANKS)
@pytest.mark.parametrize("size", [1.0, 2.0])
def test_a_difference_that_lasts_is_one_incident_and_its_end_is_found(name: str, size: float) -> None:
    y = np.random.default_rng(12).normal(size=(3600, STREAMS, 2))
    y[1000:2800, :, 0] += size
    found = walk(BANKS[name](), y, paired=name.startswith("pairs"))
    recovered = 0
    for told in found:
        check_protocol(told)
        assert len(raised(told)) >= 2
        recovered += told[-1].reason == "recovered" and told[-1].seq > 2800
    assert sum(len(incidents(told)) for told in found) <= STREAMS + 2
    assert sum(one.kind == "cleared" and one.seq <= 2800 for told in found for one in told) <= 2
    assert recovered >= 0.9 * STREAMS


@pytest.mark.parametrize("on_alarm", ["rebase", "hold"])
@pytest.mark.parametrize("size", [0.2, 0.3])
def test_a_slight_difference_of_pairs_is_one_incident_too(on_alarm: str, size: float) -> None:
    """In 20,000 pairs every stream had several, while a recovery was tested against one mean payoff for all sizes."""
    y = np.random.default_rng(15).normal(size=(13_000, 10, 2))
    y[1000:9000, :, 0] += size
    dead_time = 100 * SECOND if on_alarm == "hold" else 0
    found = walk(PairBank(2, arl=1e4, escalation=10.0, on_alarm=on_alarm, dead_time_ms=dead_time), y, paired=True)
    for told in found:
        check_protocol(told)
    assert sum(len(incidents(told)) == 1 for told in found) >= 8
    ended = [told[-1] for told in found if told[-1].kind == "cleared" and told[-1].seq > 9000]
    assert len(ended) >= 9


def test_either_of_two_correlated_features_may_lead_a_repeat() -> None:
    y = np.random.default_rng(16).normal(size=(5000, 10, 2))
    y[1000:, :, 1] = 0.6 * y[1000:, :, 0] + 0.8 * y[1000:, :, 1]
    found = walk(PairBank(2, arl=1e4, escalation=10.0), y, paired=True)
    assert sum(len(raised(told)) for told in found) >= 40
    assert sum(len(incidents(told)) for told in found) <= 12
