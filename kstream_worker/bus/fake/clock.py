"""Time that moves only when something waits for it."""

from __future__ import annotations


class FakeClock:
    """A monotonic clock in seconds, called like `time.monotonic`; `sleep` moves it and returns at once."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def __call__(self) -> float:
        """Seconds now."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass; a negative time is none."""
        self._now_s += max(0.0, seconds)

    def time_ms(self) -> int:
        """Milliseconds now, for record timestamps."""
        return round(self._now_s * 1000)
