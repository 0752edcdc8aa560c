"""How long a passing fault may last: growing pauses, then a clear end."""

from __future__ import annotations

from collections.abc import Callable

from kstream_worker.errors import Fatal

_ANEW_S = 120.0  # longer than any pause between two tries of the same thing


class Patience:
    """Counts the time since calls began to fail.

    Args:
        clock: monotonic seconds.
        limit_s: how long faults may last.
        first_pause_s: the first pause; each further one is twice as long, up to 2 s.
        remedy: what to do when the limit is reached, in words.
    """

    def __init__(self, clock: Callable[[], float], limit_s: float, first_pause_s: float, remedy: str) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._first_pause_s = first_pause_s
        self._remedy = remedy
        self._since_s: float | None = None
        self._last_s = 0.0
        self._pause_s = 0.0

    def failed(self, why: str, began_s: float | None = None) -> float:
        """Note a fault; the pause in seconds before the next try.

        Args:
            why: the fault, in words.
            began_s: when the try began; long after the fault before it, when nothing had to be tried for a while, the
                count starts afresh.

        Raises:
            Fatal: faults have lasted longer than the limit.
        """
        now = self._clock()
        if began_s is not None and began_s - self._last_s > _ANEW_S:
            self.succeeded()
        self._last_s = now
        self._since_s = now if self._since_s is None else self._since_s
        if now - self._since_s > self._limit_s:
            raise Fatal(f"no success for {now - self._since_s:.0f} s: {why}. {self._remedy}")
        self._pause_s = min(max(2.0 * self._pause_s, self._first_pause_s), 2.0)
        return self._pause_s

    @property
    def failing(self) -> bool:
        """Whether the last try failed."""
        return self._since_s is not None

    def succeeded(self) -> None:
        """Start afresh."""
        self._since_s = None
        self._pause_s = 0.0
