"""What every model promises (`contract.Model`), on every model of `models.MODELS`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import DIMS, MODELS, ModelCase
from numpy.typing import NDArray

from kstream_worker.models.contract import Model

SEED = 7

Rows = tuple[NDArray[np.float64] | None, NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture(params=list(MODELS))
def case(request: pytest.FixtureRequest) -> ModelCase:
    return MODELS[request.param]


def stream(case: ModelCase, seed: int, n: int | None = None) -> Rows:
    """Samples of one key with ties, a jump, two gaps, and where the model takes them holes."""
    n = n or case.length
    rng = np.random.default_rng(seed)
    x = None if case.x_dims is None else np.round(rng.normal(size=(n, case.x_dims)), 2)
    y = np.round(rng.normal(size=(n, DIMS)), 2)
    y[n * 3 // 5 :] += 4.0
    if case.missing:
        y[rng.random(n) < 0.3, 0] = np.nan
    times = np.arange(n, dtype=np.int64) * 1000
    times[n // 3 :] += 60_000
    times[n // 2 :] -= 90_000
    return x, y, times


def part_of(rows: Rows, part: slice | NDArray[np.int64]) -> Rows:
    x, y, times = rows
    return None if x is None else x[part], y[part], times[part]


def feed(model: Model, slots: Sequence[int], rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    found = model.update(np.array(slots, dtype=np.int64), *rows)
    assert found.values.shape == (len(slots), len(model.columns))
    assert found.scores.shape == (len(slots), len(model.watched))
    known = np.isfinite(found.scores)
    assert not model.watched or (known.any(axis=1) == known.all(axis=1)).all()
    assert not np.isinf(found.values).any()
    return found.values, found.scores


def run(model: Model, slot: int, rows: Rows, cuts: Sequence[int] = ()) -> tuple[bytes, bytes]:
    n = len(rows[1])
    parts = [feed(model, [slot] * (b - a), part_of(rows, slice(a, b))) for a, b in pairwise([0, *cuts, n])]
    values, scores = zip(*parts, strict=True)
    return np.concatenate(values).tobytes(), np.concatenate(scores).tobytes()


Expected = tuple[tuple[bytes, bytes], bytes]


@pytest.fixture
def expected(case: ModelCase) -> Expected:
    model = case.make(SEED)
    slot = model.allocate(b"key")
    return run(model, slot, stream(case, 1)), model.snapshot(slot)


def test_what_is_published_and_watched_is_constant_and_named_once(case: ModelCase) -> None:
    model = case.make(SEED)
    slot = model.allocate(b"key")
    before = model.columns, model.watched, model.bytes_per_key, model.fingerprint
    values, scores = feed(model, [slot] * case.length, stream(case, 1))
    assert (model.columns, model.watched, model.bytes_per_key, model.fingerprint) == before
    names = [column.name for column in model.columns]
    assert len(set(names)) == len(names)
    assert all(names)
    assert len(set(model.watched)) == len(model.watched) <= 8
    assert np.isfinite(values).any()
    assert not model.watched or np.isfinite(scores).any()
    for column, numbers in zip(model.columns, values.T, strict=True):
        known = numbers[np.isfinite(numbers)]
        assert not column.texts or set(known.tolist()) <= set(range(len(column.texts)))
    assert case.make(SEED).fingerprint == model.fingerprint != case.other().fingerprint


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(0, 150), max_size=12))
def test_cuts_change_nothing(case: ModelCase, expected: Expected, cuts: set[int]) -> None:
    model = case.make(SEED)
    slot = model.allocate(b"key")
    assert run(model, slot, stream(case, 1), sorted(cut for cut in cuts if cut <= case.length)) == expected[0]
    assert model.snapshot(slot) == expected[1]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.integers(0, 2**32 - 1), batch=st.integers(1, 60))
def test_other_keys_change_nothing(case: ModelCase, expected: Expected, order: int, batch: int) -> None:
    model = case.make(SEED)
    before = model.allocate(b"first")
    slots = np.array([model.allocate(b"key"), before, model.allocate(b"third")])
    streams = [stream(case, 1), stream(case, 100, 40), stream(case, 101, 40)]
    owner = np.random.default_rng(order).permutation(np.repeat(np.arange(3), [len(rows[1]) for rows in streams]))
    x = None if case.x_dims is None else np.empty((len(owner), case.x_dims))
    y, times = np.empty((len(owner), DIMS)), np.empty(len(owner), dtype=np.int64)
    for key, rows in enumerate(streams):
        if x is not None and rows[0] is not None:
            x[owner == key] = rows[0]
        y[owner == key], times[owner == key] = rows[1:]
    found = [
        feed(model, slots[owner[at : at + batch]].tolist(), part_of((x, y, times), slice(at, at + batch)))
        for at in range(0, len(owner), batch)
    ]
    values, scores = (np.concatenate(column)[owner == 0] for column in zip(*found, strict=True))
    assert (values.tobytes(), scores.tobytes()) == expected[0]
    assert model.snapshot(int(slots[0])) == expected[1]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.34, 0.5, 0.61, 0.9])
def test_a_snapshot_continues_in_a_fresh_model(case: ModelCase, expected: Expected, share: float) -> None:
    at = round(share * case.length)
    first, second = case.make(SEED), case.make(SEED)
    slot, rows = first.allocate(b"key"), stream(case, 1)
    head = feed(first, [slot] * at, part_of(rows, slice(0, at)))
    saved = first.snapshot(slot)
    second.allocate(b"something else")
    place = second.allocate(b"key")
    second.restore(place, saved)
    assert second.snapshot(place) == saved
    assert second.drivers(place) == first.drivers(slot)
    tail = feed(second, [place] * (case.length - at), part_of(rows, slice(at, None)))
    got = [np.concatenate(pair).tobytes() for pair in zip(head, tail, strict=True)]
    assert tuple(got) == expected[0]
    assert second.snapshot(place) == expected[1]


def test_snapshots_that_do_not_fit_are_refused_with_nothing_changed(case: ModelCase) -> None:
    model, other = case.make(SEED), case.other()
    slot, foreign = model.allocate(b"key"), other.allocate(b"key")
    run(model, slot, stream(case, 1))
    saved = model.snapshot(slot)
    flipped = bytearray(saved)
    flipped[len(saved) // 2] ^= 1
    for snapshot in (bytes(flipped), saved[:-1], b"", other.snapshot(foreign)):
        with pytest.raises(ValueError, match="snapshot"):
            model.restore(slot, snapshot)
        assert model.snapshot(slot) == saved


def test_update_leaves_its_input_alone(case: ModelCase) -> None:
    model = case.make(SEED)
    rows = stream(case, 1)
    slots = np.full(case.length, model.allocate(b"key"), dtype=np.int64)
    given_ = [column for column in (*rows, slots) if column is not None]
    copies: list[NDArray[Any]] = [column.copy() for column in given_]
    for column in given_:
        column.flags.writeable = False
    model.update(slots, *rows)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(copies, given_, strict=True))


def test_asking_for_the_drivers_changes_nothing(case: ModelCase) -> None:
    model = case.make(SEED)
    slot, rows = model.allocate(b"key"), stream(case, 1)
    for at in range(0, case.length, 10):
        feed(model, [slot] * len(rows[1][at : at + 10]), part_of(rows, slice(at, at + 10)))
        before = model.snapshot(slot)
        named = model.drivers(slot)
        assert model.snapshot(slot) == before
        weights = [weight for _, weight in named]
        assert len(named) <= 8
        assert weights == sorted(weights, reverse=True)
        assert not named or abs(sum(weights) - 1.0) < 1e-9
        assert all(weight >= 0.0 for weight in weights)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_with_nothing_changed(case: ModelCase, bad: float) -> None:
    model = case.make(SEED)
    slot, rows = model.allocate(b"key"), stream(case, 1)
    half = case.length // 2
    feed(model, [slot] * half, part_of(rows, slice(0, half)))
    before = model.snapshot(slot)
    later = part_of(rows, slice(half, half + 10))
    sides = [later[0], None if case.missing and np.isnan(bad) else later[1]]
    for side in sides:
        if side is not None:
            kept, side[5, 1] = side[5, 1], bad
            with pytest.raises(ValueError, match="finite"):
                feed(model, [slot] * 10, later)
            side[5, 1] = kept
            assert model.snapshot(slot) == before


def test_shapes_and_slots_that_do_not_fit_are_refused_with_nothing_changed(case: ModelCase) -> None:
    model = case.make(SEED)
    slot, (x, y, times) = model.allocate(b"key"), stream(case, 1, 4)
    before = model.snapshot(slot)
    for slots, rows in (
        ([slot] * 3, (x, y, times)),
        ([slot, slot, slot, slot + 1], (x, y, times)),
        ([slot, slot, slot, -1], (x, y, times)),
        ([slot] * 4, (x, y[:, :1], times)),
        ([slot] * 4, (x, y, times[:3])),
        *(() if x is None else [([slot] * 4, (None, y, times)), ([slot] * 4, (x[:, 1:], y, times))]),
    ):
        with pytest.raises(ValueError, match=r"slots|times|x|y"):
            model.update(np.array(slots, dtype=np.int64), *rows)
        assert model.snapshot(slot) == before


def test_a_freed_slot_starts_afresh(case: ModelCase, expected: Expected) -> None:
    model = case.make(SEED)
    used = model.allocate(b"old key")
    run(model, used, stream(case, 55))
    model.free(used)
    with pytest.raises(ValueError, match="not allocated"):
        model.snapshot(used)
    slot = model.allocate(b"key")
    assert slot == used
    assert run(model, slot, stream(case, 1)) == expected[0]
    assert model.snapshot(slot) == expected[1]


def test_memory_is_bounded_and_growth_keeps_bits(case: ModelCase, expected: Expected) -> None:
    model = case.make(SEED)
    slot, rows, half = model.allocate(b"key"), stream(case, 1), case.length // 2
    stated = model.bytes_per_key
    assert len(model.snapshot(slot)) <= stated + 400
    head = feed(model, [slot] * half, part_of(rows, slice(0, half)))
    keys = [model.allocate(b"%d" % i) for i in range(100)]
    tail = feed(model, [slot] * (case.length - half), part_of(rows, slice(half, None)))
    assert tuple(np.concatenate(pair).tobytes() for pair in zip(head, tail, strict=True)) == expected[0]
    assert len(model.snapshot(slot)) <= stated + 400
    assert len({slot, *keys}) == 101
    assert 101 * stated <= model.nbytes <= 2 * 101 * stated


def test_an_empty_batch_changes_nothing(case: ModelCase) -> None:
    model = case.make(SEED)
    slot = model.allocate(b"key")
    before = model.snapshot(slot)
    feed(model, [], part_of(stream(case, 1), slice(0, 0)))
    assert model.snapshot(slot) == before
