"""What is published of a key that stopped sending, and of the end of that."""

from __future__ import annotations

import math
from typing import NamedTuple

from kstream_worker.records import SILENT, Explanation, Transition

RETURNED = "returned"
_WHY = "no statistics: no record of the key was accepted for so long, by the event time of its partition"


class Silence(NamedTuple):
    """A key's silence.

    Attributes:
        slot: of the key.
        seq: number of the key's last sample; 0 where it was reset by hand, and nothing came since.
        since_ms: the partition's clock at the last of them.
        limit_ms: `detector.silence`.
    """

    slot: int
    seq: int
    since_ms: int
    limit_ms: int

    def raised(self, clock_ms: int) -> Transition:
        """It has lasted for longer than the limit at this value of the clock."""
        return self._transition(-1, self.seq, "raised", SILENT, clock_ms)

    def returned(self, row: int, clock_ms: int) -> Transition:
        """A sample of the key ends it, that of row `row` of what is given to the bank."""
        return self._transition(row, self.seq + 1, "cleared", RETURNED, clock_ms)

    def dropped(self, reason: str, clock_ms: int) -> Transition:
        """The key goes, `expired` or `forgotten`."""
        return self._transition(-1, self.seq, "cleared", reason, clock_ms)

    def _transition(self, row: int, seq: int, kind: str, reason: str, clock_ms: int) -> Transition:
        return Transition(
            row=row,
            slot=self.slot,
            kind=kind,
            reason=reason,
            seq=seq,
            evidence=(clock_ms - self.since_ms) / 1000.0,
            threshold=self.limit_ms / 1000.0,
            change_seq=self.seq,
            change_time=self.since_ms,
            direction="both",
            features=(),
            guarantee="none",
            guarantee_reason=_WHY,
            arl=math.nan,
            explanation=Explanation(
                kind=SILENT,
                severity=1.0,
                change_seq_low=self.seq,
                change_seq_high=self.seq,
                change_time_low=self.since_ms,
                change_time_high=self.since_ms,
                contributions=(),
                log_evidence=0.0,
                summaries=(),
            ),
        )
