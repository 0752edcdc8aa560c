"""Whether a partition takes new keys: not while it is full, and what was decided once is decided again in a replay."""

from __future__ import annotations

from collections.abc import Iterable


class Admission:
    """Closed from the first new key that finds the partition full until the first tick of event time with room.

    The intervals are part of the state: a replay knows only some of the keys that were there, so it cannot count them.

    Args:
        max_keys: most keys of the partition.
    """

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._closed: list[tuple[int, int]] = []

    def restore(self, closed: Iterable[tuple[int, int]]) -> None:
        """Take over the intervals of a header."""
        self._closed = list(closed)

    def closed_from(self, offset: int) -> tuple[tuple[int, int], ...]:
        """The intervals [from, to) that matter from this input offset on, `to` -1 where that lasts."""
        return tuple((first, last) for first, last in self._closed if last < 0 or last > offset)

    def prune(self, offset: int) -> None:
        """Nothing below this input offset will be replayed any more."""
        self._closed = list(self.closed_from(offset))

    def admits(self, offset: int, live_keys: int, *, replaying: bool) -> bool:
        """Whether a new key is taken at this input offset."""
        if any(first <= offset and (last < 0 or offset < last) for first, last in self._closed):
            return False
        if replaying or live_keys < self._max_keys:
            return True
        self._closed.append((offset, -1))
        return False

    def is_open(self, live_keys: int) -> bool:
        """Whether so many keys could all be taken now: then no tick can make a difference."""
        return live_keys <= self._max_keys and (not self._closed or self._closed[-1][1] >= 0)

    def tick(self, offset: int, live_keys: int) -> None:
        """A tick of event time begins at this input offset, not in a replay: open where there is room."""
        if self._closed and self._closed[-1][1] < 0 and live_keys < self._max_keys:
            self._closed[-1] = (self._closed[-1][0], offset)
