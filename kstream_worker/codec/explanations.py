"""What an alarm says of a change, as a part of its payload."""

from __future__ import annotations

import sys
from math import isfinite

from kstream_worker.codec.payloads import Contribution, Correlation, Explanation, Summary, Values
from kstream_worker.records import Transition

_LARGEST = sys.float_info.max


def explanation_of(transition: Transition) -> Explanation | None:
    """The explanation of a transition as it is published; None where it has none. Numbers not finite become null."""
    found = transition.explanation
    if found is None:
        return None
    return Explanation(
        kind=found.kind,
        severity=found.severity,
        change_seq_low=found.change_seq_low,
        change_seq_high=found.change_seq_high,
        change_time_low=found.change_time_low,
        change_time_high=found.change_time_high,
        evidence_ratio=min(transition.evidence / transition.threshold, _LARGEST),
        log_evidence=found.log_evidence,
        contributions=[Contribution(one.name, one.value, one.direction) for one in found.contributions],
        summaries=[
            Summary(one.name, _values(one.before), _values(one.after), _known(one.size)) for one in found.summaries
        ],
        correlation=None if found.correlation is None else Correlation(*found.correlation),
    )


def _values(side: tuple[float, float, int]) -> Values:
    median, spread, n = side
    return Values(_known(median), _known(spread), n)


def _known(value: float) -> float | None:
    return value if isfinite(value) else None
