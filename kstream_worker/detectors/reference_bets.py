"""Bets on ranks in a frozen reference, each less a tolerance for the chance by which that reference came out.

Given the reference, a payoff g of the rank (b = 1 - 2p, its negative, u = 1.5 b^2 - .5, its negative) has a conditional
mean that is not 0: for a score that does not depend on the n ranked members it is a mean over them, of standard
deviation 1/sqrt(3 n) for b and 1/sqrt(5 n) for u, whatever the law (ties make it smaller). With eps = z times that,

    1 + c (g - eps),   c in {.1, .25, .5, .8},   z = Phi^-1(1 - delta / number of payoffs of all columns)

has a conditional mean of at most 1 for all fixed scores at once with a probability of about 1 - delta over the
reference, and then for ever after. The four c of a payoff share that event. There are no power bets: their mean
given the reference is not bounded so.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.bets import BOTH, DOWN, UP
from kstream_worker.numerics.jit import inline

PAYOFFS = 4  # b, -b, u, -u
LEARNED_PAYOFFS = 1  # b
STAKES = 4
SIDED_BETS = PAYOFFS * STAKES
LEARNED_BETS = LEARNED_PAYOFFS * STAKES
BOLDEST = 0.8

# How the score moved when payoff k pays most.
PAYOFF_DIRECTION = (UP, DOWN, BOTH, BOTH)

LINEAR = 1.0 / math.sqrt(3.0)  # standard deviations of b and u for uniform p
_SQUARE = 1.0 / math.sqrt(5.0)


def tolerance(delta: float, fixed: int) -> float:
    """z = Phi^-1(1 - delta / number of payoffs).

    Rounded to six digits: its last ones would depend on the machine's mathematical library, and no decision may.

    Args:
        delta: in (0, .5).
        fixed: columns of fixed scores; the learned one comes on top.
    """
    return round(NormalDist().inv_cdf(1.0 - delta / (fixed * PAYOFFS + LEARNED_PAYOFFS)), 6)


def is_playable(z: float, ranked: int) -> bool:
    """Whether every multiplier stays positive, with ranks among `ranked` samples."""
    return BOLDEST * (1.0 + z * LINEAR / math.sqrt(ranked)) < 1.0


@inline
def payoff(p: float, kind: int) -> float:
    """b, -b, u or -u of p."""
    b = 1.0 - 2.0 * p
    size: float = b if kind < 2 else 1.5 * b * b - 0.5
    return size if kind % 2 == 0 else -size


@inline
def sided(p: float, off: float, g: NDArray[np.float64]) -> None:
    """Write the 16 multipliers of p in [0, 1] to g (float64[>= 16]): of b, -b, u, -u, stakes ascending in each.

    Args:
        p: p-value.
        off: z / sqrt(n), n members of the reference that p ranks in.
        g: filled.
    """
    b = 1.0 - 2.0 * p
    u = 1.5 * b * b - 0.5
    _stake(b - off * LINEAR, g, 0)
    _stake(-b - off * LINEAR, g, STAKES)
    _stake(u - off * _SQUARE, g, 2 * STAKES)
    _stake(-u - off * _SQUARE, g, 3 * STAKES)


@inline
def one_sided(p: float, off: float, g: NDArray[np.float64]) -> None:
    """Write the 4 multipliers that small p alone pay to g (float64[>= 4]); arguments as of `sided`."""
    _stake(1.0 - 2.0 * p - off * LINEAR, g, 0)


@inline
def _stake(payoff: float, g: NDArray[np.float64], first: int) -> None:
    g[first] = 1.0 + 0.1 * payoff
    g[first + 1] = 1.0 + 0.25 * payoff
    g[first + 2] = 1.0 + 0.5 * payoff
    g[first + 3] = 1.0 + BOLDEST * payoff
