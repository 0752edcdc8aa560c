"""Pairs out of one stream: held to a plain definition over all of a key's samples."""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.models.bank import SlotArrays, SlotBank
from kstream_worker.models.contract import Column, Estimates, Features
from kstream_worker.models.lagged import Lagged
from kstream_worker.records import FloatMatrix, IntColumn


class Echo(SlotBank):
    """Answers with its own pair, and counts pairs as its score."""

    columns = (Column("x"), Column("y"), Column("time"))
    watched = ("pairs",)

    def __init__(self) -> None:
        super().__init__(SlotArrays("echo", "", 0, floats=0, ints=2))

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        assert x is not None
        assert len(slots) > 0
        scores = np.empty((len(y), 1))
        for i, slot in enumerate(slots.tolist()):
            self.slots.ints[slot, 1] += 1
            scores[i] = self.slots.ints[slot, 1]
        return Estimates(np.column_stack((x, y, times)), scores)

    def drivers(self, slot: int) -> Features:
        return (("x", 1.0),)


MAX_GAP = 10
STEP = st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 5, 10, 11, 50, -1]))
STEPS = st.lists(STEP, max_size=60)
SOME = st.lists(STEP, min_size=1, max_size=60)


def predecessors(times: list[int], lag: int, max_gap: int | None) -> list[int | None]:
    """Of each sample of one key the one `lag` before it, unless a step in between is too long or backwards."""
    found: list[int | None] = []
    for i in range(len(times)):
        steps = [b - a for a, b in pairwise(times[max(0, i - lag) : i + 1])]
        whole = len(steps) == lag and all(0 <= step <= (math.inf if max_gap is None else max_gap) for step in steps)
        found.append(i - lag if whole else None)
    return found


@settings(deadline=None, max_examples=60)
@given(
    steps=STEPS,
    lag=st.integers(1, 4),
    max_gap=st.sampled_from([None, MAX_GAP]),
    cuts=st.sets(st.integers(0, 60), max_size=5),
)
def test_pairs_are_those_of_the_definition_whatever_the_cuts(
    steps: list[tuple[int, int]], lag: int, max_gap: int | None, cuts: set[int]
) -> None:
    model = Lagged(Echo(), 1, lag=lag, max_gap_ms=max_gap)
    slots_of = [model.allocate(b"%d" % key) for key in range(3)]
    owners = [key for key, _ in steps]
    clocks, times = [1000, 2000, 3000], []
    for key, step in steps:
        clocks[key] += step
        times.append(clocks[key])
    y = np.arange(1.0, len(steps) + 1.0)[:, None]
    slots = np.array([slots_of[key] for key in owners], dtype=np.int64)
    stamps = np.array(times, dtype=np.int64)
    edges = sorted({0, len(steps), *(cut for cut in cuts if cut < len(steps))})
    parts = [model.update(slots[a:b], None, y[a:b], stamps[a:b]) for a, b in pairwise(edges)]
    values = np.concatenate([part.values for part in parts]) if parts else np.empty((0, 3))
    scores = np.concatenate([part.scores for part in parts]) if parts else np.empty((0, 1))
    for key in range(3):
        own = [i for i, owner in enumerate(owners) if owner == key]
        count = 0
        for i, before in zip(own, predecessors([times[i] for i in own], lag, max_gap), strict=True):
            if before is None:
                assert np.isnan(values[i]).all()
                assert np.isnan(scores[i]).all()
            else:
                count += 1
                assert values[i].tolist() == [y[own[before], 0], y[i, 0], times[i]]
                assert scores[i, 0] == count


def test_a_gap_costs_the_next_samples_their_predecessors() -> None:
    model = Lagged(Echo(), 1, lag=2, max_gap_ms=1000)
    times = np.array([0, 1000, 2000, 3001, 4001, 5001, 5000, 5000, 5000], dtype=np.int64)
    y = np.arange(9.0)[:, None]
    found = model.update(np.full(9, model.allocate(b"key")), None, y, times).values
    assert [None if math.isnan(x) else x for x in found[:, 0]] == [None, None, 0.0, None, None, 3.0, None, None, 6.0]


def test_a_sample_with_missing_values_is_no_predecessor() -> None:
    model = Lagged(Echo(), 1, missing=True)
    y = np.array([[1.0], [math.nan], [3.0], [4.0]])
    found = model.update(np.full(4, model.allocate(b"key")), None, y, np.arange(4)).values
    assert found[:, 0].tolist()[1] == 1.0
    assert math.isnan(found[2, 0])
    assert found[3, 0] == 3.0


