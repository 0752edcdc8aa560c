"""The threshold of a key: its own rate, and the escalation that former alarms leave behind.

Each alarm multiplies the key's threshold by `escalation`; on a logarithmic scale the factor in force falls linearly to
1 within `decay_ms` of event time after the last alarm. The factor only ever raises a threshold, so that a bound on the
rate of false alarms stays one.

Evidence is not told apart beyond `LARGEST`. So a key whose threshold lies above raises nothing until it has fallen,
which bounds the alarms of one that never comes to rest, whatever its samples are: `alarms_per_decay`.

Where a fleet of keys shares a budget of false alarms per day, a key's average run length is its own rate of samples per
day, as found in its warm-up, times the days that one key may go without a false alarm.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import exp, log

DAY_MS = 86_400_000.0
LOWEST_ARL, HIGHEST_ARL = 1e3, 1e12  # of a key whose run length follows from its rate
LARGEST = 1e30
WEEK_MS = 604_800_000

# Entries of a rule as kernels take it.
SETTING, PER_DAY, UNIT, DECAY_MS = range(4)


class Escalator(NamedTuple):
    """What alarms do to the threshold of their key.

    Attributes:
        factor: by which each alarm raises it; 1: alarms leave it as it is.
        decay_ms: event time in which that falls to 1.
        per_day: the run length is given in days of the key's own rate.
    """

    factor: float
    decay_ms: int
    per_day: bool

    def settings(self) -> dict[str, object]:
        """What shapes state, for the fingerprint."""
        return {"escalation": self.factor, "escalation_decay_ms": self.decay_ms, "per_day": self.per_day}

    def rule(self, setting: float, unit: float) -> NDArray[np.float64]:
        """float64[4] for `threshold_of`.

        Args:
            setting: the average run length, or days per false alarm of one key.
            unit: threshold per run length.
        """
        return np.array([setting, float(self.per_day), unit, float(self.decay_ms)])

    def raised(self, level: float, since: int, clock: int) -> float:
        """Natural logarithm of the factor in force after one more alarm at `clock`; arguments as of `escalation_at`."""
        return float(raised_level(level, since, clock, float(self.decay_ms), self.factor))


class Standing(NamedTuple):
    """How a key stands at a moment: average run length, escalation, threshold, false alarms to be expected per day."""

    arl: float
    escalation: float
    threshold: float
    false_alarms_per_day: float


def escalator(escalation: float, escalation_decay_ms: int, *, per_day: bool = False) -> Escalator:
    """The rules, checked.

    Raises:
        ValueError: an argument is out of its range; says which.
    """
    if not 1.0 <= escalation <= 1e6:
        raise ValueError(f"escalation is {escalation}; it must lie in 1..1e6 (1: alarms do not raise the threshold)")
    if escalation_decay_ms < 1:
        raise ValueError(f"escalation_decay_ms is {escalation_decay_ms}; it must be at least 1")
    return Escalator(float(escalation), escalation_decay_ms, per_day)


@inline
def escalation_at(level: float, since: int, clock: int, decay_ms: float) -> float:
    """The factor in force.

    Args:
        level: natural logarithm of the factor right after the last alarm.
        since: event time of that alarm.
        clock: event time now.
        decay_ms: event time in which it falls to 1.
    """
    if level <= 0.0:
        return 1.0
    left = 1.0 - (np.float64(clock) - np.float64(since)) / decay_ms
    return exp(level * left) if left > 0.0 else 1.0


@inline
def arl_of(rate: float, rule: np.ndarray) -> float:
    """The key's average run length, without escalation; NaN before its rate is known where it depends on that.

    Args:
        rate: samples per day, 0 where not known yet, inf where event times do not differ.
        rule: float64[4].
    """
    if rule[PER_DAY] == 0.0:
        arl: float = rule[SETTING]
        return arl
    if rate == 0.0:
        return math.nan
    own: float = min(max(rate * rule[SETTING], LOWEST_ARL), HIGHEST_ARL)
    return own


@inline
def threshold_of(rate: float, level: float, since: int, clock: int, rule: np.ndarray) -> float:
    """What the evidence must reach; NaN (which nothing reaches) where the key's rate must be known and is not."""
    threshold: float = rule[UNIT] * arl_of(rate, rule)
    if level > 0.0:
        threshold *= escalation_at(level, since, clock, rule[DECAY_MS])
    return threshold


@jit
def state_of(rate: float, level: float, since: int, clock: int, rule: np.ndarray) -> tuple[float, float, float]:
    """Average run length, escalation and threshold of a key at a moment."""
    return (
        arl_of(rate, rule),
        escalation_at(level, since, clock, rule[DECAY_MS]),
        threshold_of(rate, level, since, clock, rule),
    )


@jit
def raised_level(level: float, since: int, clock: int, decay_ms: float, factor: float) -> float:
    """As `Escalator.raised`."""
    return log(escalation_at(level, since, clock, decay_ms)) + log(factor)


def samples_per_day(samples: int, first_ms: int, last_ms: int) -> float:
    """Rate over a span; inf where it has no length."""
    span = float(last_ms) - float(first_ms)
    return samples * DAY_MS / span if span > 0.0 else math.inf


def standing_of(rate: float, level: float, since: int, clock: int, rule: NDArray[np.float64]) -> Standing:
    """How a key stands at a moment; arguments as of `threshold_of`."""
    arl, escalation, threshold = (float(value) for value in state_of(rate, level, since, clock, rule))
    per_day = rate / (arl * escalation) if 0.0 < rate < math.inf else math.nan
    return Standing(arl, escalation, threshold, per_day)


def alarms_per_decay(arl: float, unit: float, factor: float) -> tuple[float, float]:
    """How many alarms a key can raise at most: at once, and then in every `decay_ms` of event time.

    An alarm needs a threshold of at most `LARGEST` before it, a factor of F = LARGEST / (unit arl). Without decay
    log F / log(factor) + 1 alarms reach that. From then on each adds log(factor), and in `decay_ms` the level falls by
    at most log F + log(factor).

    Args:
        arl: average run length.
        unit: threshold per run length.
        factor: above 1.
    """
    room = math.log(LARGEST / (unit * arl)) / math.log(factor)
    return math.floor(room) + 1.0, room + 1.0
