"""How long the detector takes to find changes that are put into a key's own history, and how often it finds them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from kstream_worker.calibration.changes import (
    CHANGES,
    Feature,
    Place,
    changed,
    choose_places,
    eligible_rows,
    horizon_of,
)
from kstream_worker.calibration.history import KeyHistory
from kstream_worker.calibration.replay import ARMED, Replay, first_alarm, snapshots
from kstream_worker.ports import Bank

PLACES = 12  # of a key
LONGEST_HORIZON = 2_000
SHORTEST_HORIZON = 50


@dataclass(slots=True)
class Trials:
    """What became of one kind of change at all places; infinite where it was not found within the horizon.

    Attributes:
        samples: changed samples until the alarm, the one that raised it included.
        seconds: event time from the first changed sample to the alarm; not a number where times are unknown.
    """

    samples: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, found: int | None, seconds: float) -> None:
        """One place: rows from the first changed sample to that of the alarm; None for no alarm."""
        self.samples.append(math.inf if found is None else found + 1.0)
        self.seconds.append(math.inf if found is None else seconds)

    def extend(self, other: Trials) -> None:
        """Those of another key."""
        self.samples += other.samples
        self.seconds += other.seconds


@dataclass(frozen=True, slots=True)
class Delay:
    """A summary over places. A delay is None where that share of the places was not reached within the horizon.

    Attributes:
        change: its name.
        places: where it was put in.
        found: of these, followed by an alarm within the horizon.
        median_samples: half of the places were found within so many changed samples.
        p90_samples: 90 % of them.
        median_s: the same in event time; None also where times are unknown.
        p90_s: 90 % of them.
    """

    change: str
    places: int
    found: int
    median_samples: int | None
    p90_samples: int | None
    median_s: float | None
    p90_s: float | None

    @property
    def share(self) -> float | None:
        """Of the places that was found; None for no places."""
        return self.found / self.places if self.places else None

    @classmethod
    def of(cls, change: str, trials: Trials) -> Delay:
        """The summary of all places."""
        found = sum(math.isfinite(one) for one in trials.samples)
        median, p90 = _reached(trials.samples, 0.5), _reached(trials.samples, 0.9)
        return cls(
            change,
            len(trials.samples),
            found,
            None if median is None else int(median),
            None if p90 is None else int(p90),
            _reached(trials.seconds, 0.5),
            _reached(trials.seconds, 0.9),
        )


@dataclass(slots=True)
class KeyTrials:
    """All changes put into one key's history.

    Attributes:
        horizon: samples after a change within which an alarm counts as finding it; 0 for too short a history.
        by_change: what became of each.
        last_arming: level and reason of the guarantee that the key's last armed state has; None where it was never
            armed.
    """

    horizon: int
    by_change: dict[str, Trials]
    last_arming: tuple[str, str] | None = None


def try_changes(bank: Bank, history: KeyHistory, replay: Replay, seed: int) -> KeyTrials:
    """Put each change into the history at each place, one at a time, and let the detector go on from its state there.

    Args:
        bank: of the configured detector; as before afterwards.
        history: of the key.
        replay: of the same detector on this history.
        seed: of the places.
    """
    horizon = horizon_of(replay, LONGEST_HORIZON, SHORTEST_HORIZON)
    features = [Feature.of(column) for column in history.y.T]
    found = KeyTrials(horizon, {change.name: Trials() for change in CHANGES})
    eligible = eligible_rows(history, replay, horizon) if horizon else np.zeros(0, dtype=np.int64)
    places = {place.row: place for place in choose_places(eligible, features, PLACES, seed, history.key)}
    armed = np.flatnonzero(replay.states == ARMED)
    last = {int(armed[-1])} if len(armed) else set()
    slot = bank.allocate(history.key)
    for row, state in snapshots(bank, history, places.keys() | last):
        if row in places:
            _try_place(bank, slot, state, history, places[row], features[places[row].feature], found)
        if row in last:
            bank.restore(slot, state)
            found.last_arming = bank.guarantee(slot)
    bank.free(slot)
    return found


def _try_place(
    bank: Bank, slot: int, state: bytes, history: KeyHistory, place: Place, feature: Feature, found: KeyTrials
) -> None:
    x, _, times = history.part(place.row, place.row + found.horizon)
    for change in CHANGES:
        bank.restore(slot, state)
        alarm = first_alarm(bank, slot, x, changed(history, place, change, feature, found.horizon), times)
        row = None if alarm is None else alarm.row
        known = row is not None and times[0] >= 0
        seconds = (int(times[row]) - int(times[0])) / 1000 if known else math.nan
        found.by_change[change.name].add(row, seconds)


def _reached(delays: list[float], share: float) -> float | None:
    """The delay within which this share of all places was found."""
    if not delays or any(math.isnan(one) for one in delays):
        return None
    delay = sorted(delays)[math.ceil(share * len(delays)) - 1]
    return delay if math.isfinite(delay) else None
