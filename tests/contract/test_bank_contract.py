"""What every bank promises (`ports.Bank`), on every bank of `banks.BANKS`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgpack
import numpy as np
import pytest
from banks import BANKS, DIMS, Case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kstream_worker.ports import Bank
from kstream_worker.records import Scores

LENGTH = 150
CHANGE = 90
SEED = 7
COLUMNS = ("state", "seq", "log_ratio", "divergence", "evidence", "threshold")

Stream = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture(params=list(BANKS))
def case(request: pytest.FixtureRequest) -> Case:
    return BANKS[request.param]


def stream(seed: int, n: int = LENGTH) -> Stream:
    """Samples of one key whose live side jumps at `CHANGE`, with ties and a constant feature's worth of repeats."""
    rng = np.random.default_rng(seed)
    x, y = np.round(rng.normal(size=(2, n, DIMS)), 2)
    y[CHANGE:] += 4.0
    return x, y, np.arange(n, dtype=np.int64) * 1000


def feed(case: Case, bank: Bank, slots: Sequence[int], rows: Stream) -> Scores:
    x, y, times = rows
    return bank.update(np.array(slots, dtype=np.int64), x if case.paired else None, y, times)


def run(case: Case, bank: Bank, slot: int, rows: Stream, cuts: Sequence[int] = ()) -> list[Any]:
    """Everything the bank says about one key, whatever the cuts, with rows and slots made comparable."""
    edges = [0, *cuts, len(rows[0])]
    answers = []
    for start, stop in pairwise(edges):
        part = tuple(column[start:stop] for column in rows)
        answers.append((start, feed(case, bank, [slot] * (stop - start), part)))
    return gather(answers)


def gather(answers: Sequence[tuple[int, Scores]]) -> list[Any]:
    columns = [np.concatenate([getattr(a, name) for _, a in answers]).tobytes() for name in COLUMNS]
    transitions = [
        repr((start + t.row, *(getattr(t, f) for f in t.__slots__ if f not in ("row", "slot"))))
        for start, a in answers
        for t in a.transitions
    ]
    said = b"".join(a.estimates.tobytes() for _, a in answers if a.estimates is not None)
    return [*columns, said, transitions, sum(a.clipped for _, a in answers)]


def state_of(bank: Bank, slot: int) -> bytes:
    return bank.snapshot(slot)


@pytest.fixture(params=[1])
def expected(case: Case, request: pytest.FixtureRequest) -> tuple[list[Any], bytes]:
    bank = case.make(SEED)
    slot = bank.allocate(b"key")
    return run(case, bank, slot, stream(request.param)), state_of(bank, slot)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(0, LENGTH), max_size=12))
def test_cuts_change_nothing(case: Case, expected: tuple[list[Any], bytes], cuts: set[int]) -> None:
    bank = case.make(SEED)
    slot = bank.allocate(b"key")
    assert run(case, bank, slot, stream(1), sorted(cuts)) == expected[0]
    assert state_of(bank, slot) == expected[1]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.integers(0, 2**32 - 1), batch=st.integers(1, 60), others=st.integers(1, 3))
def test_other_keys_change_nothing(
    case: Case, expected: tuple[list[Any], bytes], order: int, batch: int, others: int
) -> None:
    bank = case.make(SEED)
    before = bank.allocate(b"first")
    slots = [bank.allocate(b"key"), before, *(bank.allocate(b"other %d" % i) for i in range(others - 1))]
    streams = [stream(1), *(stream(100 + i, 40) for i in range(others))]
    owner = np.random.default_rng(order).permutation(np.repeat(np.arange(len(streams)), [len(s[0]) for s in streams]))
    mixed = [np.empty((len(owner), *column.shape[1:]), column.dtype) for column in streams[0]]
    for key, rows in enumerate(streams):
        for column, values in zip(mixed, rows, strict=True):
            column[owner == key] = values
    all_slots = np.array(slots)[owner]
    answers = []
    for start in range(0, len(owner), batch):
        part = slice(start, start + batch)
        scores = feed(case, bank, all_slots[part], (mixed[0][part], mixed[1][part], mixed[2][part]))
        own = np.flatnonzero(owner[part] == 0)
        position = int((owner[:start] == 0).sum())
        answers.append((position, only_rows(scores, own)))
    got = gather(answers)
    assert got[:-1] == expected[0][:-1]  # the count of clipped ratios is of the batch, not of the key
    assert state_of(bank, slots[0]) == expected[1]


def only_rows(scores: Scores, rows: NDArray[np.int64]) -> Scores:
    place = {int(row): i for i, row in enumerate(rows)}
    own = [replace(t, row=place[t.row]) for t in scores.transitions if t.row in place]
    estimates = None if scores.estimates is None else scores.estimates[rows]
    return Scores(*(getattr(scores, name)[rows] for name in COLUMNS), own, estimates=estimates)


@pytest.mark.parametrize("at", [0, 10, 20, 70, 91, 130])
def test_a_snapshot_continues_in_a_fresh_bank(case: Case, expected: tuple[list[Any], bytes], at: int) -> None:
    first, second = case.make(SEED), case.make(SEED)
    slot = first.allocate(b"key")
    rows = stream(1)
    head = feed(case, first, [slot] * at, tuple(c[:at] for c in rows))
    saved = first.snapshot(slot)
    second.allocate(b"something else")
    place = second.allocate(b"key")
    second.restore(place, saved)
    assert second.snapshot(place) == saved
    assert second.raised(place) == first.raised(slot)
    assert second.seq(place) == first.seq(slot) == at
    tail = feed(case, second, [place] * (LENGTH - at), tuple(c[at:] for c in rows))
    assert gather([(0, head), (at, tail)]) == expected[0]
    assert state_of(second, place) == expected[1]


