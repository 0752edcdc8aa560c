"""What all banks of detectors have in common whose keys see one stream each."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.ranks_kernel import CLIPPED, EVIDENCE, FINISHED, NUMBERS, STATES, THRESHOLD
from kstream_worker.detectors.ranks_layout import ALARM, ALARM_TIME, CLOCK, ESCALATION, RATE, SEQ, Layout
from kstream_worker.detectors.thresholds import Escalator, Standing, standing_of
from kstream_worker.models.bank import SlotArrays, SlotBank
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

MAX_ARL = 1e20  # the statistics, in single precision, stay finite
UNIT = 2.0  # threshold per average run length


class StreamBank(SlotBank):
    """A one-sided bank with Shiryaev-Roberts statistics, whose compiled walk stops at every event of a key.

    Args:
        slots: the keys' rows.
        layout: of a row.
        arl: samples of one key between false alarms in the mean, at least; in days of a key's own rate where the
            escalator says so.
        escalator: what alarms do to the threshold of their key.

    Raises:
        ValueError: `arl` is not above 1 (as days, 0), or above 1e20.
    """

    against: ClassVar[str]  # what a key's samples are compared with, in words

    def __init__(self, slots: SlotArrays, layout: Layout, arl: float, escalator: Escalator) -> None:
        super().__init__(slots)
        self._layout = layout
        self._escalator = escalator
        self.retune(arl)

    def retune(self, arl: float) -> None:
        """Go on with another average run length (or days); the state of the keys stays as it is.

        Raises:
            ValueError: not above 1 (as days, 0), or above 1e20.
        """
        arl = report.check_arl(arl, MAX_ARL, per_day=self._escalator.per_day)
        self._rule = self._escalator.rule(arl, UNIT)

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """Walk n samples in order; see `ports.Bank.update`.

        Args:
            slots: int64[n].
            x: None: there is one side.
            y: float64[n, dims].
            times: int64[n], event times in milliseconds.

        Raises:
            ValueError: a shape does not fit, a slot is not allocated, or a value is not finite; nothing has changed.
        """
        if x is not None:
            raise ValueError(f"x must be None: this bank compares each key's samples y with its own {self.against}")
        return self._answer(*self._slots.check_samples(slots, y, times, self._layout.dims))

    def _answer(self, slots: IntColumn, y: FloatMatrix, times: IntColumn) -> Scores:
        """Walk checked samples, event by event."""
        n = len(slots)
        counts = np.zeros((3, n), dtype=np.int64)
        answers = np.full((4, n), np.nan)
        answers[EVIDENCE] = 0.0
        transitions: list[Transition] = []
        at = 0
        while True:
            event, at = self._walk(at, slots, y, times, counts, answers)
            if event == FINISHED:
                break
            at, transition = self._take(event, at, int(slots[at]), float(answers[EVIDENCE, at]))
            if transition is not None:
                transitions.append(transition)
        return Scores(
            counts[STATES].astype(np.int8),
            counts[NUMBERS],
            answers[0],
            answers[1],
            answers[EVIDENCE],
            answers[THRESHOLD],
            transitions,
            int(counts[CLIPPED].sum()),
        )

    def forget(self, slot: int) -> Transition | None:
        """The `cleared` transition (row -1, reason `forgotten`) owed if the key is dropped now; changes nothing."""
        return self._cleared(-1, slot, "forgotten") if self.raised(slot) else None

    def raised(self, slot: int) -> bool:
        """Whether the key's alarm is up: from the crossing until it is armed again."""
        return bool(self._slots.ints[slot, ALARM] == 1)

    @abstractmethod
    def _walk(
        self,
        at: int,
        slots: IntColumn,
        y: FloatMatrix,
        times: IntColumn,
        counts: NDArray[np.int64],
        answers: NDArray[np.float64],
    ) -> tuple[int, int]:
        """Walk from row `at` on; the first event, and its row."""

    @abstractmethod
    def _take(self, event: int, row: int, slot: int, evidence: float) -> tuple[int, Transition | None]:
        """Do what an event asks for; the row to go on with, and what is to be published."""

    @abstractmethod
    def _guarantee(self, slot: int) -> report.Guarantee:
        """What may be said of an alarm of the key in its present state."""

    def _guarantee_of_alarm(self, slot: int) -> report.Guarantee:
        """What may be said of the alarm that is being raised."""
        return self._guarantee(slot)

    def _standing(self, slot: int) -> Standing:
        """How the key stands now."""
        floats, state = self._slots.floats[slot], self._slots.ints[slot]
        since, clock = int(state[ALARM_TIME]), int(state[CLOCK])
        return standing_of(float(floats[RATE]), float(floats[ESCALATION]), since, clock, self._rule)

    def _escalate(self, slot: int) -> None:
        """Raise the key's threshold for the alarm that it raises now."""
        floats, state = self._slots.floats[slot], self._slots.ints[slot]
        clock = int(state[CLOCK])
        floats[ESCALATION] = self._escalator.raised(float(floats[ESCALATION]), int(state[ALARM_TIME]), clock)
        state[ALARM_TIME] = clock

    def _raised(self, row: int, slot: int, evidence: float, crossing: report.Crossing) -> Transition:
        state = self._slots.ints[slot]
        return report.raised(
            row=row,
            slot=slot,
            seq=int(state[SEQ]),
            crossing=crossing,
            evidence=evidence,
            standing=self._standing(slot),
            guarantee=self._guarantee_of_alarm(slot),
        )

    def _cleared(self, row: int, slot: int, reason: str, *, before: bool = False) -> Transition:
        """`before`: the row's sample is not yet counted, since it finds the alarm over."""
        state = self._slots.ints[slot]
        return report.cleared(
            row=row,
            slot=slot,
            seq=int(state[SEQ]) + before,
            reason=reason,
            time=int(state[CLOCK]),
            standing=self._standing(slot),
            guarantee=self._guarantee(slot),
        )
