"""A bank of change detectors for explicit pairs (x of the reference side, y of the live side).

Evidence is a weighted mean of Shiryaev-Roberts statistics that bet on score differences s(y) - s(x): half of it on a
learned ensemble of likelihood-ratio estimators (paper 004), half on a fixed battery (coordinates, radius, products).
All bets share one filtration, so with a threshold A the mean number of pairs to a false alarm is at least A whenever,
given the past, the two sides could be swapped (`battery` has the argument and the sources).

While the live side differs from the reference side, a key that is armed again repeats its alarm: a lasting difference
is one incident, told again after a re-arming, at most once in the dead time, and each time needs more evidence than
before (`thresholds`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.alarms import AlarmBank, Columns
from kstream_worker.detectors.pairs_dependence import differences_depend
from kstream_worker.detectors.pairs_fit import fit
from kstream_worker.detectors.pairs_kernel import (
    CROSSED,
    DIVERGENCE,
    EVIDENCE,
    FINISHED,
    LOG_RATIO,
    RECOVERED,
    THRESHOLD,
    log_ratios,
    make_scratch,
    walk,
)
from kstream_worker.detectors.pairs_report import read_crossing
from kstream_worker.detectors.pairs_state import (
    ALARM,
    ALARM_TIME,
    ARMED,
    BACK,
    CLOCK,
    COUNT,
    DEPENDENT,
    ESCALATION,
    FIRST,
    HELD,
    INCIDENT,
    INTS,
    LEAD,
    MARGIN,
    OUTLIVING,
    PHASE,
    RAISED,
    RATE,
    SEQ,
    SIDE,
    SINCE,
    UNTIL,
    VERSION,
    WARM_TIME,
    WARMING,
    bet_weights,
    make_plan,
)
from kstream_worker.detectors.thresholds import WEEK_MS, escalator, samples_per_day
from kstream_worker.models.bank import SlotArrays, fingerprint_of
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

KIND = "pairs"
MIN_WARMUP = 8


class PairBank(AlarmBank):
    """Change detectors of many keys that see pairs; implements `ports.Bank`.

    A key warms up for `warmup` pairs, from which its scales, kernel width and atoms are taken; then it is armed. After
    an alarm, `rebase` forgets all and warms up again: the key is armed once the new warm-up is full and `dead_time_ms`
    of event time have passed. `hold` keeps what was learned, sets the evidence to 0, raises nothing until
    `dead_time_ms` have passed, and then arms; from then on its guarantee is called `approximate`, since the estimators
    keep what they learned from the change. Either way the alarm stays up, and may be repeated, until the sides are
    alike again (`recovery`), or another change takes its place.

    With more than ten dimensions there are no products among the scores; coordinates and radius then take their weight.

    Each warm-up is tested for differences of the sides that depend on former ones (`pairs_dependence`); where they do,
    the sides cannot be swapped, and no rate is stated.

    Args:
        dims: features of one side.
        feature_names: their names in reports; `f0`, `f1`, ... by default.
        arl: pairs of one key between false alarms in the mean, at least; the threshold of the evidence, without
            escalation. Above 1, up to 1e20.
        per_day: `arl` is the number of days between false alarms of one key instead. How many pairs these are follows
            from the rate of pairs in the key's last warm-up; at least 1e3, at most 1e12.
        warmup: pairs before a key is armed, at least 8.
        test: whether warm-ups are tested for serial dependence.
        alpha: weight of the live side in the relative ratio, 0 < alpha < 1.
        atoms: kernel functions per key; by default 50, and 100 from ten dimensions on. They come in fours: rounded
            down to a multiple of 4, but at least 4 (50 means 48).
        on_alarm: `rebase` or `hold`.
        dead_time_ms: event time after an alarm in which the key raises no other, milliseconds.
        escalation: factor on the key's threshold for each alarm; 1: none.
        escalation_decay_ms: event time after an alarm in which that factor falls to 1, linearly on a logarithmic scale.
        seed: of random draws. This detector draws none; the seed is part of the fingerprint all the same.
        capacity: slots at the start; the bank grows.

    Raises:
        ValueError: an argument is out of its range; says which.
    """

    columns = Columns(RATE, ESCALATION, SEQ, CLOCK, UNTIL, ALARM, ALARM_TIME, INCIDENT)
    unit = 1.0

    def __init__(
        self,
        dims: int,
        *,
        feature_names: Sequence[str] | None = None,
        arl: float = 1_000_000.0,
        per_day: bool = False,
        warmup: int = 200,
        test: bool = True,
        alpha: float = 0.1,
        atoms: int | None = None,
        on_alarm: str = "rebase",
        dead_time_ms: int = 0,
        escalation: float = 1.0,
        escalation_decay_ms: int = WEEK_MS,
        seed: int = 0,
        capacity: int = 64,
    ) -> None:
        _check(dims, warmup, alpha, atoms, on_alarm, dead_time_ms)
        rules = escalator(escalation, escalation_decay_ms, per_day=per_day)
        room = room_for(atoms if atoms is not None else default_atoms(dims))
        self.feature_names = report.feature_names(feature_names, dims)
        self._plan = make_plan(dims, room, warmup)
        self._table = self._plan.table()
        self._weights = bet_weights(self._plan)
        self._scratch = make_scratch(self._plan)
        self._powers = np.zeros(self._scratch.shape[1], dtype=np.int64)
        self._alpha = float(alpha)
        self._hold = on_alarm == "hold"
        self._test = test
        settings = {
            "row": VERSION,
            "dims": dims,
            "warmup": warmup,
            "test": test,
            "alpha": alpha,
            "atoms": room,
            "on_alarm": on_alarm,
            "dead_time_ms": dead_time_ms,
            "seed": seed,
            **rules.settings(),
        }
        ints = INTS + self._plan.length
        slots = SlotArrays(KIND, fingerprint_of(settings), seed, floats=self._plan.floats, ints=ints, capacity=capacity)
        super().__init__(slots, arl, rules, dead_time_ms)

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """Walk n pairs in order; see `ports.Bank.update`.

        Args:
            slots: int64[n].
            x: float64[n, dims], the reference side.
            y: float64[n, dims], the live side.
            times: int64[n], event times in milliseconds.

        Raises:
            ValueError: a shape does not fit, a slot is not allocated, or a value is not finite; nothing has changed.
        """
        slots, x, y, times = self._slots.check_pairs(slots, x, y, times, self._plan.dims)
        n = len(slots)
        state_seq = np.zeros((2, n), dtype=np.int64)
        answers = np.full((4, n), np.nan)
        answers[EVIDENCE] = 0.0
        transitions: list[Transition] = []
        row = 0
        while True:
            event, row = self._walk(row, slots, x, y, times, state_seq, answers)
            if event == FINISHED:
                break
            transitions += self._settle(event, row, int(slots[row]), float(answers[EVIDENCE, row]))
            row += 1
        clipped = int(log_ratios(answers[LOG_RATIO]))
        state = state_seq[0].astype(np.int8)
        return Scores(
            state,
            state_seq[1],
            answers[LOG_RATIO],
            answers[DIVERGENCE],
            answers[EVIDENCE],
            answers[THRESHOLD],
            transitions,
            clipped,
        )

    def _walk(
        self,
        first: int,
        slots: IntColumn,
        x: FloatMatrix,
        y: FloatMatrix,
        times: IntColumn,
        state_seq: NDArray[np.int64],
        answers: FloatMatrix,
    ) -> tuple[int, int]:
        return walk(
            first,
            slots,
            x,
            y,
            times,
            self._slots.floats,
            self._slots.ints,
            self._table,
            self._weights,
            self._alpha,
            self._rule,
            state_seq,
            answers,
            self._scratch,
            self._powers,
        )

    def _settle(self, event: int, row: int, slot: int, evidence: float) -> list[Transition]:
        """Do what an event asks for; the transitions to be published."""
        floats, state = self._slots.floats[slot], self._slots.ints[slot]
        if event == CROSSED:
            return self._cross(row, slot, evidence)
        if event == RECOVERED:
            state[ALARM] = 0
            return [self._cleared(row, slot, "recovered")]
        floats[RATE] = samples_per_day(int(state[COUNT]) - 1, int(state[WARM_TIME]), int(state[CLOCK]))
        state[DEPENDENT] = int(self._test and differences_depend(floats, self._table))
        fit(floats, state, self._table)
        state[COUNT] = 0
        state[SINCE] = state[SEQ]
        state[FIRST] = state[SEQ] + 1
        state[PHASE] = RAISED if state[CLOCK] < state[UNTIL] else ARMED
        return []

    def _cross(self, row: int, slot: int, evidence: float) -> list[Transition]:
        floats, state = self._slots.floats[slot], self._slots.ints[slot]
        crossing, lead = read_crossing(floats, state, self._plan, self.feature_names)
        told = self._superseded(row, slot, crossing)
        told.append(self._raised(row, slot, evidence, crossing))
        again = state[ALARM] == 1 and state[LEAD] == lead.column  # measured twice, it is better known
        floats[MARGIN] = 0.5 * (floats[MARGIN] + lead.margin) if again else lead.margin
        state[LEAD], state[SIDE] = lead.column, lead.side
        floats[BACK] = 0.0
        self._put_up(slot)
        self._rearm(slot)
        return told

    def _rearm(self, slot: int) -> None:
        row, state = self._slots.floats[slot], self._slots.ints[slot]
        if self._hold:
            state[PHASE] = RAISED
            state[HELD] = 1
            row[self._plan.at_statistic : self._plan.at_w] = 0.0
        else:
            state[PHASE] = WARMING
            state[COUNT] = 0
            row[OUTLIVING:] = 0.0

    def _guarantee(self, slot: int) -> report.Guarantee:
        state = self._slots.ints[slot]
        if state[DEPENDENT] == 1:
            return _NO_GUARANTEE
        return _HELD_GUARANTEE if state[HELD] == 1 else exact_guarantee(self._standing(slot).arl)


def default_atoms(dims: int) -> int:
    """50 kernel functions, 100 from ten dimensions on."""
    return 100 if dims >= 10 else 50


def room_for(atoms: int) -> int:
    """Atoms that a key really has at most: the kernels of `nystrom` work on four at a time."""
    return max(4, atoms - atoms % 4)


def exact_guarantee(arl: float) -> report.Guarantee:
    """What may be said of explicit pairs."""
    return report.Guarantee(
        "exact_if_iid",
        "If, given the past, the two sides of each pair could be swapped without changing their joint law, the mean "
        f"number of pairs to a false alarm is at least {arl:.12g}, even when both sides drift together. "
        "Serial dependence within a side voids this.",
    )


_NO_GUARANTEE = report.Guarantee(
    "none",
    "The differences of the two sides depended on former ones in the warm-up (a test of their serial correlation), so "
    "that the sides of a pair cannot be swapped given the past: no rate of false alarms can be stated.",
)

_HELD_GUARANTEE = report.Guarantee(
    "approximate",
    "The key was armed again after a held alarm with estimators that keep what they learned before: the stated mean "
    "number of pairs to a false alarm holds from then on only as far as the pairs are swappable again.",
)


def _check(dims: int, warmup: int, alpha: float, atoms: int | None, on_alarm: str, dead_time_ms: int) -> None:
    if dims < 1:
        raise ValueError(f"dims is {dims}; a pair needs at least one feature")
    if warmup < MIN_WARMUP:
        raise ValueError(f"warmup is {warmup}; at least {MIN_WARMUP} pairs are needed for scales and atoms")
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha is {alpha}; it must lie between 0 and 1")
    if atoms is not None and atoms < 1:
        raise ValueError(f"atoms is {atoms}; at least one is needed")
    if on_alarm not in ("rebase", "hold"):
        raise ValueError(f"on_alarm is {on_alarm!r}; it must be 'rebase' or 'hold'")
    if dead_time_ms < 0:
        raise ValueError(f"dead_time_ms is {dead_time_ms}; it must not be negative")
