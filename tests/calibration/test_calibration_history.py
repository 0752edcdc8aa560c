"""What of the input is kept: the newest samples of a fair sample of keys, in order, in bounded memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from calibration_data import MINUTE_MS, START_MS, samples

from kstream_worker.calibration.history import MOST_SAMPLES, Collector, Days, KeyHistory, Limits, rate_per_day
from kstream_worker.errors import ConfigError
from kstream_worker.records import Samples


def collect(limits: Limits, *parts: tuple[int, Samples], seed: int = 0) -> list[KeyHistory]:
    collector = Collector(limits, 1, two_sided=False, seed=seed)
    for partition, some in parts:
        collector.take(partition, some)
    return collector.histories()


def part_of(whole: Samples, first: int, last: int) -> Samples:
    return Samples(
        whole.offsets[first:last], whole.times[first:last], whole.keys[first:last], None, whole.y[first:last]
    )


def test_cuts_change_nothing() -> None:
    rng = np.random.default_rng(1)
    whole = samples([b"k%d" % k for k in rng.integers(0, 9, 4000)])
    limits = Limits(keys=4, samples=300)
    expected = collect(limits, (0, whole))
    cuts = [0, 1, 2, 500, 1999, 4000]
    found = collect(limits, *((0, part_of(whole, a, b)) for a, b in pairwise(cuts)))
    assert [one.key for one in found] == [one.key for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.y, other.y)
        assert np.array_equal(one.times, other.times)
        assert one.left_out == other.left_out


def test_of_a_key_the_newest_samples_are_kept_in_order() -> None:
    (found,) = collect(Limits(keys=1, samples=1500), *((0, samples([b"k"] * 700, 700 * i)) for i in range(7)))
    assert found.y[:, 0].tolist() == list(range(4900 - 1500, 4900))
    assert found.left_out == 3400
    assert found.starts == (0,)
    (at_once,) = collect(Limits(keys=1, samples=1500), (0, samples([b"k"] * 4900)))
    assert np.array_equal(at_once.y, found.y)


def test_keys_are_drawn_fairly_and_with_all_their_samples() -> None:
    counts = dict.fromkeys(range(20), 0)
    keys = [b"k%d" % (i % 20 if i < 400 else i % 10) for i in range(1000)]
    for seed in range(200):
        found = collect(Limits(keys=5, samples=1000), (0, samples(keys)), seed=seed)
        assert len(found) == 5
        for one in found:
            assert len(one) == keys.count(one.key)
            counts[int(one.key[1:])] += 1
    assert min(counts.values()) > 25  # 50 in the mean, 6.1 its deviation
    assert max(counts.values()) < 75


def test_a_key_starts_afresh_at_a_tombstone_and_after_silence() -> None:
    some = samples([b"a", b"b"] * 50)
    some.forget = [(40, b"a", 40, 0), (40, b"stranger", 40, 0), (60, b"b", 60, 0)]
    a, b = collect(Limits(keys=2, samples=100, ttl_ms=0), (0, some))
    assert (a.starts, b.starts) == ((0, 20), (0, 30))
    assert a.lives() == [(0, 20), (20, 50)]
    gap = samples([b"a"] * 10)
    gap.times[7:] += 3_600_000
    (with_gap,) = collect(Limits(keys=2, samples=100, ttl_ms=3_600_000), (0, gap))
    assert with_gap.starts == (0, 7)
    (long_life,) = collect(Limits(keys=2, samples=100, ttl_ms=4_000_000), (0, gap))
    assert long_life.starts == (0,)


def test_starts_before_what_is_kept_are_left_out() -> None:
    first, second = samples([b"a"] * 30), samples([b"a"] * 30, 30)
    second.forget = [(0, b"a", 30, 0), (20, b"a", 50, 0)]
    (found,) = collect(Limits(keys=1, samples=20), (0, first), (0, second))
    assert (found.starts, found.left_out) == ((0, 10), 40)


def test_a_key_of_two_partitions_is_two() -> None:
    found = collect(Limits(keys=9, samples=9), (0, samples([b"a"] * 3)), (1, samples([b"a"] * 4)))
    assert [(one.partition, len(one)) for one in found] == [(0, 3), (1, 4)]


def test_limits_of_time_hold_for_event_times() -> None:
    limits = Limits(keys=9, samples=9, from_ms=START_MS + 3 * MINUTE_MS, until_ms=START_MS + 5 * MINUTE_MS)
    collector = Collector(limits, 1, two_sided=False, seed=0)
    collector.take(0, samples([b"a"] * 8))
    (found,) = collector.histories()
    assert found.y[:, 0].tolist() == [3.0, 4.0]
    assert (collector.taken, collector.keys, collector.keys_are_exact) == (2, 1, True)
    assert (collector.days.first_ms, collector.days.last_ms) == (limits.from_ms, START_MS + 4 * MINUTE_MS)


def test_limits_of_time_need_times() -> None:
    collector = Collector(Limits(keys=9, samples=9, from_ms=1), 1, two_sided=False, seed=0)
    some = samples([b"a"])
    some.times[:] = -1
    with pytest.raises(ConfigError, match=r"bind input\.timestamp"):
        collector.take(0, some)


def test_both_sides_are_kept() -> None:
    collector = Collector(Limits(keys=1, samples=5), 2, two_sided=True, seed=0)
    some = samples([b"a"] * 3, d=2)
    some.x = -some.y
    collector.take(0, some)
    (found,) = collector.histories()
    assert found.x is not None
    assert np.array_equal(found.x, -found.y)
    assert found.y.flags.c_contiguous


def test_memory_is_bounded_whatever_is_asked_for() -> None:
    assert Limits.within(20, 2, two_sided=False, from_ms=None, until_ms=None, ttl_ms=0).samples == MOST_SAMPLES
    many = Limits.within(10_000, 10, two_sided=True, from_ms=None, until_ms=None, ttl_ms=0)
    assert many.keys * many.samples * 8 * 21 <= 512 * 2**20


def test_a_day_of_the_fleet_is_the_mean_of_whole_days_that_have_samples() -> None:
    days = Days()
    assert days.mean() is None
    day = 86_400_000
    for number, count in {20_000: 7, 20_001: 100, 20_002: 200, 20_030: 300, 20_031: 11}.items():
        days.add(np.full(count, number * day + day // 2, dtype=np.int64))
    days.add(np.array([-1], dtype=np.int64))
    assert days.mean() == 200.0
    assert (days.first_ms, days.last_ms) == (20_000 * day + day // 2, 20_031 * day + day // 2)
    short = Days()
    short.add(np.array([0, day // 2, day], dtype=np.int64))
    assert short.mean() == 2.0


def test_rates_need_a_span_of_time() -> None:
    assert rate_per_day(1441, START_MS, START_MS + 86_400_000) == 1440.0
    assert rate_per_day(10, -1, -1) is None
    assert rate_per_day(10, 5, 5) is None
