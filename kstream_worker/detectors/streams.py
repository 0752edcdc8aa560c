"""What all banks of detectors have in common whose keys see one stream each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.alarms import AlarmBank, Columns
from kstream_worker.detectors.ranks_kernel import CLIPPED, EVIDENCE, FINISHED, NUMBERS, STATES, THRESHOLD
from kstream_worker.detectors.ranks_layout import (
    ALARM,
    ALARM_TIME,
    CLOCK,
    ESCALATION,
    INCIDENT,
    RATE,
    SEQ,
    UNTIL,
    Layout,
)
from kstream_worker.detectors.thresholds import Escalator
from kstream_worker.models.bank import SlotArrays, fingerprint_of
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition


class Walk(NamedTuple):
    """A compiled walk, which stops at every event of a key.

    Attributes:
        kernel: of (first row, slots, y, *clocks, floats, ints, shorts, *given, rule, counts, answers, *scratch); the
            first event, and its row.
        given: what is the same for all keys.
        scratch: room to work in.
    """

    kernel: Callable[..., tuple[int, int]]
    given: tuple[Any, ...]
    scratch: tuple[NDArray[Any], ...]


class StreamBank(AlarmBank):
    """A one-sided bank with Shiryaev-Roberts statistics.

    Args:
        kind: of the rows, for snapshots.
        settings: all that shape state, but those of the arguments below.
        seed: of random draws.
        capacity: slots at the start.
        layout: of a row.
        walk: over samples.
        arl, escalator, dead_time_ms: as for `AlarmBank`.

    Raises:
        ValueError: `arl` is not above 1 (as days, 0), or above 1e20.
    """

    against: ClassVar[str]  # what a key's samples are compared with, in words
    columns = Columns(RATE, ESCALATION, SEQ, CLOCK, UNTIL, ALARM, ALARM_TIME, INCIDENT)
    unit = 2.0

    def __init__(
        self,
        kind: str,
        settings: Mapping[str, object],
        seed: int,
        capacity: int,
        layout: Layout,
        walk: Walk,
        arl: float,
        escalator: Escalator,
        dead_time_ms: int,
    ) -> None:
        slots = SlotArrays(
            kind,
            fingerprint_of({**settings, "seed": seed, "dead_time_ms": dead_time_ms, **escalator.settings()}),
            seed,
            floats=layout.floats,
            ints=layout.ints,
            shorts=layout.shorts,
            capacity=capacity,
        )
        super().__init__(slots, arl, escalator, dead_time_ms)
        self._layout = layout
        self._compiled = walk

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
        clocks = self._clocks(times)
        at = 0
        while True:
            event, at = self._walk(at, slots, y, clocks, counts, answers)
            if event == FINISHED:
                break
            at, told = self._take(event, at, int(slots[at]), float(answers[EVIDENCE, at]))
            transitions += told
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

    def _clocks(self, times: IntColumn) -> tuple[IntColumn, ...]:
        """The times that the walk takes."""
        return (times,)

    def _walk(
        self,
        at: int,
        slots: IntColumn,
        y: FloatMatrix,
        clocks: tuple[IntColumn, ...],
        counts: NDArray[np.int64],
        answers: NDArray[np.float64],
    ) -> tuple[int, int]:
        """Walk from row `at` on; the first event, and its row."""
        kernel, given, scratch = self._compiled
        rows = self._slots
        state = rows.floats, rows.ints, rows.shorts
        return kernel(at, slots, y, *clocks, *state, *given, self._rule, counts, answers, *scratch)

    @abstractmethod
    def _take(self, event: int, row: int, slot: int, evidence: float) -> tuple[int, list[Transition]]:
        """Do what an event asks for; the row to go on with, and what is to be published."""
