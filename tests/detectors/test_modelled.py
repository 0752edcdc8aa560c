"""Any model with a detector of its scores: numbers and times of samples, drivers, guarantee, what is no alarm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kstream_worker.detectors.modelled import ModelBank, turns
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.tally import Tally
from kstream_worker.models.bank import SlotArrays, SlotBank
from kstream_worker.models.contract import Column, Estimates, Features, Shape
from kstream_worker.records import FloatMatrix, IntColumn, Scores

NAMES = ("a", "b")
SHAPE = Shape((), NAMES, 0)


class Distance(SlotBank):
    """Its score is the sample's first feature, given once so many samples are there and where the second is not 9."""

    columns = (Column("sum"),)
    watched: tuple[str, ...] = ("first",)

    def __init__(self, held_back: int = 30, settings: str = "distance") -> None:
        super().__init__(SlotArrays("distance", settings, 0, floats=2, ints=2))
        self._held_back = held_back

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        answer = Estimates(np.full((len(y), 1), math.nan), np.full((len(y), len(self.watched)), math.nan))
        for i, slot in enumerate(slots.tolist()):
            if self.slots.ints[slot, 1] >= self._held_back:
                answer.values[i] = y[i].sum()
                if self.watched and y[i, 1] != 9.0:
                    answer.scores[i] = y[i, 0]
            self.slots.ints[slot, 1] += 1
            self.slots.floats[slot] = y[i]
        return answer

    def drivers(self, slot: int) -> Features:
        """Names the sample that it saw last, so that a test can tell which that was."""
        return ((f"{self.slots.floats[slot, 0]:.6f}", 1.0),)


class Silent(Distance):
    watched = ()


def bank_of(model: Distance | None = None, **options: Any) -> ModelBank:
    options = {"arl": 1e4, "dependence": "none", "alternative": "greater", **options}
    return ModelBank(model or Distance(), RankBank(1, feature_names=("first",), **options), SHAPE)


def samples(n: int, seed: int = 1) -> NDArray[np.float64]:
    y = np.random.default_rng(seed).exponential(size=(n, 2))
    y[:, 1] = 0.0
    return y


def feed(bank: ModelBank, slot: int, y: NDArray[np.float64], first: int = 0) -> Scores:
    n = len(y)
    return bank.update(np.full(n, slot, dtype=np.int64), None, y, 1000 * np.arange(first, first + n, dtype=np.int64))


def test_numbers_and_times_in_alarms_are_those_of_all_samples_of_the_key() -> None:
    y = samples(1500)
    y[50::3, 1] = 9.0  # a third has no score
    y[1000:, 0] += 8.0
    bank = bank_of()
    found = feed(bank, bank.allocate(b"key"), y)
    assert found.seq.tolist() == list(range(1, 1501))
    raised = found.transitions[0]
    assert (raised.kind, raised.reason, raised.direction) == ("raised", "first", "up")
    assert raised.seq == raised.row + 1
    assert 1001 <= raised.change_seq <= 1003
    assert raised.change_time == 1000 * (raised.change_seq - 1)
    assert 1001 < raised.seq < 1030
    unscored = np.flatnonzero(y[:, 1] == 9.0)
    quiet = unscored[(unscored > 400) & (unscored < 1000)]
    assert found.evidence[quiet].tolist() == found.evidence[quiet - 1].tolist()


def test_it_warms_up_until_so_many_samples_had_scores() -> None:
    y = samples(400)
    bank = bank_of(warmup=100)
    states = feed(bank, bank.allocate(b"key"), y).state
    assert states.tolist() == [0] * 130 + [1] * 270


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 120), max_size=6))
def test_drivers_are_those_of_the_sample_that_crossed(cuts: list[int]) -> None:
    y = samples(500)
    y[330:, 0] += 8.0 + np.arange(170)
    bank = bank_of()
    slot = bank.allocate(b"key")
    at, crossed = 0, None
    for size in [*cuts, 500]:
        part = y[at : at + size]
        for transition in feed(bank, slot, part, at).transitions:
            if crossed is None and transition.kind == "raised":
                crossed = at + transition.row
                assert transition.features == ((f"{y[crossed, 0]:.6f}", 1.0),)
        at += len(part)
    assert crossed is not None


