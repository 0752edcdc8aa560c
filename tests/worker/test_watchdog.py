from __future__ import annotations

import pytest

from kstream_worker.records import TopicPartition
from kstream_worker.standstill import Standstill
from kstream_worker.worker.watchdog import Watchdog

TIMEOUT_S = 120.0
FIRST = TopicPartition("readings", 2)
SECOND = TopicPartition("readings", 10)


class Loop:
    """A loop that looks at one partition every 10 s, as the worker's does."""

    def __init__(self) -> None:
        self.watchdog = Watchdog(TIMEOUT_S)
        self.now_s = 1000.0
        self.healed_s: list[float] = []

    def look(self, positions: list[int], lag: int | None = 100, partition: TopicPartition = FIRST) -> None:
        for position in positions:
            self.now_s += 10.0
            self.watchdog.progress(partition, position, lag, self.now_s)
            self._heal()

    def restore(self, done: list[int]) -> None:
        for each in done:
            self.now_s += 10.0
            self.watchdog.restoring(FIRST, each, self.now_s)
            self._heal()

    def wait(self, seconds: int) -> None:
        for _ in range(seconds // 10):
            self.now_s += 10.0
            self._heal()

    def _heal(self) -> None:
        self.healed_s += [self.now_s - 1000.0 for _ in self.watchdog.to_heal(self.now_s)]


def test_a_partition_that_stands_still_is_healed_once_before_liveness_fails() -> None:
    loop = Loop()
    loop.look([5] * 12)
    assert loop.healed_s == [70.0]  # half of the time-out after the first look, at 10 s


def test_it_is_healed_again_only_after_a_whole_timeout_more() -> None:
    loop = Loop()
    loop.look([5] * 45)
    assert loop.healed_s == [70.0, 190.0, 310.0, 430.0]


def test_a_partition_that_moves_or_has_nothing_to_read_is_left_alone() -> None:
    loop = Loop()
    loop.look(list(range(100)))
    loop.look([100] * 50, lag=0)
    loop.look([101] * 5)
    assert loop.healed_s == []


def test_an_unknown_lag_is_no_standstill() -> None:
    loop = Loop()
    loop.look([5] * 4)
    loop.look([5] * 100, lag=None)
    assert loop.healed_s == []
    loop.look([5] * 4)
    assert loop.healed_s == [1070.0]  # what it stood before and after, as far as known


def test_reading_again_after_a_heal_is_no_progress_but_no_standstill_either() -> None:
    loop = Loop()
    loop.look([5] * 7)
    assert loop.healed_s == [70.0]
    loop.restore([0, 4, 9, 14, 20])
    loop.look([1, 2, 3, 4] + [5] * 12)  # 10 s count from the first look at 5 on
    assert loop.healed_s == [70.0]
    loop.look([5])
    assert loop.healed_s == [70.0, 290.0]


def test_a_heal_that_helped_is_the_end_of_it() -> None:
    loop = Loop()
    loop.look([5] * 7)
    loop.look([3, 5, 6])
    loop.look([6] * 6)
    assert loop.healed_s == [70.0, 160.0]  # a new standstill is healed after half of the time-out, as the first


def test_a_restore_is_never_healed() -> None:
    loop = Loop()
    loop.restore([3] * 50)
    assert loop.healed_s == []
    loop.look([8] * 6)
    assert loop.healed_s == []


def test_a_partition_that_is_not_opened_again_is_healed_again() -> None:
    loop = Loop()
    loop.look([5] * 7)
    loop.wait(120)
    assert loop.healed_s == [70.0, 190.0]


def test_partitions_are_named_in_their_order_and_forgotten() -> None:
    watchdog = Watchdog(TIMEOUT_S)
    for partition in (SECOND, FIRST, SECOND, FIRST):
        watchdog.progress(partition, 5, 1, 0.0)
    assert watchdog.to_heal(59.9) == []
    assert watchdog.to_heal(60.0) == [FIRST, SECOND]
    assert watchdog.to_heal(60.0) == []
    watchdog.forget(SECOND)
    watchdog.forget(SECOND)
    assert watchdog.to_heal(1000.0) == [FIRST]
    watchdog.progress(SECOND, 5, 1, 1000.0)
    assert watchdog.to_heal(1059.0) == []


def test_between_two_looks_nothing_is_taken_for_granted() -> None:
    watchdog = Watchdog(12.0)
    for look in range(20):  # far apart, and the partition moves
        watchdog.progress(FIRST, look, 9, 10.0 * look)
        assert watchdog.to_heal(10.0 * look + 9.9) == []
    watchdog.progress(FIRST, 19, 9, 200.0)
    assert watchdog.to_heal(200.0) == [FIRST]


@pytest.mark.parametrize("every_s", [1.0, 10.0, 37.0])
def test_the_clock_counts_what_was_seen_standing(every_s: float) -> None:
    still = Standstill(0.0)
    now_s = 0.0
    assert still.idle_s(50.0) == 0.0
    for _ in range(3):
        now_s += every_s
        still.at_position(10, 7, now_s)
    assert still.idle_s(now_s) == pytest.approx(2 * every_s)
    assert still.idle_s(now_s + 3.0) == pytest.approx(2 * every_s + 3.0)
    now_s += every_s
    still.at_position(4, 13, now_s)  # moved, but back: held, not set back
    assert still.idle_s(now_s) == pytest.approx(2 * every_s)
    now_s += every_s
    assert not still.at_position(10, 7, now_s)
    assert still.idle_s(now_s) == pytest.approx(2 * every_s)
    assert still.at_position(11, 6, now_s)
    assert still.idle_s(now_s) == 0.0
