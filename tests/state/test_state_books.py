"""The books of a partition, held to models that are too simple to be wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kstream_worker.records import IntColumn
from kstream_worker.state.admission import Admission
from kstream_worker.state.clock import EventClock
from kstream_worker.state.dirty import DirtyKeys
from kstream_worker.state.format import Header
from kstream_worker.state.keys import KeyTable
from kstream_worker.state.ledger import MOST_DEATHS, MOST_TRIERS, Ledger, LedgerSettings
from kstream_worker.state.silence import SilentKeys

TTL_MS = 6400
TICK_MS = TTL_MS // 64


def column(*numbers: int) -> IntColumn:
    return np.array(numbers, dtype=np.int64)


# -- the clock --

times = st.lists(st.integers(0, 3 * TTL_MS), min_size=1, max_size=30)


def walked(clock: EventClock, event_times: list[int], cuts: list[int]) -> tuple[list[int], list[int]]:
    """Clocks and tick rows of all records, cut anywhere."""
    clocks: list[int] = []
    ticks: list[int] = []
    for first, last in pairwise([0, *cuts, len(event_times)]):
        part, rows = clock.advance(column(*event_times[first:last]), None)
        clocks += part.tolist()
        ticks += [first + row for row in rows]
    return clocks, ticks


@settings(deadline=None)
@given(times, st.data())
def test_the_clock_is_the_running_maximum_however_polls_cut(event_times: list[int], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(event_times)), max_size=4)))
    clocks, ticks = walked(EventClock(TTL_MS, 1000), event_times, cuts)
    assert clocks == [max(event_times[: i + 1]) for i in range(len(event_times))]
    assert ticks == [
        i for i, (before, now) in enumerate(pairwise(clocks), start=1) if now // TICK_MS > before // TICK_MS
    ]


def test_a_fast_clock_counts_as_little_ahead_only() -> None:
    clock = EventClock(TTL_MS, max_skew_ms=50)
    clocks, _ = clock.advance(column(1000, 10**12, 1010), column(1000, 1005, 1010))
    assert clocks.tolist() == [1000, 1055, 1055]
    clocks, _ = clock.advance(column(5000), column(-1))  # the bus gives no time to compare with
    assert clocks.tolist() == [5000]


def test_without_a_time_to_live_nobody_is_too_old() -> None:
    clock = EventClock(0, 1000)
    clock.advance(column(10**12), None)
    assert clock.oldest_alive_ms(clock.now_ms) == -1


def test_nothing_expires_before_its_time_and_all_within_a_tick_after_it() -> None:
    clock = EventClock(TTL_MS, 0)
    for now_ms in range(TTL_MS, 3 * TTL_MS, 37):
        oldest_ms = clock.oldest_alive_ms(now_ms)
        assert now_ms - TTL_MS - TICK_MS < oldest_ms <= now_ms - TTL_MS


# -- keys --

key_steps = st.lists(
    st.tuples(st.sampled_from("+-"), st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 9)), max_size=40
)


@settings(deadline=None)
@given(key_steps)
def test_the_table_of_keys_is_a_dictionary(steps: list[tuple[str, bytes, int]]) -> None:
    table, model = KeyTable(), {}
    free = iter(range(0, 4000, 97))  # slots far apart make it grow
    for what, key, number in steps:
        if what == "+" and key not in model:
            model[key] = (next(free), number)
            table.add(key, model[key][0], covered=number, seen_ms=number, stored=bool(number % 2))
        elif what == "-" and key in model:
            assert table.remove(key) == model.pop(key)[0]
    assert len(table) == len(model)
    assert set(table) == set(model)
    for key, (slot, number) in model.items():
        assert (table.slot(key), table.name(slot)) == (slot, key)
        assert (table.covered[slot], table.seen[slot], table.stored[slot]) == (number, number, bool(number % 2))
    for seen_ms in range(11):
        silent = sorted(key for key, (_, number) in model.items() if number < seen_ms and number <= 5)
        assert table.silent_since(seen_ms, offset=5) == silent
        between = {key: number for key, (_, number) in sorted(model.items()) if 2 <= number < seen_ms}
        assert list(table.seen_between(2, seen_ms).items()) == list(between.items())
        later = [number for _, number in model.values() if number >= seen_ms]
        assert table.oldest_seen(seen_ms) == min(later, default=np.iinfo(np.int64).max)


def test_slots_of_keys_are_found_together_or_not_at_all() -> None:
    table = KeyTable()
    table.add(b"a", 3)
    table.add(b"b", 1)
    slots = table.lookup([b"b", b"a", b"b"])
    assert slots is not None
    assert slots.tolist() == [1, 3, 1]
    assert table.lookup([b"b", b"c"]) is None


# -- silence --


def test_a_batch_is_cut_at_a_tick_only_where_a_key_can_fall_silent() -> None:
    table = KeyTable()
    silent = SilentKeys(table, limit_ms=800)  # ticks of 100
    for slot, (key, seen_ms) in enumerate([(b"gone", 50), (b"late", 700), (b"here", 1000)]):
        table.add(key, slot, seen_ms=seen_ms)
    assert silent.begin(1000)
    assert not silent.begin(5000)  # once
    assert silent.since == {b"gone": 50}
    clocks = column(1050, 1150, 1499, 1501, 1599, 1600)
    assert silent.ticks(1000, clocks) == [5]  # `late` at 1600 at the earliest, though four ticks begin before
    assert silent.tick(1600, speaking=b"here") == [b"late"]
    assert silent.ticks(1600, column(1700, 1799)) == []
    assert silent.ticks(1600, column(1700, 2000)) == [1]  # `here`, and who came at 1700 is not
    assert silent.ticks(1600, column(1700, 2650)) == [1]
    assert silent.tick(2650, speaking=b"here") == []
    assert silent.heard([b"new", b"late", b"here", b"late"]) == [(1, 700)]
    assert silent.since == {b"gone": 50}


def test_without_a_limit_nobody_is_silent() -> None:
    table = KeyTable()
    table.add(b"gone", 0, seen_ms=0)
    silent = SilentKeys(table, 0)
    assert not silent.begin(10**12)
    assert silent.ticks(10**12, column(2 * 10**12)) == []


# -- what is dirty --

dirty_steps = st.lists(
    st.one_of(
        st.tuples(st.just("touch"), st.integers(0, 90)),
        st.tuples(st.just("take"), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.integers(0, 90)),
        st.tuples(st.just("settle"), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(dirty_steps)
def test_dirty_keys_keep_the_offset_of_their_first_uncovered_record(steps: list[tuple[str, int]]) -> None:
    dirty = DirtyKeys()
    waiting: dict[int, int] = {}
    flight: dict[int, int] = {}
    for offset, (what, number) in enumerate(steps):
        if what == "touch":
            dirty.touch(column(number, number), column(offset, offset), offset, float(offset))
            waiting.setdefault(number, offset)
        elif what == "take" and len(waiting) > number:
            slot = sorted(waiting, key=waiting.__getitem__)[number]
            if slot not in flight:  # a slot is in flight once at a time
                dirty.take(slot)
                flight[slot] = waiting.pop(slot)
        elif what == "forget":
            dirty.forget(number)
            waiting.pop(number, None)
            flight.pop(number, None)
        elif what == "settle":
            dirty.settle(committed=bool(number))
            if not number:
                waiting |= flight
            flight = {}
        by_age = sorted(waiting, key=waiting.__getitem__)
        assert dirty.in_order(range(91)) == by_age
        assert dirty.first_offset() == (waiting[by_age[0]] if by_age else None)
        oldest = dirty.oldest()
        assert (None if oldest is None else (oldest[0], oldest[1].offset)) == (
            (by_age[0], waiting[by_age[0]]) if by_age else None
        )
        assert len(dirty) == len(waiting)
        assert all((slot in dirty) == (slot in waiting) for slot in range(91))


# -- admission --


def test_a_full_partition_is_closed_until_a_tick_finds_room() -> None:
    admission = Admission(2)
    assert admission.admits(5, 1, replaying=False)
    assert not admission.admits(6, 2, replaying=False)
    assert not admission.admits(7, 1, replaying=False)  # room, but no tick
    admission.tick(8, 2)  # a tick, but no room
    assert not admission.admits(8, 2, replaying=False)
    admission.tick(9, 1)
    assert admission.admits(9, 1, replaying=False)
    assert admission.closed_from(0) == ((6, 9),)


admission_steps = st.lists(st.tuples(st.sampled_from(["new", "tick", "gone"]), st.integers(0, 3)), max_size=40)


@settings(deadline=None)
@given(admission_steps, st.integers(0, 40))
def test_a_replay_decides_as_was_decided(steps: list[tuple[str, int]], start: int) -> None:
    """Whatever is remembered from an offset on decides each new key from there on, without a count."""
    admission, keys, decisions = Admission(2), 0, {}
    for offset, (what, _) in enumerate(steps):
        if what == "new":
            decisions[offset] = admission.admits(offset, keys, replaying=False)
            keys += decisions[offset]
        elif what == "tick":
            admission.tick(offset, keys)
        else:
            keys = max(keys - 1, 0)
    again = Admission(2)
    again.restore(admission.closed_from(start))
    for offset, decision in decisions.items():
        if offset >= start:
            assert again.admits(offset, 0, replaying=True) == decision
    pruned = admission.closed_from(start)
    admission.prune(start)
    assert admission.closed_from(0) == pruned


# -- the ledger --


def opened(offset: int = 10, **header: object) -> Ledger:
    ledger = Ledger(LedgerSettings(TTL_MS, 3, 1000))
    base = Header("t", "cluster", "topic", offset, offset, arls=((offset, 100.0),))
    ledger.open(replace(base, **header))  # type: ignore[arg-type]
    return ledger


def read(ledger: Ledger, key: bytes, offset: int, clock_ms: int = 0) -> None:
    """One record of a key."""
    slot = ledger.keys.slot(key)
    if slot is None:
        slot = 1 + 10 * offset
        ledger.keys.add(key, slot)
    ledger.clock.now_ms = clock_ms
    ledger.touch(column(slot), column(offset), column(clock_ms), 0.0)
    ledger.advance(offset + 1, 1)


def test_ticks_matter_where_a_key_can_expire_or_room_can_run_out() -> None:
    ledger = opened()
    read(ledger, b"a", 10, clock_ms=1000)
    assert not ledger.ticks_matter(np.array([1000, 1000 + TTL_MS]))
    assert ledger.ticks_matter(np.array([1000, 1000 + TTL_MS + ledger.clock.tick_ms]))  # `a`, or a key that comes now
    assert not ledger.ticks_matter(np.array([1000, 1001]))
    assert ledger.ticks_matter(np.array([1000, 1001, 1002]))  # four keys, and room for three
    read(ledger, b"b", 11, clock_ms=1000)
    read(ledger, b"c", 12, clock_ms=1000)
    assert not ledger.admission.admits(13, len(ledger.keys), replaying=False)
    assert ledger.ticks_matter(np.array([1001]))  # closed: the next tick may open


def test_a_replay_begins_at_the_first_record_that_no_snapshot_covers_with_the_clock_of_that_place() -> None:
    ledger = opened()
    for offset, key in enumerate([b"a", b"b", b"a"], start=10):
        read(ledger, key, offset, clock_ms=100 * offset)
    slot = ledger.keys.slot(b"a")
    assert slot is not None
    header = ledger.header_at(13, "x")
    assert (header.offset, header.replay_from, header.clock_ms, header.token) == (13, 10, -1, "x")
    ledger.take_dirty(slot)
    header = ledger.header_at(13, "y")
    assert (header.replay_from, header.clock_ms) == (11, 1000)
    ledger.settle(committed=False)
    assert ledger.header_at(13, "z").replay_from == 10
    assert ledger.span() == 3


def test_a_replay_covers_what_is_to_be_deleted() -> None:
    ledger = opened()
    read(ledger, b"a", 10)
    slot = ledger.keys.slot(b"a")
    assert slot is not None
    ledger.take_dirty(slot)
    ledger.settle(committed=True)
    read(ledger, b"b", 11)
    ledger.forget(b"b", 12)  # never written: nothing to delete
    ledger.forget(b"a", 12)
    ledger.advance(13, 1)
    ledger.advance(20, 7)
    assert ledger.header_at(20, "x").replay_from <= 12
    assert ledger.take_gone(5) == [(b"a", 12)]
    assert ledger.header_at(20, "x").replay_from == 20
    ledger.settle(committed=False)
    assert ledger.header_at(20, "x").replay_from <= 12
    assert ledger.take_gone(5) == [(b"a", 12)]
    ledger.settle(committed=True)
    assert ledger.header_at(20, "x").replay_from == 20


def test_a_key_that_returns_is_not_deleted_with_its_snapshot() -> None:
    ledger = opened()
    read(ledger, b"a", 10)
    first = ledger.keys.slot(b"a")
    assert first is not None
    ledger.take_dirty(first)
    ledger.settle(committed=True)
    ledger.forget(b"a", 11)
    read(ledger, b"a", 12)
    again = ledger.keys.slot(b"a")
    assert again is not None
    ledger.take_dirty(again)
    assert ledger.take_gone(5) == []


def test_progress_ends_the_count_of_attempts() -> None:
    ledger = opened(attempts=2)
    assert ledger.header_at(10, "x").attempts == 2
    assert ledger.header_at(11, "x").attempts == 0


def test_a_start_counts_only_once_its_replay_has_ended() -> None:
    ledger = Ledger(LedgerSettings(TTL_MS, 3, 1000))
    ledger.open(Header("t", "cluster", "topic", 20, 10, attempts=3, arls=((10, 100.0),)), uncounted=2)
    assert ledger.header_at(20, "x").attempts == 2
    ledger.advance(20, 10)
    assert ledger.header_at(20, "x").attempts == 3
    assert ledger.header_at(21, "x").attempts == 0


def test_run_lengths_and_rejected_records_are_kept_as_long_as_a_replay_needs_them() -> None:
    ledger = opened(20, replay_from=10, arls=((5, 1.5), (12, 2.5), (20, 3.5)), rejected=(9, 11, 15))
    assert [ledger.arl_at(offset) for offset in (3, 10, 12, 19, 20, 99)] == [1.5, 1.5, 2.5, 2.5, 3.5, 3.5]
    assert list(ledger.boundaries()) == [5, 12, 20]
    header = ledger.header_at(20, "x")
    assert (header.arls, header.rejected) == (((5, 1.5), (12, 2.5), (20, 3.5)), (11, 15))
    ledger.advance(14, 4)
    header = ledger.header_at(20, "x")
    assert (header.arls, header.rejected) == (((12, 2.5), (20, 3.5)), (15,))


@pytest.mark.parametrize("who", ["", "pod-0"])
def test_a_record_is_given_up_when_its_note_was_found_three_times(who: str) -> None:
    ledger = opened()
    for found in range(MOST_DEATHS):
        ledger.try_alone(10, who)
        assert (ledger.trial, ledger.deaths, ledger.rejected) == (10, found, set())
    ledger.try_alone(10, who)
    assert ledger.rejected == {10}
    ledger.try_alone(12, who)
    assert (ledger.trial, ledger.deaths) == (12, 0)


def test_notes_of_others_are_no_deaths_up_to_a_limit() -> None:
    ledger = opened()
    for number in range(MOST_TRIERS):
        ledger.try_alone(10, f"pod-{number}")
    assert ledger.deaths == 0
    assert ledger.header_at(0, "x").triers == tuple(f"pod-{number}" for number in range(MOST_TRIERS))
    ledger.try_alone(10, "pod-3")
    assert ledger.deaths == 1
    ledger.spare("pod-3")
    ledger.try_alone(10, "pod-3")
    assert ledger.deaths == 1
    ledger.try_alone(10, "pod-99")  # where names are never the same again
    assert ledger.deaths == 2


def test_a_ledger_that_knows_no_key_says_so() -> None:
    with pytest.raises(KeyError):
        opened().forget(b"unknown", 10)


ledger_steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from([b"a", b"b", b"c", b"d"])),
        st.tuples(st.just("forget"), st.sampled_from([b"a", b"b", b"c", b"d"])),
        st.tuples(st.just("snapshot"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.integers(0, 3)),
        st.tuples(st.just("settle"), st.booleans()),
    ),
    max_size=50,
)


@settings(max_examples=200, deadline=None)
@example(
    [
        ("read", b"b"),
        ("snapshot", 1),
        ("forget", b"b"),
        ("read", b"b"),
        ("settle", False),
        ("snapshot", 1),
        ("settle", True),
    ]
)
@given(ledger_steps)
def test_a_replay_from_what_is_stored_leads_to_what_is_there(steps: list[tuple[str, bytes | int]]) -> None:
    """After any steps: stored snapshots and the records from `replay_from` on give the keys as they are."""
    ledger = opened(0)
    happened: list[tuple[str, bytes]] = []  # by offset
    stored: dict[bytes, int] = {}
    flight: list[tuple[bytes, int | None]] = []
    committed_replay_from = 0
    for what, argument in steps:
        if what == "read":
            assert isinstance(argument, bytes)
            read(ledger, argument, len(happened), clock_ms=len(happened))
            happened.append((what, argument))
        elif what == "forget" and isinstance(argument, bytes) and argument in ledger.keys:
            ledger.forget(argument, len(happened))
            happened.append((what, argument))
            ledger.advance(len(happened), 1)
        elif what == "snapshot" and not flight and isinstance(argument, int):
            slots = ledger.dirty.in_order(ledger.keys.slot(key) or 0 for key in ledger.keys)[:argument]
            for key, _ in ledger.take_gone(2):
                flight.append((key, None))
            for slot in slots:
                flight.append((ledger.keys.name(slot), ledger.reached))
                ledger.take_dirty(slot)
            replay_from = ledger.header_at(len(happened), "x").replay_from
        elif what == "settle" and flight:
            ledger.settle(committed=bool(argument))
            if argument:
                for key, position in flight:  # in the order of the records: a snapshot may follow its key's deletion
                    stored.pop(key, None)
                    if position is not None:
                        stored[key] = position
                committed_replay_from = replay_from
            flight = []
    assert _restored(happened, stored, committed_replay_from) == _lived(happened)


def _lived(happened: list[tuple[str, bytes]]) -> dict[bytes, list[int]]:
    """Offsets of the records in each key's model."""
    models: dict[bytes, list[int]] = {}
    for offset, (what, key) in enumerate(happened):
        if what == "read":
            models.setdefault(key, []).append(offset)
        else:
            models.pop(key, None)
    return models


def _restored(happened: list[tuple[str, bytes]], stored: dict[bytes, int], replay_from: int) -> dict[bytes, list[int]]:
    models = {key: _lived(happened[:position])[key] for key, position in stored.items()}
    covered = dict(stored)
    for offset, (what, key) in enumerate(happened):
        if offset < replay_from or offset < covered.get(key, 0):
            continue
        if what == "read":
            models.setdefault(key, []).append(offset)
        else:
            models.pop(key, None)
            covered.pop(key, None)
    return models


def test_records_that_a_model_holds_already_say_when_its_key_was_last_seen() -> None:
    """Of a key that was reset by hand the snapshot does not know."""
    keys = KeyTable()
    keys.add(b"a", 0, covered=100, seen_ms=1_000)
    keys.add(b"b", 1, covered=100, seen_ms=9_000)
    keys.see(np.array([0, -1, 0, 1, 0]), np.array([3_000, 8_000, 5_000, 4_000, 2_000]))
    assert keys.seen[:2].tolist() == [5_000, 9_000]
