"""Changes of stated size that are put into a key's own history, and where they are put.

A change begins at one sample and stays until the horizon; it is made in one feature (of the live side), in units of
that feature's own spread. What is put in keeps what the feature is: values that come in steps stay in these steps,
and what is never negative stays so, else the change would give itself away by the first odd value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kstream_worker.calibration.history import KeyHistory
from kstream_worker.calibration.replay import ARMED, Replay
from kstream_worker.records import FloatColumn, FloatMatrix

RAMP_SPREADS = 2.0
_TIED = 0.5  # a feature with fewer different values than this share of its samples may come in steps
_STEP_TOLERANCE = 1e-6
_MOST_SORTED = 20_000


@dataclass(frozen=True, slots=True)
class Feature:
    """What a feature is, over the key's history.

    Attributes:
        spread: interquartile range / 1.349, as that of a normal law is its standard deviation; where that is 0, (95 %
            quantile - 5 % quantile) / 3.29; where that is 0 too, the standard deviation; 0 for a constant.
        step: values are multiples of it; 0 for none.
        nonnegative: no value was below 0.
    """

    spread: float
    step: float
    nonnegative: bool

    @classmethod
    def of(cls, values: FloatColumn) -> Feature:
        """Look at the values: float64[n], n >= 1."""
        q05, q25, q75, q95 = np.quantile(values, [0.05, 0.25, 0.75, 0.95]).tolist()
        largest = float(np.abs(values).max())
        deviation = largest * float((values / largest).std()) if largest else 0.0  # squares would overflow
        candidates = ((q75 - q25) / 1.349, (q95 - q05) / 3.29, deviation)
        floor = 1e-9 * largest
        spread = next((one for one in candidates if one > floor), 0.0)
        return cls(spread, _step_of(values), bool(values.min() >= 0.0))

    def possible(self, values: FloatColumn) -> FloatColumn:
        """The nearest values that the feature can have."""
        if self.step > 0.0:
            values = np.round(values / self.step) * self.step
        return np.maximum(values, 0.0) if self.nonnegative else values


def _step_of(values: FloatColumn) -> float:
    """The step of values that are multiples of one, else 0."""
    some = values[-_MOST_SORTED:]
    different = np.unique(some)
    if len(different) < 2 or len(different) > _TIED * len(some):
        return 0.0
    step = float(np.diff(different).min())
    steps = different / step
    off = np.abs(steps - np.round(steps))
    return step if bool((off < _STEP_TOLERANCE * np.maximum(1.0, np.abs(steps))).all()) else 0.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a change is made.

    Attributes:
        center: median of the feature just before.
        last: its last value before.
        spread: of the feature.
        sign: 1.0 or -1.0, the direction of a change of level.
    """

    center: float
    last: float
    spread: float
    sign: float


@dataclass(frozen=True, slots=True)
class Change:
    """A kind of change.

    Attributes:
        name: in reports.
        words: what it is.
        make: the feature's values from the change on, and where it is made; the changed values. float64[h] each.
    """

    name: str
    words: str
    make: Callable[[FloatColumn, Setting], FloatColumn]


def _shift(spreads: float) -> Callable[[FloatColumn, Setting], FloatColumn]:
    return lambda values, at: values + at.sign * spreads * at.spread


def _widen(factor: float) -> Callable[[FloatColumn, Setting], FloatColumn]:
    return lambda values, at: at.center + factor * (values - at.center)


def _stick(values: FloatColumn, at: Setting) -> FloatColumn:
    return np.full_like(values, at.last)


def _ramp(values: FloatColumn, at: Setting) -> FloatColumn:
    share = np.arange(1, len(values) + 1) / len(values)
    return values + at.sign * RAMP_SPREADS * at.spread * share


CHANGES = (
    Change("shift 1", "level of one feature off by 1 own spread", _shift(1.0)),
    Change("shift 2", "level of one feature off by 2 own spreads", _shift(2.0)),
    Change("spread x1.5", "deviations of one feature from its median 1.5 times as large", _widen(1.5)),
    Change("spread x2", "deviations of one feature from its median twice as large", _widen(2.0)),
    Change("stuck", "one feature stays at its last value", _stick),
    Change("ramp", "level of one feature off by 2 own spreads at the horizon, evenly growing until then", _ramp),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A change is made from `row` on in `feature`; `sign` is its direction, if it has one."""

    row: int
    feature: int
    sign: float


def horizon_of(replay: Replay, longest: int, shortest: int) -> int:
    """Samples within which a change should be found: a quarter of those that were armed, within limits.

    Returns:
        0 where that would be too short.
    """
    horizon = min(longest, replay.count(ARMED) // 4)
    return horizon if horizon >= shortest else 0


def eligible_rows(history: KeyHistory, replay: Replay, horizon: int) -> NDArray[np.int64]:
    """Rows where the key is armed, and goes on for a horizon in which its own history raises no alarm."""
    found: list[NDArray[np.int64]] = []
    alarms = np.zeros(len(history) + 1, dtype=np.int64)
    for alarm in replay.alarms:
        alarms[alarm.row + 1] += 1
    before = np.cumsum(alarms)  # alarms in rows below
    for first, last in history.lives():
        rows = np.arange(first + 1, last - horizon + 1)
        armed = (replay.states[rows - 1] == ARMED) & (replay.states[rows] == ARMED)
        quiet = before[rows + horizon] == before[rows - 1]
        found.append(rows[armed & quiet])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def choose_places(
    eligible: NDArray[np.int64], features: list[Feature], most: int, seed: int, key: bytes
) -> list[Place]:
    """Places spread over the eligible rows: one at a drawn row of each of `most` equal parts.

    Features that are constant are left out; the others, and the two directions, take turns.
    """
    moving = [j for j, feature in enumerate(features) if feature.spread > 0.0]
    if not moving or not len(eligible):
        return []
    places: dict[int, Place] = {}
    for i in range(most):
        at = int((i + _draw(seed, key, i)) / most * len(eligible))
        row = int(eligible[min(at, len(eligible) - 1)])
        sign = 1.0 if (i // len(moving)) % 2 == 0 else -1.0
        places.setdefault(row, Place(row, moving[i % len(moving)], sign))
    return [places[row] for row in sorted(places)]


def changed(history: KeyHistory, place: Place, change: Change, feature: Feature, horizon: int) -> FloatMatrix:
    """The live side from the place on with the change in it: float64[horizon, d]."""
    y = history.y[place.row : place.row + horizon].copy()
    values = y[:, place.feature]
    before = history.y[max(0, place.row - horizon) : place.row, place.feature]
    center = float(np.median(before))
    # Downwards only where there is room: what is counted cannot fall below 0.
    room = not feature.nonnegative or center - RAMP_SPREADS * feature.spread >= 0.0
    at = Setting(center, float(before[-1]), feature.spread, place.sign if room else 1.0)
    y[:, place.feature] = feature.possible(change.make(values, at))
    return y


def _draw(seed: int, key: bytes, i: int) -> float:
    person = b"place" + i.to_bytes(4, "little")
    digest = hashlib.blake2b(key, digest_size=8, key=seed.to_bytes(8, "little"), person=person).digest()
    return int.from_bytes(digest, "little") / 2**64
