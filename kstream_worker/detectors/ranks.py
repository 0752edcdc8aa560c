"""A bank of change detectors for one stream per key: rank Shiryaev-Roberts.

Each sample is ranked in a rolling bag of former samples of its key by fixed scores (coordinates, radius, products of
two coordinates), by means of 25 samples, and by a learned likelihood ratio (paper 004). For independent, identically
distributed samples the ranks are exactly uniform whatever the law; Shiryaev-Roberts statistics bet that they are not.
`ranking` and `ranks_kernel` have the arguments and the sources; docs/architecture.md says how a bank is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.ranks_arming import arm
from kstream_worker.detectors.ranks_kernel import CLIPPED, CROSSED, FINISHED, FULL, NUMBERS, STATES, walk
from kstream_worker.detectors.ranks_layout import (
    ALARM,
    ARMED,
    ATOM_COUNT,
    AUTO,
    CLOCK,
    COUNT,
    HELD,
    NO_DEPENDENCE,
    PHASE,
    PROFILES,
    RAISED,
    SEQ,
    TRANSFORMS,
    UNTIL,
    V_SIZE,
    WARMING,
    WHITEN,
    Options,
    bytes_by_part,
    column_weights,
    make_layout,
    make_scratch,
)
from kstream_worker.detectors.ranks_report import guarantee_of, guarantee_of_alarm, read_crossing
from kstream_worker.models.bank import SlotArrays, SlotBank, fingerprint_of
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

KIND = "ranks"
ROW = 2  # of what the numbers of a row mean: snapshots of other rows are refused
DEPENDENCE = {"none": NO_DEPENDENCE, "auto": AUTO, "whiten": WHITEN}
DEFAULT_WARMUP = {"none": 200, "auto": 600, "whiten": 600}
COMPACT_WARMUP = {"none": 200, "auto": 400, "whiten": 400}  # its samples fit into the room of what follows
MIN_WARMUP = {"none": 20, "auto": 60, "whiten": 60}
MAX_WARMUP = {"none": 2000, "auto": 6000, "whiten": 6000}
MAX_ARL = 1e20  # the statistics, in single precision, stay finite
_LAST_TIME = np.iinfo(np.int64).max


class RankBank(SlotBank):
    """Change detectors of many keys that see one stream each; implements `ports.Bank`, one-sided.

    A key warms up for `warmup` samples; then it is armed. After an alarm, `rebase` forgets all and warms up
    again: the key is armed, and its alarm cleared, once the new warm-up is full and `dead_time_ms` of event time
    have passed. `hold` keeps bags, autoregressions and what was learned, sets the evidence to 0, raises nothing
    until `dead_time_ms` have passed, and then clears and arms; from then on its guarantee is called
    `approximate`.

    With `dependence="auto"` the first two thirds of a warm-up are tested for serial dependence (Ljung-Box, 10
    lags); where it is found (p < .2/dims in any feature) every feature passes through an autoregression of order
    8 and its innovations are ranked; the guarantee is then `approximate`. `none` never does, `whiten` always.

    Args:
        dims: features of a sample.
        feature_names: their names in reports; `f0`, `f1`, ... by default.
        arl: samples of one key between false alarms in the mean, at least; above 1, up to 1e20. The threshold of the
            evidence is twice that.
        warmup: samples before a key is armed; by default 200 without tests of dependence, else 600 (compact: 400).
        dependence: `auto`, `none` or `whiten`.
        on_alarm: `rebase` or `hold`.
        dead_time_ms: event time after an alarm in which the key raises no other, milliseconds.
        profile: `default`, or `compact`: bags a quarter of the size and half the atoms. Slow drifts are found later or
            not at all; the guarantee is the same.
        spikes: whether single samples far out are bet on, beyond what ranks can say. An alarm of that score has the
            guarantee `approximate`, whatever the key's own is.
        transform: `auto` takes the square root of a feature that looks like counts, or is never negative and skewed to
            the right, in the first part of the warm-up; `sqrt` of all features; `none` of none. Below zero it is
            minus the root of the size.
        seed: of random draws.
        capacity: slots at the start; the bank grows.

    Raises:
        ValueError: an argument is out of its range; says which.
    """

    def __init__(
        self,
        dims: int,
        *,
        feature_names: Sequence[str] | None = None,
        arl: float = 1_000_000.0,
        warmup: int | None = None,
        dependence: str = "auto",
        on_alarm: str = "rebase",
        dead_time_ms: int = 0,
        profile: str = "default",
        spikes: bool = True,
        transform: str = "auto",
        seed: int = 0,
        capacity: int = 64,
    ) -> None:
        _check(dims, arl, warmup, dependence, on_alarm, dead_time_ms)
        if profile not in PROFILES:
            raise ValueError(f"profile is {profile!r}; it must be one of {', '.join(map(repr, PROFILES))}")
        if transform not in TRANSFORMS:
            raise ValueError(f"transform is {transform!r}; it must be one of {', '.join(map(repr, TRANSFORMS))}")
        if warmup is None:
            warmup = (COMPACT_WARMUP if profile == "compact" else DEFAULT_WARMUP)[dependence]
        self.feature_names = report.feature_names(feature_names, dims)
        self._arl = float(arl)
        self._hold = on_alarm == "hold"
        self._dead_time_ms = dead_time_ms
        shape = dims, warmup, DEPENDENCE[dependence], Options(profile, spikes, transform)
        self._layout, self._parts = make_layout(*shape), bytes_by_part(*shape)
        self._plan = self._layout.table()
        self._weights = column_weights(self._layout)
        self._scratch = make_scratch(self._layout)
        settings = {
            "row": ROW,
            "dims": dims,
            "warmup": warmup,
            "dependence": dependence,
            "on_alarm": on_alarm,
            "dead_time_ms": dead_time_ms,
            "profile": profile,
            "spikes": spikes,
            "transform": transform,
            "seed": seed,
        }
        super().__init__(
            SlotArrays(
                KIND,
                fingerprint_of(settings),
                seed,
                floats=self._layout.floats,
                ints=self._layout.ints,
                shorts=self._layout.shorts,
                capacity=capacity,
            )
        )

    @property
    def threshold(self) -> float:
        """What the evidence must reach for an alarm: twice the stated average run length."""
        return 2.0 * self._arl

    def bytes_by_part(self) -> dict[str, int]:
        """Bytes of one key by what they are for; they add up to `bytes_per_key`."""
        return dict(self._parts)

    def retune(self, arl: float) -> None:
        """Go on with another average run length; the state of the keys stays as it is.

        Raises:
            ValueError: not above 1, or above 1e290.
        """
        self._arl = report.check_arl(arl, MAX_ARL)

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """Walk n samples in order; see `ports.Bank.update`.

        Args:
            slots: int64[n].
            x: None: this bank compares a key's samples with its own past.
            y: float64[n, dims].
            times: int64[n], event times in milliseconds.

        Raises:
            ValueError: a shape does not fit, a slot is not allocated, or a value is not finite; nothing has changed.
        """
        if x is not None:
            raise ValueError("x must be None: this bank compares each key's samples y with its own past")
        slots, y, times = self._slots.check_samples(slots, y, times, self._layout.dims)
        n = len(slots)
        counts = np.zeros((3, n), dtype=np.int64)
        answers = np.full((3, n), np.nan)
        answers[2] = 0.0
        transitions: list[Transition] = []
        at = 0
        while True:
            event, row = self._walk(at, slots, y, times, counts, answers)
            if event == FINISHED:
                break
            slot = int(slots[row])
            if event == CROSSED:
                transitions.append(self._raise(row, slot, float(answers[2, row])))
            elif event != FULL:
                transitions.append(self._cleared(row, slot, "rearmed", before=True))
            elif self._arm(slot):
                transitions.append(self._cleared(row, slot, "rearmed"))
            at = row if event not in (CROSSED, FULL) else row + 1
        return Scores(
            counts[STATES].astype(np.int8),
            counts[NUMBERS],
            answers[0],
            answers[1],
            answers[2],
            transitions,
            int(counts[CLIPPED].sum()),
        )

    def forget(self, slot: int) -> Transition | None:
        """The `cleared` transition (row -1, reason `forgotten`) owed if the key is dropped now; changes nothing."""
        return self._cleared(-1, slot, "forgotten") if self.raised(slot) else None

    def raised(self, slot: int) -> bool:
        """Whether the key's alarm is up: from the crossing until it is armed again."""
        return bool(self._slots.ints[slot, ALARM] == 1)

    def _walk(
        self,
        at: int,
        slots: IntColumn,
        y: FloatMatrix,
        times: IntColumn,
        counts: NDArray[np.int64],
        answers: NDArray[np.float64],
    ) -> tuple[int, int]:
        state = self._slots
        return walk(
            at,
            slots,
            y,
            times,
            state.floats,
            state.ints,
            state.shorts,
            self._plan,
            self._weights,
            self.threshold,
            counts,
            answers,
            *self._scratch,
        )

    def _arm(self, slot: int) -> bool:
        """Arm a key whose warm-up is full; True if that clears its alarm."""
        state = self._slots.ints[slot]
        arm(self._slots.floats[slot], self._slots.shorts[slot], state, self._plan)
        state[COUNT] = 0
        waiting = state[ALARM] == 1 and state[CLOCK] < state[UNTIL]
        state[PHASE] = RAISED if waiting else ARMED
        if waiting or state[ALARM] == 0:
            return False
        state[ALARM] = 0
        return True

    def _raise(self, row: int, slot: int, evidence: float) -> Transition:
        state = self._slots.ints[slot]
        crossing = read_crossing(self._slots.floats[slot], state, self._layout, self.feature_names)
        transition = report.raised(
            row=row,
            slot=slot,
            seq=int(state[SEQ]),
            crossing=crossing,
            evidence=evidence,
            threshold=self.threshold,
            guarantee=guarantee_of_alarm(state, self._arl, self._layout, self._weights),
        )
        self._rearm(slot)
        return transition

    def _rearm(self, slot: int) -> None:
        row, state = self._slots.floats[slot], self._slots.ints[slot]
        state[ALARM] = 1
        state[UNTIL] = min(int(state[CLOCK]) + self._dead_time_ms, _LAST_TIME)
        if self._hold:
            state[PHASE] = RAISED
            state[HELD] = 1
            row[self._layout.R : self._layout.run_time + self._layout.locators] = 0.0
        else:
            state[PHASE] = WARMING
            state[COUNT] = 0
            state[V_SIZE : ATOM_COUNT + 1] = 0
            row[:] = 0.0

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
            guarantee=guarantee_of(state, self._arl),
        )


Column = TypeVar("Column", IntColumn, FloatMatrix)


def _check(dims: int, arl: float, warmup: int | None, dependence: str, on_alarm: str, dead_time_ms: int) -> None:
    if dims < 1:
        raise ValueError(f"dims is {dims}; a sample needs at least one feature")
    report.check_arl(arl, MAX_ARL)
    if dependence not in DEPENDENCE:
        raise ValueError(f"dependence is {dependence!r}; it must be one of {', '.join(map(repr, DEPENDENCE))}")
    low, high = MIN_WARMUP[dependence], MAX_WARMUP[dependence]
    if warmup is not None and not low <= warmup <= high:
        raise ValueError(f"warmup is {warmup}; with dependence {dependence!r} it must lie in {low}..{high}")
    if on_alarm not in ("rebase", "hold"):
        raise ValueError(f"on_alarm is {on_alarm!r}; it must be 'rebase' or 'hold'")
    if dead_time_ms < 0:
        raise ValueError(f"dead_time_ms is {dead_time_ms}; it must not be negative")
