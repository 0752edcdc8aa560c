"""Event time of a partition: the running maximum of its accepted event times, which alone decides when keys expire."""

from __future__ import annotations

import numpy as np

from kstream_worker.records import IntColumn

_TICKS_PER_TTL = 64
_IDLE_TICK_MS = 3_600_000  # where nothing expires, a full partition looks for room this often


class EventClock:
    """A clock that advances with the records and never by itself: in silence nothing expires.

    It moves in *ticks*: what depends on it happens at the first record of a new tick, so that a long batch costs no
    more than a few looks at all keys, and how polls cut the records makes no difference.

    Args:
        ttl_ms: life of a silent key; 0 for ever.
        max_skew_ms: an event time further ahead of its record's own time counts as that far ahead only: one fast
            device clock must not expire everybody else.

    Attributes:
        now_ms: -1 before the first event time.
        tick_ms: length of a tick.
    """

    def __init__(self, ttl_ms: int, max_skew_ms: int) -> None:
        self.now_ms = -1
        self.ttl_ms = ttl_ms
        self.tick_ms = max(ttl_ms // _TICKS_PER_TTL, 1) if ttl_ms else _IDLE_TICK_MS
        self._max_skew_ms = max_skew_ms

    def advance(self, times: IntColumn, stamps: IntColumn | None) -> tuple[IntColumn, list[int]]:
        """Let n records pass.

        Args:
            times: int64[n], event times in milliseconds; negative where unknown.
            stamps: int64[n], the records' own times, negative where unknown; None for none.

        Returns:
            int64[n], the clock at each record, its own event time included; and the rows at which a new tick begins.
        """
        if not len(times):
            return times, []
        if stamps is not None:
            ahead = (stamps >= 0) & (times > stamps + self._max_skew_ms)
            times = np.where(ahead, stamps + self._max_skew_ms, times)
        before = self.now_ms
        clocks = np.maximum(np.maximum.accumulate(times), before)
        self.now_ms = int(clocks[-1])
        return clocks, tick_rows(before, clocks, self.tick_ms)

    def oldest_alive_ms(self, clock_ms: int) -> int:
        """Keys last seen before this are expired at the tick that `clock_ms` belongs to; -1 when none ever is."""
        return clock_ms // self.tick_ms * self.tick_ms - self.ttl_ms if self.ttl_ms else -1


def tick_rows(before_ms: int, clocks: IntColumn, tick_ms: int) -> list[int]:
    """Rows at which a new tick begins; never that of the first event time of all.

    Args:
        before_ms: the clock before them; -1 before the first event time.
        clocks: int64[n], the clock at each, ascending.
        tick_ms: length of a tick.
    """
    if not len(clocks) or (before_ms >= 0 and int(clocks[-1]) // tick_ms == before_ms // tick_ms):
        return []
    ticks = clocks // tick_ms
    previous = np.concatenate(([before_ms // tick_ms if before_ms >= 0 else -1], ticks[:-1]))
    rows: list[int] = np.flatnonzero((ticks > previous) & (previous >= 0)).tolist()
    return rows
