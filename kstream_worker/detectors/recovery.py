"""Bets that a change is over: a Shiryaev-Roberts statistic against "its score still pays". Compiled.

While an alarm is up, the score that led it has a payoff b within +-1, turned so that its mean is positive while the
change lasts and about 0 once it is over. Against "the mean of b, given the past, is still at least m" a bet 1 + c (m -
b) has a mean of at most 1, so R <- (R + a) (1 + c (m - b)), a the samples per test, reaches A, while that is so, on
average once in A samples at the earliest: R less the samples so far is a supermartingale, whatever the law of b (as in
`ranks_kernel`).
"""

from __future__ import annotations

import numpy as np

from kstream_worker.numerics.jit import inline

WRONG_EVERY = 10_000.0  # samples, at least in the mean, until a change that lasts is said to be over
SLIGHT = 0.1  # of the threshold: evidence of a key that is calm


@inline
def stake(margin: float, variance: float) -> float:
    """c that pays best once the change is over; every bet is positive."""
    best: float = min(margin / (variance + margin * margin), 0.9)
    return best


@inline
def bet_back(back: float, samples: int, margin: float, variance: float, payoff: float) -> float:
    """R after one more test.

    Args:
        back: R.
        samples: that the test stands for.
        margin: m.
        variance: of b once the change is over.
        payoff: b.
    """
    after: float = (back + samples) * (1.0 + stake(margin, variance) * (margin - payoff))
    return after


@inline
def has_paid(row: np.ndarray, at: int, samples: int, margin: float, variance: float, payoff: float) -> bool:
    """Bet in place, `row[at]` being R; whether that pays enough. Then R begins anew."""
    row[at] = bet_back(row[at], samples, margin, variance, payoff)
    if row[at] < WRONG_EVERY:
        return False
    row[at] = 0.0
    return True


@inline
def is_over(
    row: np.ndarray, at: int, margin: float, variance: float, payoff: float, evidence: float, threshold: float
) -> bool:
    """Whether what raised an alarm is gone: its score pays no more, and no other has begun to.

    Args:
        row: the key's floats, R at `at`.
        at: where R stands.
        margin: m.
        variance: of the payoff once the change is over.
        payoff: of this sample.
        evidence: of the key.
        threshold: of the key.
    """
    return has_paid(row, at, 1, margin, variance, payoff) and evidence < SLIGHT * threshold
