"""How long a partition has stood still although there is something to read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Standstill:
    """The clock of one partition. It runs while nothing moves, and begins anew only when the input position passes
    the furthest one seen so far, or reaches the end.

    What moves without passing it (a restore, records that are read again after one) holds the clock, but does not set
    it back: a partition that is started again and again and always stops at the same record stands still. The clock is
    also held while the lag is unknown: that a broker is away is no standstill of the partition. Between two looks
    nothing is taken for granted: the clock runs from the first look that found no movement, and takes in what lies
    between that and the one before.

    Attributes:
        seen_s: when it was last looked at.
        furthest: the furthest input position; -1 before the first.
        restoring: whether the last look was at a restore.
        mark: the position, or how far the restore was, at the last look.
        stood_s: how long it stood still until then.
        behind: whether there was something to read then.
        running: whether it stood still then, with something to read.
    """

    seen_s: float
    furthest: int = -1
    restoring: bool = False
    mark: int = -1
    stood_s: float = 0.0
    behind: bool = False
    running: bool = False

    def at_position(self, position: int, lag: int | None, now_s: float) -> bool:
        """Look at the input position; whether it came further than ever, or to the end."""
        further = position > self.furthest or lag == 0
        self._look(restoring=False, mark=position, behind=bool(lag), now_s=now_s)
        if further:
            self.furthest = position
            self.stood_s = 0.0
        return further

    def at_restore(self, done: int, now_s: float) -> None:
        """Look at how far a restore is."""
        self._look(restoring=True, mark=done, behind=True, now_s=now_s)

    def idle_s(self, now_s: float) -> float:
        """How long it has stood still."""
        return self.stood_s + (max(now_s - self.seen_s, 0.0) if self.running else 0.0)

    def _look(self, *, restoring: bool, mark: int, behind: bool, now_s: float) -> None:
        still = (restoring, mark) == (self.restoring, self.mark)
        if still and self.behind:
            self.stood_s += max(now_s - self.seen_s, 0.0)
        self.restoring, self.mark, self.seen_s = restoring, mark, now_s
        self.behind, self.running = behind, still and behind