@pytest.mark.parametrize("keys", [1, 2, 40])
def test_drivers_do_not_depend_on_how_many_keys_share_a_batch(keys: int) -> None:
    bank = bank_of(warmup=100)
    slots = np.array([bank.allocate(b"%d" % key) for key in range(keys)])
    n = 180
    y = np.stack([samples(n, seed=key) for key in range(keys)], axis=1)
    y[150:, :, 0] += 8.0 + np.arange(n - 150)[:, None]
    rows = y.reshape(-1, 2)
    times = 1000 * np.repeat(np.arange(n, dtype=np.int64), keys)
    found = bank.update(np.tile(slots, n), None, rows, times).transitions
    assert [transition.row for transition in found] == sorted(transition.row for transition in found)
    raised = [transition for transition in found if transition.kind == "raised"]
    assert {transition.slot for transition in raised} == set(slots.tolist())
    for transition in raised:
        assert transition.features == ((f"{rows[transition.row, 0]:.6f}", 1.0),)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=40))
def test_turns_take_each_row_once_and_each_key_in_order(owners: list[int]) -> None:
    slots = np.array(owners, dtype=np.int64)
    taken = [rows.tolist() for rows in turns(slots)]
    assert sorted(row for rows in taken for row in rows) == list(range(len(owners)))
    for rows in taken:
        assert rows == sorted(rows)
        assert len({owners[row] for row in rows}) == len(rows)
    for owner in set(owners):
        own = [row for rows in taken for row in rows if owners[row] == owner]
        assert own == sorted(own)
    assert len(taken) == max((owners.count(owner) for owner in set(owners)), default=0)


def test_a_model_that_fits_better_and_better_raises_no_alarm() -> None:
    n = 6000
    scores = samples(n) * (1.0 + 3.0 * np.exp(-np.arange(n) / 1500.0))[:, None]
    alarms = {}
    for alternative in ("greater", "two-sided"):
        bank = bank_of(alternative=alternative)
        alarms[alternative] = len(feed(bank, bank.allocate(b"key"), scores).transitions)
    assert alarms["greater"] == 0
    assert alarms["two-sided"] > 0


@pytest.mark.parametrize(
    ("options", "level", "words"),
    [
        ({"dependence": "none"}, "approximate", "goes on learning: the mean number of samples with scores"),
        ({"dependence": "whiten"}, "approximate", "innovations of autoregressions"),
    ],
)
def test_no_alarm_is_called_exact(options: dict[str, str], level: str, words: str) -> None:
    y = samples(1300)
    y[1200:, 0] += 9.0
    bank = bank_of(**options)
    slot = bank.allocate(b"key")
    raised = feed(bank, slot, y).transitions[0]
    assert (raised.guarantee, raised.kind) == (level, "raised")
    assert words in raised.guarantee_reason
    owed = bank.forget(slot)
    assert owed is not None
    assert owed.guarantee == level


def test_a_model_that_watches_nothing_raises_no_alarm() -> None:
    model = Silent()
    bank = ModelBank(model, Tally(), SHAPE)
    slot = bank.allocate(b"key")
    y = samples(200)
    y[100:] += 1e6
    found = feed(bank, slot, y)
    assert (found.threshold == math.inf).all()
    assert (found.transitions, bank.raised(slot), bank.forget(slot)) == ([], False, None)
    assert found.seq.tolist() == list(range(1, 201))
    assert found.state.tolist() == [0] * 30 + [1] * 170
    assert not found.evidence.any()


def test_a_snapshot_of_another_model_changes_neither_part() -> None:
    bank, other = bank_of(), bank_of(Distance(settings="another"))
    slot, foreign = bank.allocate(b"key"), other.allocate(b"key")
    feed(bank, slot, samples(300))
    feed(other, foreign, samples(100))
    before = bank.snapshot(slot)
    with pytest.raises(ValueError, match="configuration"):
        bank.restore(slot, other.snapshot(foreign))
    assert bank.snapshot(slot) == before


def test_missing_values_reach_only_a_model_that_takes_them() -> None:
    y = samples(3)
    y[1, 0] = math.nan
    strict = bank_of()
    slot = strict.allocate(b"key")
    with pytest.raises(ValueError, match="finite"):
        feed(strict, slot, y)
    lenient = ModelBank(Silent(0), Tally(), SHAPE, missing=True)
    found = feed(lenient, lenient.allocate(b"key"), y)
    assert found.estimates is not None
    assert np.isnan(found.estimates[:, 0]).tolist() == [False, True, False]
    y[1, 0] = math.inf
    with pytest.raises(ValueError, match="finite"):
        feed(lenient, 0, y)


def test_what_does_not_fit_together_is_refused_when_it_is_built() -> None:
    with pytest.raises(ValueError, match="watches"):
        ModelBank(Distance(), Tally(), SHAPE)
    with pytest.raises(ValueError, match="watches"):
        ModelBank(Silent(), RankBank(1), SHAPE)
    twice = Distance()
    twice.columns = (Column("sum"), Column("sum"))  # type: ignore[assignment]
    with pytest.raises(ValueError, match="twice"):
        bank_of(twice)
