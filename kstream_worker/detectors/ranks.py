"""A bank of change detectors for one stream per key: rank Shiryaev-Roberts.

Each sample is ranked in a rolling bag of former samples of its key by fixed scores (coordinates, radius, products of
two coordinates), by means of 25 samples, and by a learned likelihood ratio (paper 004); lasting shifts of what returns
slowly to its level have bets of their own (`ranks_levels`). For independent, identically distributed samples the ranks
are exactly uniform whatever the law; Shiryaev-Roberts statistics bet that they are not.
`ranking` and `ranks_kernel` have the arguments and the sources; docs/architecture.md says how a bank is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy as np

from kstream_worker.detectors import report
from kstream_worker.detectors.bets import TWO_SIDED
from kstream_worker.detectors.civil import DAY_MS, CivilClock
from kstream_worker.detectors.history import settle
from kstream_worker.detectors.ranks_arming import arm
from kstream_worker.detectors.ranks_columns import credit_from_now
from kstream_worker.detectors.ranks_guarantee import MANY, guarantee_of
from kstream_worker.detectors.ranks_keeping import warm_up_again
from kstream_worker.detectors.ranks_kernel import CLEARED, CROSSED, FULL, NOTICED, RECOVERED, walk
from kstream_worker.detectors.ranks_layout import (
    ALARM,
    ARMED,
    AUTO,
    AUTO_PERIODS_MS,
    BLOCKS,
    CLOCK,
    COUNT,
    DUE,
    EVERY,
    HELD,
    KEEPING,
    KEPT_SIZE,
    LEAD,
    MAX_PERIODS,
    NO_DEPENDENCE,
    NOT_STATIONARY,
    PHASE,
    PROFILES,
    RAISED,
    RATE,
    RESTLESS,
    S_SIZE,
    SEASON_STARTED,
    SEQ,
    SETTLING,
    STATIONARY,
    STEPS_SEQ,
    THIN,
    TRANSFORMS,
    UNTIL,
    WARM_SEQ,
    WARM_TIME,
    WHITEN,
    Options,
)
from kstream_worker.detectors.ranks_levels import stop_levels
from kstream_worker.detectors.ranks_recovery import OLD, OTHER, start_watch, where_now
from kstream_worker.detectors.ranks_report import guarantee_of_alarm, read_crossing, singles_of
from kstream_worker.detectors.ranks_rows import bytes_by_part, column_weights, make_layout, make_scratch
from kstream_worker.detectors.season_wait import season_wait
from kstream_worker.detectors.seasons import forget_half
from kstream_worker.detectors.streams import StreamBank, Walk
from kstream_worker.detectors.thresholds import WEEK_MS, escalator, samples_per_day
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

KIND = "ranks"
ROW = 7  # of what the numbers of a row mean: snapshots of other rows are refused
DEPENDENCE = {"none": NO_DEPENDENCE, "auto": AUTO, "whiten": WHITEN, "thin": THIN, "block": BLOCKS}
MIN_PERIOD_MS, MAX_PERIOD_MS = 1_000, 400 * 86_400_000
_SOON = 4  # an alarm after this part of the stated run length since the arming is no false one, most likely
ALTERNATIVES = {"two-sided": 0, "greater": 1}


class RankBank(StreamBank):
    """Change detectors of many keys that see one stream each; implements `ports.Bank`, one-sided.

    A key warms up for `warmup` samples; then it is armed. After an alarm, `rebase` forgets all and warms up
    again: the key is armed, and its alarm cleared, once the new warm-up is full and `dead_time_ms` of event time
    have passed. `hold` keeps bags, autoregressions and what was learned, sets the evidence to 0, raises nothing
    until `dead_time_ms` have passed, and then arms; from then on its guarantee is called `approximate`. Its alarm stays
    up, and may be repeated, until the bags have been renewed without another crossing. Either way an alarm is cleared
    when the regime from before it is back (`ranks_recovery`), and all that one change raises is one incident.

    Each alarm multiplies the key's threshold by `escalation`; the factor falls back to 1 within `escalation_decay_ms`
    (`thresholds`).

    With `dependence="auto"` the first two thirds of a warm-up are tested for serial dependence (Ljung-Box, 10
    lags); where it is found (p < .2/dims in any feature) every feature passes through an autoregression of order
    8 and its innovations are ranked; the guarantee is then `approximate`. `none` never does, `whiten` always. `thin`
    ranks one of so many samples, `block` means of so many, by the correlation time of the warm-up.

    Args:
        dims: features of a sample.
        feature_names: their names in reports; `f0`, `f1`, ... by default.
        arl: samples of one key between false alarms in the mean, at least; above 1, up to 1e20. The threshold of the
            evidence is twice that, without escalation.
        per_day: `arl` is the number of days between false alarms of one key instead. How many samples these are follows
            from the rate of samples (with scores) in the key's last warm-up; at least 1e3, at most 1e12.
        warmup: samples before a key is armed; by default 200 without tests of dependence, else 600 (compact: 400).
        dependence: `auto`, `none`, `whiten`, `thin` or `block`.
        period: seasons that are taken out: `none`, `auto` (a day and a week, once they are found), or up to three
            periods in milliseconds.
        time_zone: whose civil time seasons follow, a name of the tz database.
        on_alarm: `rebase` or `hold`.
        dead_time_ms: event time after an alarm in which the key raises no other, milliseconds.
        escalation: factor on the key's threshold for each alarm; 1: none.
        escalation_decay_ms: event time after an alarm in which that factor falls to 1, linearly on a logarithmic scale.
        profile: `default`, or `compact`: bags a quarter of the size and half the atoms. Slow drifts are found later or
            not at all; the guarantee is the same.
        alternative: `two-sided`, or `greater`: only features that rise raise alarms, and only by themselves and their
            means. The guarantee is the same.
        spikes: whether single samples far out are bet on, beyond what ranks can say. An alarm of that score has the
            guarantee `approximate`, whatever the key's own is.
        transform: `auto` takes the square root of a feature that looks like counts, or is never negative and skewed to
            the right, in the first part of the warm-up; `sqrt` of all features; `none` of none. Below zero it is
            minus the root of the size.
        explained: whether alarms have an explanation. It takes a history of the key's samples in its row, and is of no
            use where these are not what an alarm is about.
        seed: of random draws.
        capacity: slots at the start; the bank grows.

    Raises:
        ValueError: an argument is out of its range; says which.
    """

    against = "past"

    def __init__(
        self,
        dims: int,
        *,
        feature_names: Sequence[str] | None = None,
        arl: float = 1_000_000.0,
        per_day: bool = False,
        warmup: int | None = None,
        dependence: str = "auto",
        period: Sequence[int] | Literal["none", "auto"] = "none",
        time_zone: str = "UTC",
        on_alarm: str = "rebase",
        dead_time_ms: int = 0,
        escalation: float = 1.0,
        escalation_decay_ms: int = WEEK_MS,
        profile: str = "default",
        alternative: str = "two-sided",
        spikes: bool = True,
        transform: str = "auto",
        explained: bool = True,
        seed: int = 0,
        capacity: int = 64,
    ) -> None:
        _check(dims, warmup, dependence, on_alarm, dead_time_ms)
        rules = escalator(escalation, escalation_decay_ms, per_day=per_day)
        if profile not in PROFILES:
            raise ValueError(f"profile is {profile!r}; it must be one of {', '.join(map(repr, PROFILES))}")
        if alternative not in ALTERNATIVES:
            raise ValueError(f"alternative is {alternative!r}; it must be one of {', '.join(map(repr, ALTERNATIVES))}")
        if transform not in TRANSFORMS:
            raise ValueError(f"transform is {transform!r}; it must be one of {', '.join(map(repr, TRANSFORMS))}")
        if warmup is None:
            warmup = default_warmup(dependence, profile)
        self.feature_names = report.feature_names(feature_names, dims)
        self._hold = on_alarm == "hold"
        periods = _periods(period, dependence)
        if time_zone != "UTC" and any(length % DAY_MS for length in periods):
            raise ValueError("time_zone is for periods of whole days: clocks that are changed break up shorter ones")
        self._clock = CivilClock(time_zone)
        options = Options(profile, spikes, transform, explained, periods, period == "auto")
        shape = dims, warmup, DEPENDENCE[dependence], options
        layout = make_layout(*shape)._replace(upward=ALTERNATIVES[alternative])
        self._parts = bytes_by_part(*shape)
        self._plan = layout.table()
        self._weights = column_weights(layout)
        settings: dict[str, object] = {
            "row": ROW,
            "dims": dims,
            "warmup": warmup,
            "dependence": dependence,
            "on_alarm": on_alarm,
            "profile": profile,
            "spikes": spikes,
            "transform": transform,
            "explained": explained,
        }
        if periods:
            settings |= {"period": "auto" if period == "auto" else list(periods), "time_zone": time_zone}
        if layout.upward:
            settings["alternative"] = alternative
        compiled = Walk(walk, (self._plan, self._weights), make_scratch(layout))
        super().__init__(KIND, settings, seed, capacity, layout, compiled, arl, rules, dead_time_ms)

    def bytes_by_part(self) -> dict[str, int]:
        """Bytes of one key by what they are for; they add up to `bytes_per_key`."""
        return dict(self._parts)

    def follow(self, slots: IntColumn, scores: FloatMatrix, times: IntColumn) -> Scores:
        """As `update` of scores, of which some samples have none: a row of NaN counts as a sample, and is not ranked.

        Args:
            slots: int64[n].
            scores: float64[n, dims], each row finite or all NaN.
            times: int64[n], event times in milliseconds.

        Raises:
            ValueError: a shape does not fit, a slot is not allocated, or a row is neither; nothing has changed.
        """
        slots, scores, times = self._slots.check_samples(slots, scores, times, self._layout.dims, missing=True)
        known = np.isfinite(scores)
        if (known.any(axis=1) != known.all(axis=1)).any():
            raise ValueError("scores: a row holds NaN beside numbers; a sample has all scores or none")
        return self._answer(slots, scores, times)

    def _clocks(self, times: IntColumn) -> tuple[IntColumn, ...]:
        return times, self._clock.local(times) if self._layout.periods else times

    def _take(self, event: int, row: int, slot: int, evidence: float) -> tuple[int, list[Transition]]:
        if event == CROSSED:
            return row + 1, self._cross(row, slot, evidence)
        if event == NOTICED:
            return row, [self._told("notice", row, slot, "not_stationary", before=True)]
        if event == CLEARED:
            return row, [self._cleared(row, slot, "rearmed", before=True)]
        if event == RECOVERED:
            return row + 1, [self._recover(row, slot)]
        over = self._arm(slot) if event == FULL else self._calm(slot)
        return row + 1, [self._cleared(row, slot, "rearmed")] if over else []

    def _arm(self, slot: int) -> bool:
        """Arm a key whose warm-up is full; True if that clears its alarm."""
        floats, state = self._slots.floats[slot], self._slots.ints[slot]
        if not arm(floats, self._slots.shorts[slot], state, self._plan):
            return False
        span = state[COUNT] - 1 if state[KEEPING] == EVERY else state[SEQ] - state[WARM_SEQ]
        floats[RATE] = samples_per_day(int(span), int(state[WARM_TIME]), int(state[CLOCK]))
        settle(floats, state, self._plan)
        state[COUNT] = 0
        credit_from_now(state)
        state[LEAD] = state[DUE] = 0  # the new regime is the normal one: the old one's return is a change
        wait = season_wait(state, float(floats[RATE]), self._layout)
        if wait > 0:
            state[UNTIL] = max(int(state[UNTIL]), int(state[CLOCK]) + wait)
        waiting = state[CLOCK] < state[UNTIL]
        state[PHASE] = RAISED if waiting else ARMED
        if waiting or state[ALARM] == 0:
            return False
        self._end(slot)
        return True

    def _calm(self, slot: int) -> bool:
        """A held regime has become the bags' own; True if that clears its alarm.

        Not that of the means, which remembers 12,500 samples: it begins anew, or the same change would be another
        incident when their evidence arrives.
        """
        row, state, layout = self._slots.floats[slot], self._slots.ints[slot], self._layout
        was_up = bool(state[ALARM] == 1)
        state[SETTLING] = 0
        state[S_SIZE] = 0
        means = slice(layout.fixed, layout.learned)
        singles_of(row, layout.R, layout.bets)[means.start * TWO_SIDED : means.stop * TWO_SIDED] = 0.0
        row[layout.values :][means] = 0.0
        if was_up:
            self._end(slot)
        return was_up

    def _end(self, slot: int) -> None:
        """The alarm is over, in another regime than that of the older samples."""
        state = self._slots.ints[slot]
        state[ALARM] = 0
        state[KEPT_SIZE] = 0

    def _recover(self, row: int, slot: int) -> Transition:
        """The regime from before the alarm is back: go on with it."""
        state = self._slots.ints[slot]
        state[ALARM] = 0
        if self._hold:
            state[SETTLING] = 1
        else:
            warm_up_again(self._slots.floats[slot], state, self._plan)
        return self._cleared(row, slot, "recovered")

    def _cross(self, row: int, slot: int, evidence: float) -> list[Transition]:
        """The evidence has reached the threshold: raise an alarm, unless it is the old regime that came back."""
        rows = self._slots
        floats, state = rows.floats[slot], rows.ints[slot]
        crossing = read_crossing(floats, rows.shorts[slot], state, self._layout, self.feature_names)
        self._count_restless(slot)
        where = where_now(crossing.change_seq, floats, state, self._plan)
        if where == OLD:
            told = [self._recover(row, slot)] if state[ALARM] == 1 else []
            self._escalate(slot)
        else:
            told = self._superseded(row, slot, crossing, other=where == OTHER)
            if state[ALARM] == 0:
                start_watch(*self._sides(crossing), bool(told) or state[SETTLING] == 1, floats, state, self._plan)
            told.append(self._raised(row, slot, evidence, crossing))
            state[SETTLING] = 0
            self._put_up(slot)
        self._rearm(slot)
        return told

    def _continues(self, slot: int, crossing: report.Crossing) -> bool:
        """Whatever its side: that is one against bags which hold both regimes."""
        return super()._continues(slot, crossing._replace(direction="both"))

    def _sides(self, crossing: report.Crossing) -> tuple[int, int]:
        """The first sample that has changed, and the last one that has not."""
        found = crossing.explanation
        low = crossing.change_seq if found is None or found.change_seq_low is None else found.change_seq_low
        return crossing.change_seq, low - 1

    def _count_restless(self, slot: int) -> None:
        """A key that alarms again and again soon after its armings is not stationary, whatever a test says."""
        state = self._slots.ints[slot]
        soon = min(self._layout.warmup, self.arl(slot) / _SOON)
        state[RESTLESS] = state[RESTLESS] + 1 if state[SEQ] - state[STEPS_SEQ] <= soon else 0
        if state[RESTLESS] >= MANY:
            state[STATIONARY] = max(int(state[STATIONARY]), NOT_STATIONARY)

    def _rearm(self, slot: int) -> None:
        row, state = self._slots.floats[slot], self._slots.ints[slot]
        if self._hold:
            state[PHASE] = RAISED
            state[HELD] = 1
            stop_levels(row, self._plan)
            row[self._layout.R : self._layout.run_time + self._layout.locators] = 0.0
        else:
            warm_up_again(row, state, self._plan)
            if state[SEASON_STARTED] == 1:
                forget_half(row, self._plan)

    def _guarantee(self, slot: int) -> report.Guarantee:
        return guarantee_of(self._slots.ints[slot], self._standing(slot).arl, self._layout)

    def _guarantee_of_alarm(self, slot: int) -> report.Guarantee:
        return guarantee_of_alarm(self._slots.ints[slot], self._standing(slot).arl, self._layout, self._weights)


Column = TypeVar("Column", IntColumn, FloatMatrix)


def _periods(period: Sequence[int] | Literal["none", "auto"], dependence: str) -> tuple[int, ...]:
    """The periods that the layout has room for.

    Raises:
        ValueError: a word that is not known, more than three periods, one out of range, or no whitening.
    """
    periods: tuple[int, ...]
    if isinstance(period, str):
        if period not in ("none", "auto"):
            raise ValueError(f"period is {period!r}; it must be 'none', 'auto' or periods in milliseconds")
        periods = AUTO_PERIODS_MS if period == "auto" else ()
    else:
        periods = tuple(sorted(set(period)))
    if len(periods) > MAX_PERIODS or any(not MIN_PERIOD_MS <= p <= MAX_PERIOD_MS for p in periods):
        raise ValueError(f"period is {list(periods)}; at most {MAX_PERIODS} are taken out, of 1 s to 400 days each")
    if periods and dependence not in ("auto", "whiten"):
        raise ValueError(f"period needs dependence 'auto' or 'whiten', not {dependence!r}")
    return periods


def default_warmup(dependence: str, profile: str) -> int:
    """Samples of a warm-up: 200; with tests of dependence 600, or 400, which fit into the room of what follows."""
    if dependence == "none":
        return 200
    return 400 if profile == "compact" else 600


def _check(dims: int, warmup: int | None, dependence: str, on_alarm: str, dead_time_ms: int) -> None:
    if dims < 1:
        raise ValueError(f"dims is {dims}; a sample needs at least one feature")
    if dependence not in DEPENDENCE:
        raise ValueError(f"dependence is {dependence!r}; it must be one of {', '.join(map(repr, DEPENDENCE))}")
    low, high = (20, 2000) if dependence == "none" else (60, 6000)
    if warmup is not None and not low <= warmup <= high:
        raise ValueError(f"warmup is {warmup}; with dependence {dependence!r} it must lie in {low}..{high}")
    if on_alarm not in ("rebase", "hold"):
        raise ValueError(f"on_alarm is {on_alarm!r}; it must be 'rebase' or 'hold'")
    if dead_time_ms < 0:
        raise ValueError(f"dead_time_ms is {dead_time_ms}; it must not be negative")
