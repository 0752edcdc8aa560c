"""How far the spectrum of the last pairs lies from that of the operator: the spectral change score.

An eigenfunction f with its eigenvalue l has E[f(y) | x] = l f(x) (paper 003, section 4). So its misfits conj(f(x))
(f(y) - l f(x)) are of mean 0 while the operator is right. Their sum, divided by that of |f(x)|^2, is by how much the
eigenvalue of the last pairs in that direction differs from l, also where the dynamics change without a change of the
eigenvalues themselves. Divided by the root of their squares' sum it is that difference in standard errors.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.models import nystrom
from kstream_worker.models.koopman.layout import PER_SHIFT, Plan
from kstream_worker.numerics.jit import inline
from kstream_worker.numerics.outline import outline

KEEP = 0.95  # forgetting: some twenty pairs


@inline
def start_shift(plan: Plan, row: np.ndarray, k: int) -> None:
    """Mode k is another one from now on."""
    for i in range(PER_SHIFT):
        row[plan.at_shifts + PER_SHIFT * k + i] = 0.0


@inline
def spectral_change(plan: Plan, row: np.ndarray, found: int, before: np.ndarray, after: np.ndarray) -> float:
    """Join a pair to the modes' recent misfits, and tell these in standard errors.

    The mode whose eigenvalue is nearest to 1 is left out: it is the constant function, which says nothing.

    Args:
        plan: of the bank.
        row: of the key, changed.
        found: modes known.
        before: float64[room], features of x.
        after: float64[room], features of y on the x side.

    Returns:
        root mean square over the other modes; NaN where there is none.
    """
    outline()
    room = plan.op.room
    total = 0.0
    count = 0
    constant = _nearest_to_one(plan, row, found)
    for k in range(found):
        at = plan.op.at_functions + 2 * k * room
        re, im = row[at : at + room], row[at + room : at + 2 * room]
        x_re, x_im = nystrom.dot(re, before, room), nystrom.dot(im, before, room)
        l_re, l_im = row[plan.at_values + 2 * k], row[plan.at_values + 2 * k + 1]
        off_re = nystrom.dot(re, after, room) - (l_re * x_re - l_im * x_im)
        off_im = nystrom.dot(im, after, room) - (l_re * x_im + l_im * x_re)
        own = row[plan.at_shifts + PER_SHIFT * k : plan.at_shifts + PER_SHIFT * (k + 1)]
        missed_re = x_re * off_re + x_im * off_im
        missed_im = x_re * off_im - x_im * off_re
        own[0] = KEEP * own[0] + missed_re
        own[1] = KEEP * own[1] + missed_im
        own[2] = KEEP * KEEP * own[2] + missed_re * missed_re + missed_im * missed_im
        if k != constant and own[2] > 0.0:
            total += (own[0] * own[0] + own[1] * own[1]) / own[2]
            count += 1
    return math.sqrt(total / count) if count > 0 else math.nan


@inline
def _nearest_to_one(plan: Plan, row: np.ndarray, found: int) -> int:
    best = -1
    least = math.inf
    for k in range(found):
        re, im = row[plan.at_values + 2 * k] - 1.0, row[plan.at_values + 2 * k + 1]
        if re * re + im * im < least:
            least = re * re + im * im
            best = k
    return best
