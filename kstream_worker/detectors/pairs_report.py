"""What a key's state says when its evidence crosses: score, direction, change time, features. Decides nothing, but for
the `Lead`: by which score an alarm is watched for its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.battery import RUN_STAKES, STAKES
from kstream_worker.detectors.explanation import explain
from kstream_worker.detectors.pairs_kernel import VARIANCE
from kstream_worker.detectors.pairs_remembered import PairKey
from kstream_worker.detectors.pairs_state import (
    ATOMS,
    ESTIMATORS,
    MIDDLE,
    NARROW,
    SEQ,
    SINCE,
    WIDE,
    Plan,
    column_weights,
)
from kstream_worker.models import nystrom
from kstream_worker.numerics.jit import jit
from kstream_worker.numerics.math import exp, log

Row = NDArray[np.float64]

_AS_SURE = 0.7  # share of the largest logarithm of a statistic
_SURER = 0.85  # the same of a learned one, which sees all changes
_HALF = 0.5  # of a difference that lasts
_WIDTH_FACTORS = {WIDE: 1.0, MIDDLE: 4.0, NARROW: 16.0}  # of the kernel's gain, relative to the wide one


class Bets(NamedTuple):
    """Bets of one key, of 1 + c b (up) of all columns and 1 - c b (down) of the fixed ones, by stake c."""

    means: NDArray[np.float64]  # [columns] mean R over the bets of each column
    held: NDArray[np.float64]  # [stakes, 2, columns] R, 0 for `down` of the learned columns
    runs: NDArray[np.float64]  # [stakes of runs, 2, columns] products
    run_seq: NDArray[np.float64]
    run_time: NDArray[np.float64]


class Lead(NamedTuple):
    """By what an alarm is watched for its end: the column, the side to which it moved (1 or -1), and the margin."""

    column: int
    side: int
    margin: float


def read_crossing(
    row: Row, state: NDArray[np.int64], plan: Plan, names: tuple[str, ...]
) -> tuple[report.Crossing, Lead]:
    """Read the crossing from a key's state: what its bets say, and what the last pairs say of the change; and the lead.

    The change is where those split best, or where the best-paying run of bets began, if that lies before them.

    Args:
        row: float64[plan.floats], the key's floats.
        state: int64[INTS + plan.length], the key's integers.
        plan: of the row.
        names: of the features.
    """
    bets = _bets(row, plan)
    lead = _lead(bets, plan)
    scores = report.fixed_scores(names, radius=True, products=bool(plan.products), squares=True)
    crossed = lead.column if lead.column < len(scores) else None
    crossing = _read_bets(bets, row, state, plan, names, scores, alone=crossed is None)
    told = explain(PairKey(row, state, plan, names, scores, crossed, dict(crossing.features)), crossed)
    if told is None:
        return crossing, lead
    if told.explanation.change_seq_low is None and crossing.change_seq <= state[SEQ] - plan.length:
        told = told._replace(change_seq=crossing.change_seq, change_time=crossing.change_time)
    return crossing._replace(**told._asdict()), lead


def _read_bets(
    bets: Bets,
    row: Row,
    state: NDArray[np.int64],
    plan: Plan,
    names: tuple[str, ...],
    scores: tuple[report.Score, ...],
    *,
    alone: bool,
) -> report.Crossing:
    """What bets alone say.

    The leading score is `learned` where the ensemble has the largest share of the evidence, else the simplest fixed
    score (coordinates before the radius before products) that is about as sure as the surest. The change is where the
    best-paying run of that score began, for `learned` of all: fixed scores need not learn first. Features are weighed
    by the logarithm of R per pair of each score they are part of; where no fixed score is about as sure as the learned
    one (`alone`), by how much the leading estimate varies along them. Direction is that of the leading score, or for
    `learned` of the first feature.
    """
    share = column_weights(plan) * bets.means
    learned = float(share[plan.fixed :].sum()) >= float(share[: plan.fixed].max())
    pairs = max(1, int(state[SEQ] - state[SINCE]))
    paid = [0.0 if alone else log(max(mean / pairs, 1.0)) for mean in bets.means[: plan.scores].tolist()]
    estimate = int(np.argmax(share[plan.fixed : plan.fixed + ESTIMATORS]))
    slopes = _variation(row, int(state[ATOMS]), plan, estimate)
    features = report.share_evidence(names, scores, paid, slopes)
    leading = names.index(features[0][0]) if learned else _simplest(bets.means[: plan.scores])
    candidates = bets.runs if learned else np.where(np.arange(plan.columns) == leading, bets.runs, 0.0)
    at = np.unravel_index(int(np.argmax(candidates)), candidates.shape)
    return report.Crossing(
        score=report.LEARNED if learned else scores[leading].name,
        change_seq=int(bets.run_seq[at]),
        change_time=int(bets.run_time[at]),
        direction=report.direction_of(*bets.held[:, :, leading].max(axis=0).tolist()),
        features=features,
    )


def _lead(bets: Bets, plan: Plan) -> Lead:
    """By what the alarm that is being raised is watched.

    The simplest of the surest fixed scores, unless a learned one is surer: `rebase` makes that forget what it knew. The
    stake c that pays best is about the mean of its payoffs b over that of b^2 (J. L. Kelly, A new interpretation of
    information rate, Bell System Technical Journal 35, 1956): the margin is half of that mean, with the stakes' mean
    weighted by R.
    """
    fixed, learned = bets.means[: plan.scores], bets.means[plan.fixed : plan.fixed + ESTIMATORS]
    alone = _sureness(fixed.max()) < _SURER * _sureness(learned.max())
    column = plan.fixed + int(np.argmax(learned)) if alone else _simplest(fixed)
    up, down = bets.held[:, 0, column].tolist(), bets.held[:, 1, column].tolist()
    held, side = (up, 1) if max(up) >= max(down) else (down, -1)
    weighted = weight = 0.0
    for c, R in zip(STAKES, held, strict=True):
        weighted += c * R
        weight += R
    return Lead(column, side, _HALF * VARIANCE * weighted / weight)


def _bets(row: Row, plan: Plan) -> Bets:
    columns, fixed, stakes = plan.columns, plan.fixed, len(STAKES)

    def both(at: int) -> NDArray[np.float64]:
        flat = row[at : at + plan.runs].reshape(len(RUN_STAKES), columns + fixed)
        table = np.zeros((len(RUN_STAKES), 2, columns))
        table[:, 0] = flat[:, :columns]
        table[:, 1, :fixed] = flat[:, columns:]
        return table

    statistic = row[plan.at_statistic : plan.at_statistic + plan.bets]
    held = np.zeros((stakes, 2, columns))
    held[:, 0] = statistic[: stakes * columns].reshape(stakes, columns)
    held[:, 1, :fixed] = statistic[stakes * columns :].reshape(stakes, fixed)
    means = np.zeros(columns)
    for of_stake in held:  # in this order on every machine
        means += of_stake[0]
        means += of_stake[1]
    means[:fixed] /= 2 * stakes
    means[fixed:] /= stakes
    return Bets(means, held, both(plan.at_runs), both(plan.at_run_seq), both(plan.at_run_time))


def _sureness(mean: float) -> float:
    return log(max(float(mean), 1.0))


def _simplest(means: NDArray[np.float64]) -> int:
    enough = _AS_SURE * _sureness(means.max())
    return next(c for c, mean in enumerate(means.tolist()) if _sureness(mean) >= enough)


def _variation(row: Row, m: int, plan: Plan, estimate: int) -> list[float]:
    """Mean square of the estimate's slope along each feature, over the atoms."""
    atoms = row[plan.at_atoms : plan.at_wide].reshape(plan.dims, plan.room)[:, :m]
    gain = float(row[plan.at_gain]) * _WIDTH_FACTORS[estimate]
    inverse = row[{WIDE: plan.at_wide, MIDDLE: plan.at_middle, NARROW: plan.at_narrow}[estimate] :]
    w = row[plan.at_w + estimate * plan.room :]
    weights = np.empty(m)
    nystrom.dual_weights(inverse, m, w, weights)
    found: list[float] = _mean_squares(np.ascontiguousarray(atoms), weights, gain).tolist()
    return found


@jit
def _mean_squares(atoms: np.ndarray, weights: np.ndarray, gain: float) -> np.ndarray:
    """float64[d], over the atoms (float64[d, m]), of the slope of a sum of kernels with these weights (float64[m])."""
    d, m = atoms.shape
    out = np.zeros(d)
    slope = np.empty(d)
    for i in range(m):
        slope[:] = 0.0
        for k in range(m):
            square = 0.0
            for j in range(d):
                square += (atoms[j, i] - atoms[j, k]) ** 2
            height = 2.0 * gain * weights[k] * exp(gain * square)
            for j in range(d):
                slope[j] += height * (atoms[j, i] - atoms[j, k])
        for j in range(d):
            out[j] += slope[j] * slope[j] / m
    return out