def test_slots_within_need_not_be_those_without() -> None:
    inner = Echo()
    taken = [inner.allocate(b"%d" % i) for i in range(3)]
    model = Lagged(inner, 1)
    first, second = model.allocate(b"a"), model.allocate(b"b")
    assert first not in (3, 4) or first == taken[-1] + 1
    y, times = np.array([[1.0], [2.0], [3.0], [4.0]]), np.arange(4, dtype=np.int64)
    found = model.update(np.array([first, second, first, second]), None, y, times)
    assert found.values[2:, :2].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert model.drivers(first) == (("x", 1.0),)


class Refusing(Echo):
    """Takes no pair whose y is 13, as another package's model might."""

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        if (y == 13.0).any():
            raise ArithmeticError("thirteen")
        return super().update(slots, x, y, times)


def test_a_batch_that_the_inner_model_does_not_take_is_not_held() -> None:
    model = Lagged(Refusing(), 1, lag=2)
    first, second = model.allocate(b"a"), model.allocate(b"b")
    slots = np.array([first, second, first, second])
    y, times = np.array([[1.0], [2.0], [3.0], [4.0]]), np.arange(4, dtype=np.int64)
    model.update(slots, None, y, times)
    before = [model.snapshot(slot) for slot in (first, second)]
    with pytest.raises(ArithmeticError, match="thirteen"):
        model.update(slots, None, np.array([[5.0], [6.0], [13.0], [8.0]]), times + 4)
    assert [model.snapshot(slot) for slot in (first, second)] == before
    found = model.update(slots, None, y + 4.0, times + 4).values
    assert found[:, :2].tolist() == [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]]


class Spoiling(Echo):
    """Writes into the pairs it is given before it is interrupted, as another package's model might."""

    columns = tuple(map(Column, ("x0", "x1", "y0", "y1", "time")))

    def __init__(self) -> None:
        super().__init__()
        self.refuses = False

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        assert x is not None
        if self.refuses:
            x[:] = -1.0
            raise KeyboardInterrupt
        return super().update(slots, x, y, times)


@settings(deadline=None, max_examples=80)
@given(
    known=SOME,
    refused=SOME,
    lag=st.integers(1, 5),
    missing=st.sets(st.integers(0, 119), max_size=6),
)
def test_a_batch_that_raised_leaves_every_key_as_it_was_in_any_order(
    known: list[tuple[int, int]], refused: list[tuple[int, int]], lag: int, missing: set[int]
) -> None:
    inner = Spoiling()
    model = Lagged(inner, 2, lag=lag, max_gap_ms=MAX_GAP, missing=True)
    keys = [model.allocate(b"%d" % key) for key in range(3)]
    steps = known + refused
    slots = np.array([keys[key] for key, _ in steps], dtype=np.int64)
    times = np.cumsum([step for _, step in steps], dtype=np.int64)
    y = np.arange(2.0 * len(steps)).reshape(-1, 2)
    y[sorted(i for i in missing if i < len(steps)), 1] = math.nan
    n = len(known)
    model.update(slots[:n], None, y[:n], times[:n])
    before = [model.snapshot(slot) for slot in keys]
    inner.refuses = True
    try:
        model.update(slots[n:], None, y[n:], times[n:])
    except KeyboardInterrupt:
        pass
    else:
        return  # no sample had a predecessor
    assert [model.snapshot(slot) for slot in keys] == before
    inner.refuses = False
    other = Lagged(Spoiling(), 2, lag=lag, max_gap_ms=MAX_GAP, missing=True)
    again = [other.allocate(b"%d" % key) for key in range(3)]
    for slot, state in zip(again, before, strict=True):
        other.restore(slot, state)
    found = model.update(slots[n:], None, y[n:], times[n:])
    assert np.array_equal(found.values, other.update(slots[n:], None, y[n:], times[n:]).values, equal_nan=True)


def test_to_be_able_to_undo_takes_room_for_the_batch_alone() -> None:
    model = Lagged(Echo(), 4, lag=1000)
    slots = np.array([model.allocate(b"%d" % key) for key in range(500)], dtype=np.int64)
    y, times = np.zeros((500, 4)), np.zeros(500, dtype=np.int64)
    model.update(slots, None, y, times)
    tracemalloc.start()
    model.update(slots, None, y, times)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000 < 500 * 1000 * 4 * 8  # the keys' rings: 16 MB


@pytest.mark.parametrize(("settings", "words"), [({"lag": 0}, "lag is 0"), ({"max_gap_ms": 0}, "max_gap_ms is 0")])
def test_settings_out_of_range_are_refused(settings: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Lagged(Echo(), 1, **settings)
    model = Lagged(Echo(), 1)
    one = np.zeros((1, 1))
    with pytest.raises(ValueError, match="x must be None"):
        model.update(np.array([model.allocate(b"key")]), one, one, np.zeros(1, dtype=np.int64))
