"""Alarms in history beside the rate that is stated.

How many alarms of independent chance there are in n samples is at most about Poisson with mean n / A, where A is the
stated average run length. The interval of a counted rate is the exact one (Garwood, Fiducial limits for the Poisson
distribution, Biometrika 28, 1936). History may hold real changes, whose alarms are right: a count above the stated one
says that there are such, or that the statement does not hold for these data; the count alone cannot tell which.
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import gammainc, gammaincinv

LEVEL = 0.95
_SURPRISING = 0.01


@dataclass(frozen=True, slots=True)
class Rate:
    """Alarms among so many armed samples, at a stated average run length.

    Attributes:
        alarms: in history, whether of chance or of real changes.
        armed: samples at which an alarm was possible.
        arl: stated.
    """

    alarms: int
    armed: int
    arl: float

    @property
    def stated_per_1e5(self) -> float:
        """Most alarms of chance in 100,000 samples, in the mean."""
        return 1e5 / self.arl

    @property
    def allowed(self) -> float:
        """Most alarms of chance among the armed samples, in the mean."""
        return self.armed / self.arl

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
        interval = self.interval_per_1e5()
        return "fewer" if interval is not None and interval[1] < self.stated_per_1e5 else "unclear"


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


def pooled(rates: list[Rate]) -> Rate:
    """All keys together; of equal stated run lengths.

    Raises:
        ValueError: none are given, or the run lengths differ.
    """
    arls = {rate.arl for rate in rates}
    if len(arls) != 1:
        raise ValueError(f"rates of {len(arls)} different run lengths cannot be pooled")
    return Rate(sum(rate.alarms for rate in rates), sum(rate.armed for rate in rates), arls.pop())
