"""What all banks of detectors have in common whose keys see one stream each."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.ranks_kernel import CLIPPED, EVIDENCE, FINISHED, NUMBERS, STATES
from kstream_worker.detectors.ranks_layout import ALARM, CLOCK, SEQ, Layout
from kstream_worker.models.bank import SlotArrays, SlotBank
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

MAX_ARL = 1e20  # the statistics, in single precision, stay finite


class StreamBank(SlotBank):
    """A one-sided bank with Shiryaev-Roberts statistics, whose compiled walk stops at every event of a key.

    Args:
        slots: the keys' rows.
        layout: of a row.
        arl: samples of one key between false alarms in the mean, at least.

    Raises:
        ValueError: `arl` is not above 1, or above 1e20.
    """

    against: ClassVar[str]  # what a key's samples are compared with, in words

    def __init__(self, slots: SlotArrays, layout: Layout, arl: float) -> None:
        super().__init__(slots)
        self._layout = layout
        self._arl = report.check_arl(arl, MAX_ARL)

    @property
    def threshold(self) -> float:
        """What the evidence must reach for an alarm: twice the stated average run length."""
        return 2.0 * self._arl

    def retune(self, arl: float) -> None:
        """Go on with another average run length; the state of the keys stays as it is.

        Raises:
            ValueError: not above 1, or above 1e20.
        """
        self._arl = report.check_arl(arl, MAX_ARL)

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
        answers = np.full((3, n), np.nan)
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
    def _guarantee(self, state: NDArray[np.int64]) -> report.Guarantee:
        """What may be said of an alarm of a key in this state."""

    def _guarantee_of_alarm(self, state: NDArray[np.int64]) -> report.Guarantee:
        """What may be said of the alarm that is being raised."""
        return self._guarantee(state)

    def _raised(self, row: int, slot: int, evidence: float, crossing: report.Crossing) -> Transition:
        state = self._slots.ints[slot]
        return report.raised(
            row=row,
            slot=slot,
            seq=int(state[SEQ]),
            crossing=crossing,
            evidence=evidence,
            threshold=self.threshold,
            guarantee=self._guarantee_of_alarm(state),
        )

    def _cleared(self, row: int, slot: int, reason: str, *, before: bool = False) -> Transition:
        """`before`: the row's sample is not yet counted, since it finds the alarm over."""
        state = self._slots.ints[slot]
        return report.cleared(
            row=row,
            slot=slot,
            seq=int(state[SEQ]) + before,
            reason=reason,
            threshold=self.threshold,
            time=int(state[CLOCK]),
            guarantee=self._guarantee(state),
        )
