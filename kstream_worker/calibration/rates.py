"""Alarms in history beside the rate that is stated.

How many alarms of independent chance there are in n samples is at most about Poisson with mean n / A, where A is the
stated average run length. The interval of a counted rate is the exact one (Garwood, Fiducial limits for the Poisson
distribution, Biometrika 28, 1936). History may hold real changes, whose alarms are right: a count above the stated one
says that there are such, or that the statement does not hold for these data; the count alone cannot tell which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import gammainc, gammaincinv

LEVEL = 0.95
_SURPRISING = 0.01


@dataclass(frozen=True, slots=True)
class Rate:
    """Alarms among so many armed samples, beside what is stated.

    Attributes:
        alarms: in history, whether of chance or of real changes.
        armed: samples at which an alarm was possible.
        allowed: most alarms of chance among these, in the mean: samples divided by the stated average run length.
    """

    alarms: int
    armed: int
    allowed: float

    @property
    def stated_per_1e5(self) -> float | None:
        """Most alarms of chance in 100,000 armed samples, in the mean; None where there were none."""
        return 1e5 * self.allowed / self.armed if self.armed else None

    @property
    def per_1e5(self) -> float | None:
        """Alarms in 100,000 armed samples; None where there were none."""
        return 1e5 * self.alarms / self.armed if self.armed else None

    def interval_per_1e5(self) -> tuple[float, float] | None:
        """The exact 95 % interval of that rate, as if alarms came independently; None without armed samples."""
        if not self.armed:
            return None
        low, high = poisson_interval(self.alarms)
        return 1e5 * low / self.armed, 1e5 * high / self.armed

    @property
    def chance(self) -> float:
        """Probability of at least as many alarms by chance alone, if the stated rate holds."""
        return 1.0 if not self.alarms else float(gammainc(self.alarms, self.allowed))

    @property
    def verdict(self) -> str:
        """`more`, `fewer` or `unclear`: than stated, or too little history to tell."""
        if self.alarms and self.chance < _SURPRISING:
            return "more"
        return "fewer" if poisson_interval(self.alarms)[1] < self.allowed else "unclear"


WORDS = {
    "more": "more alarms than chance explains at the stated rate: real changes, or a statement that does not hold here",
    "fewer": "fewer alarms than stated",
    "unclear": "no more alarms than chance may explain at the stated rate; too little history to show fewer",
}


def poisson_interval(count: int) -> tuple[float, float]:
    """The exact 95 % interval of the mean of a Poisson variable of which `count` was seen."""
    tail = (1.0 - LEVEL) / 2.0
    low = float(gammaincinv(count, tail)) if count else 0.0
    return low, float(gammaincinv(count + 1, 1.0 - tail))


def pooled(rates: Iterable[Rate]) -> Rate:
    """All keys together."""
    alarms, armed, allowed = 0, 0, 0.0
    for rate in rates:
        alarms, armed, allowed = alarms + rate.alarms, armed + rate.armed, allowed + rate.allowed
    return Rate(alarms, armed, allowed)