def test_snapshots_that_do_not_fit_are_refused(case: Case) -> None:
    bank, other = case.make(SEED), case.other()
    slot, foreign = bank.allocate(b"key"), other.allocate(b"key")
    run(case, bank, slot, stream(1, 60))
    saved = bank.snapshot(slot)
    flipped = bytearray(saved)
    flipped[len(saved) // 2] ^= 1
    later = repacked(saved, version=99)
    strange = repacked(saved, kind="something")
    short = repacked(saved, floats=b"", watch=b"")
    for snapshot, message in (
        (bytes(flipped), "damaged"),
        (saved[:-1], "damaged"),
        (b"", "damaged"),
        (other.snapshot(foreign), "configuration|kind"),
        (later, "version"),
        (strange, "kind"),
        (short, "bytes|damaged"),
    ):
        with pytest.raises(ValueError, match=message):
            bank.restore(slot, snapshot)
    assert bank.snapshot(slot) == saved


def repacked(snapshot: bytes, **changes: Any) -> bytes:
    body = msgpack.packb(msgpack.unpackb(snapshot[:-4]) | changes)
    return bytes(body) + zlib.crc32(body).to_bytes(4, "little")


def test_update_leaves_its_input_alone(case: Case) -> None:
    bank = case.make(SEED)
    rows = stream(1)
    slots = np.full(LENGTH, bank.allocate(b"key"), dtype=np.int64)
    copies = [column.copy() for column in (*rows, slots)]
    for column in (*rows, slots):
        column.flags.writeable = False
    bank.update(slots, rows[0] if case.paired else None, rows[1], rows[2])
    assert all(np.array_equal(a, b) for a, b in zip(copies, (*rows, slots), strict=True))


def test_asking_changes_nothing(case: Case) -> None:
    bank = case.make(SEED)
    slot = bank.allocate(b"key")
    assert bank.seq(slot) == 0
    for at in range(0, LENGTH, 10):
        feed(case, bank, [slot] * 10, tuple(c[at : at + 10] for c in stream(1)))
        before = bank.snapshot(slot)
        assert bank.seq(slot) == at + 10
        owed = bank.forget(slot)
        assert (owed is not None) == bank.raised(slot)
        if owed is not None:
            assert (owed.row, owed.kind, owed.reason, owed.slot) == (-1, "cleared", "forgotten", slot)
        assert bank.snapshot(slot) == before


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_with_nothing_changed(case: Case, bad: float) -> None:
    bank = case.make(SEED)
    slot = bank.allocate(b"key")
    x, y, times = stream(1)
    feed(case, bank, [slot] * 60, (x[:60], y[:60], times[:60]))
    before = bank.snapshot(slot)
    for side in (x, y) if case.paired else (y,):
        kept, side[65, 1] = side[65, 1], bad
        with pytest.raises(ValueError, match="finite"):
            feed(case, bank, [slot] * 10, (x[60:70], y[60:70], times[60:70]))
        side[65, 1] = kept
        assert bank.snapshot(slot) == before


def test_shapes_and_slots_that_do_not_fit_are_refused_with_nothing_changed(case: Case) -> None:
    bank = case.make(SEED)
    slot = bank.allocate(b"key")
    before = bank.snapshot(slot)
    x, y, times = (column[:4] for column in stream(1))
    for slots, message in (([slot] * 3, "3"), ([slot] * 3 + [slot + 1], "allocated"), ([slot] * 3 + [-1], "allocated")):
        with pytest.raises(ValueError, match=message):
            feed(case, bank, slots, (x, y, times))
    with pytest.raises(ValueError, match="y"):
        feed(case, bank, [slot] * 4, (x, y[:, :1], times))
    if case.paired:
        with pytest.raises(ValueError, match="x"):
            bank.update(np.full(4, slot), None, y, times)
    assert bank.snapshot(slot) == before


def test_a_freed_slot_starts_afresh(case: Case, expected: tuple[list[Any], bytes]) -> None:
    bank = case.make(SEED)
    used = bank.allocate(b"old key")
    run(case, bank, used, stream(55))
    bank.free(used)
    with pytest.raises(ValueError, match="not allocated"):
        bank.snapshot(used)
    slot = bank.allocate(b"key")
    assert slot == used
    assert run(case, bank, slot, stream(1)) == expected[0]
    assert state_of(bank, slot) == expected[1]


def test_memory_is_bounded_and_growth_keeps_bits(case: Case, expected: tuple[list[Any], bytes]) -> None:
    bank = case.make(SEED)
    slot = bank.allocate(b"key")
    stated = bank.bytes_per_key
    assert len(bank.snapshot(slot)) <= stated + 600
    rows = stream(1)
    half = LENGTH // 2
    head = feed(case, bank, [slot] * half, tuple(c[:half] for c in rows))
    keys = [bank.allocate(b"%d" % i) for i in range(100)]
    tail = feed(case, bank, [slot] * (LENGTH - half), tuple(c[half:] for c in rows))
    assert gather([(0, head), (half, tail)]) == expected[0]
    assert bank.bytes_per_key == stated
    assert len({slot, *keys}) == 101
    assert 101 * stated <= bank.nbytes <= 2 * 101 * stated


def test_an_empty_batch_changes_nothing(case: Case) -> None:
    bank = case.make(SEED)
    slot = bank.allocate(b"key")
    before = bank.snapshot(slot)
    assert len(feed(case, bank, [], tuple(c[:0] for c in stream(1))).seq) == 0
    assert bank.snapshot(slot) == before
