"""What all banks of detectors have in common that raise alarms: thresholds of keys, and the transitions of an alarm."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from kstream_worker.detectors import report
from kstream_worker.detectors.thresholds import Escalator, Standing, standing_of
from kstream_worker.models.bank import SlotArrays, SlotBank
from kstream_worker.records import Incident, Transition

INCIDENT_INTS = 5  # number and event time of the first alarm's sample, repeats, features that led them, up and down
_SEQ, _TIME, _REPEATS, _ROSE, _FELL = range(INCIDENT_INTS)
_BITS = 62  # of the masks of features
MAX_ARL = 1e20  # evidence beyond 1e30 is not told apart
_LAST_TIME = int(np.iinfo(np.int64).max)


class Columns(NamedTuple):
    """Where a key's row holds what an alarm is about: `rate` and `escalation` of its floats, the others of its ints.

    From `incident` on INCIDENT_INTS in a row.
    """

    rate: int
    escalation: int
    seq: int
    clock: int
    until: int
    alarm: int
    alarm_time: int
    incident: int


class AlarmBank(SlotBank):
    """Slots, and for each key a threshold that alarms raise.

    Args:
        slots: the keys' rows.
        arl: samples of one key between false alarms in the mean, at least; in days of a key's own rate where the
            escalator says so.
        escalator: what alarms do to the threshold of their key.
        dead_time_ms: event time after an alarm in which the key raises no other, milliseconds.

    Raises:
        ValueError: `arl` is not above 1 (as days, 0), or above 1e20.
    """

    feature_names: tuple[str, ...]
    columns: ClassVar[Columns]
    unit: ClassVar[float]  # threshold per average run length

    def __init__(self, slots: SlotArrays, arl: float, escalator: Escalator, dead_time_ms: int) -> None:
        super().__init__(slots)
        self._escalator = escalator
        self._dead_time_ms = dead_time_ms
        self.retune(arl)

    def retune(self, arl: float) -> None:
        """Go on with another average run length (or days); the state of the keys stays as it is.

        Raises:
            ValueError: not above 1 (as days, 0), or above 1e20.
        """
        arl = report.check_arl(arl, MAX_ARL, per_day=self._escalator.per_day)
        self._rule = self._escalator.rule(arl, self.unit)

    def forget(self, slot: int) -> Transition | None:
        """The `cleared` transition (row -1, reason `forgotten`) owed if the key is dropped now; changes nothing."""
        return self._cleared(-1, slot, "forgotten") if self.raised(slot) else None

    def raised(self, slot: int) -> bool:
        """Whether the key's alarm is up: from the crossing until it is armed again."""
        return bool(self._slots.ints[slot, self.columns.alarm] == 1)

    def arl(self, slot: int) -> float:
        """Samples between false alarms that are stated for the key."""
        return self._standing(slot).arl

    def guarantee(self, slot: int) -> report.Guarantee:
        """What may be said of alarms of an armed key in its present state."""
        return self._guarantee(slot)

    def seq(self, slot: int) -> int:
        """Samples of the key so far."""
        return int(self._slots.ints[slot, self.columns.seq])

    @abstractmethod
    def _guarantee(self, slot: int) -> report.Guarantee:
        """What may be said of an alarm of the key in its present state."""

    def _guarantee_of_alarm(self, slot: int) -> report.Guarantee:
        """What may be said of the alarm that is being raised."""
        return self._guarantee(slot)

    def _standing(self, slot: int) -> Standing:
        """How the key stands now."""
        floats, state, at = self._slots.floats[slot], self._slots.ints[slot], self.columns
        since, clock = int(state[at.alarm_time]), int(state[at.clock])
        return standing_of(float(floats[at.rate]), float(floats[at.escalation]), since, clock, self._rule)

    def _continues(self, slot: int, crossing: report.Crossing) -> bool:
        """Whether a crossing is of the change for which the alarm is up: its leading feature has led an alarm of
        the incident, and went no other way then.
        """
        state, at = self._slots.ints[slot], self.columns
        rose, fell = (int(mask) for mask in state[at.incident + _ROSE : at.incident + _FELL + 1])
        known = rose | fell if crossing.direction == "both" else rose if crossing.direction == "up" else fell
        return known & self._bit(crossing.features[0][0]) != 0

    def _superseded(self, row: int, slot: int, crossing: report.Crossing, *, other: bool = False) -> list[Transition]:
        """The end of the alarm that is up, where a crossing is known to be of another change, or looks so."""
        if not self.raised(slot) or (not other and self._continues(slot, crossing)):
            return []
        over = self._cleared(row, slot, "superseded")
        self._slots.ints[slot, self.columns.alarm] = 0
        return [over]

    def _count_in(self, slot: int, crossing: report.Crossing) -> None:
        """An alarm is being raised: it begins an incident where none is up, else it repeats the former one's."""
        state, at = self._slots.ints[slot], self.columns
        incident = state[at.incident : at.incident + INCIDENT_INTS]
        if state[at.alarm] == 1:
            incident[_REPEATS] += 1
        else:
            incident[:] = state[at.seq], state[at.clock], 0, 0, 0
        told = crossing.explanation
        dependence = told is not None and told.kind == "dependence"
        for name, _ in crossing.features[: 1 + dependence]:  # of two that no longer go together, either may lead next
            incident[_ROSE] |= self._bit(name) * (crossing.direction != "down")
            incident[_FELL] |= self._bit(name) * (crossing.direction != "up")

    def _incident(self, slot: int) -> Incident:
        seq, time_ms, repeats = (
            int(value) for value in self._slots.ints[slot, self.columns.incident :][: _REPEATS + 1]
        )
        return Incident(seq, time_ms, repeats)

    def _bit(self, name: str) -> int:
        return 1 << self.feature_names.index(name) % _BITS

    def _put_up(self, slot: int) -> None:
        """The key's alarm is up from now on: its threshold rises, and its dead time begins."""
        self._escalate(slot)
        self._slots.ints[slot, self.columns.alarm] = 1

    def _escalate(self, slot: int) -> None:
        """The key's threshold rises, and a dead time begins."""
        floats, state, at = self._slots.floats[slot], self._slots.ints[slot], self.columns
        clock = int(state[at.clock])
        floats[at.escalation] = self._escalator.raised(float(floats[at.escalation]), int(state[at.alarm_time]), clock)
        state[at.alarm_time] = clock
        state[at.until] = min(clock + self._dead_time_ms, _LAST_TIME)

    def _raised(self, row: int, slot: int, evidence: float, crossing: report.Crossing) -> Transition:
        self._count_in(slot, crossing)
        raised = report.raised(
            row=row,
            slot=slot,
            seq=int(self._slots.ints[slot, self.columns.seq]),
            crossing=crossing,
            evidence=evidence,
            standing=self._standing(slot),
            guarantee=self._guarantee_of_alarm(slot),
        )
        return replace(raised, incident=self._incident(slot))

    def _cleared(self, row: int, slot: int, reason: str, *, before: bool = False) -> Transition:
        """`before`: the row's sample is not yet counted, since it finds the alarm over."""
        return self._told("cleared", row, slot, reason, before=before)

    def _told(self, kind: str, row: int, slot: int, reason: str, *, before: bool = False) -> Transition:
        """That an alarm is `cleared`, or a `notice`."""
        state, at = self._slots.ints[slot], self.columns
        told = report.told(
            kind=kind,
            row=row,
            slot=slot,
            seq=int(state[at.seq]) + before,
            reason=reason,
            time=int(state[at.clock]),
            standing=self._standing(slot),
            guarantee=self._guarantee(slot),
        )
        return told if kind == "notice" else replace(told, incident=self._incident(slot))
