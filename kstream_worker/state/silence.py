"""Which keys of a partition have stopped sending, by the partition's own event-time clock.

Nothing of this is kept: a key is silent exactly when it was last seen before the *deadline*, which follows from the
clock alone. So whoever takes the partition over finds the same keys silent as who had it before, and knows what was
published of them.
"""

from __future__ import annotations

from kstream_worker.records import IntColumn
from kstream_worker.state.clock import tick_rows
from kstream_worker.state.keys import KeyTable

_TICKS_PER_LIMIT = 8


class SilentKeys:
    """The silent keys of one partition, from the first record on that is processed for the first time.

    As keys expire, they fall silent at the first record of a tick; the ticks are of another grid, an eighth of the
    limit, so that one of them moves none of the others.

    Args:
        keys: of the partition.
        limit_ms: event time without a record after which a key is silent; 0: none ever is.

    Attributes:
        limit_ms: that.
        since: the silent keys, with the clock at their last record.
    """

    def __init__(self, keys: KeyTable, limit_ms: int) -> None:
        self._keys = keys
        self.limit_ms = limit_ms
        self._tick_ms = max(limit_ms // _TICKS_PER_LIMIT, 1)
        self._deadline_ms = 0  # live keys seen before it are silent, all of them
        self._begun = False
        self.since: dict[bytes, int] = {}

    def begin(self, clock_ms: int) -> bool:
        """Everything up to this value of the clock is processed, and published; False where that was said before."""
        if self._begun or not self.limit_ms:
            return False
        self._begun = True
        self._find(clock_ms)
        return True

    def ticks(self, before_ms: int, clocks: IntColumn) -> list[int]:
        """Rows at which a new tick begins and a key can fall silent; to be asked before any of them is processed.

        Args:
            before_ms: the clock before them.
            clocks: int64[n], the clock at each.
        """
        rows = tick_rows(before_ms, clocks, self._tick_ms) if self.limit_ms else []
        if not rows:
            return []
        # Keys that these rows bring are seen at the first of these clocks or later.
        oldest = min(self._keys.oldest_seen(self._deadline_ms), int(clocks[0]))
        return [row for row in rows if oldest < self._deadline(int(clocks[row]))]

    def tick(self, clock_ms: int, speaking: bytes) -> list[bytes]:
        """Keys that fall silent at a tick, in byte order.

        Args:
            clock_ms: the clock there.
            speaking: key of the record that moves the clock: by that record its silence is over before it is told.
        """
        return self._find(clock_ms, speaking)

    def heard(self, keys: list[bytes]) -> list[tuple[int, int]]:
        """Rows, of those of these keys, that end a silence, each with the clock at the key's record before."""
        since = self.since
        return [(row, since.pop(key)) for row, key in enumerate(keys) if key in since] if since else []

    def _find(self, clock_ms: int, speaking: bytes | None = None) -> list[bytes]:
        first, self._deadline_ms = self._deadline_ms, max(self._deadline(clock_ms), 0)
        found = self._keys.seen_between(first, self._deadline_ms)
        if speaking is not None:
            found.pop(speaking, None)
        self.since |= found
        return list(found)

    def _deadline(self, clock_ms: int) -> int:
        return clock_ms // self._tick_ms * self._tick_ms - self.limit_ms
