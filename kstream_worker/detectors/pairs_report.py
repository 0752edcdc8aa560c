"""What a key's state says when its evidence crosses: score, direction, change time, features. Decides nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.battery import RUN_STAKES, STAKES
from kstream_worker.detectors.pairs_state import ATOMS, ESTIMATORS, MIDDLE, NARROW, WIDE, Plan, column_weights
from kstream_worker.models import nystrom

Row = NDArray[np.float64]

_AS_SURE = 0.7  # share of the largest logarithm of a statistic
_SMALLEST_RUN = 10.0  # a run has to have paid this much to say anything about its features or direction
_WIDTH_FACTORS = {WIDE: 1.0, MIDDLE: 4.0, NARROW: 16.0}  # of the kernel's gain, relative to the wide one


class Bets(NamedTuple):
    """Bets of one key. Runs are of 1 + c b (up) of all columns and 1 - c b (down) of the fixed ones, by stake c."""

    means: NDArray[np.float64]  # [columns] mean R over the bets of each column
    runs: NDArray[np.float64]  # [stakes, 2, columns] products, 0 for `down` of the learned columns
    run_seq: NDArray[np.float64]
    run_time: NDArray[np.float64]


def read_crossing(row: Row, state: NDArray[np.int64], plan: Plan, names: tuple[str, ...]) -> report.Crossing:
    """Read the crossing from a key's state.

    The leading score is `learned` where the ensemble has the largest share of the evidence, else the simplest fixed
    score (coordinates before the radius before products) that is about as sure as the surest. The change is where the
    best-paying run of that score began, for `learned` of all: fixed scores need not learn first. Features are weighed
    by the logarithm of the best run of each score they are part of; where no run of a fixed score has paid 10, by how
    much the leading estimate varies along them. Direction is that of the leading score, or for `learned` of the first
    feature.
    """
    bets = _bets(row, plan)
    scores = report.fixed_scores(names, radius=True, products=bool(plan.products), squares=True)
    share = column_weights(plan) * bets.means
    learned = float(share[plan.fixed :].sum()) >= float(share[: plan.fixed].max())
    best = bets.runs.max(axis=(0, 1))[: plan.scores]
    paid = np.where(best > _SMALLEST_RUN, np.log(np.maximum(best, 1.0)), 0.0)
    estimate = int(np.argmax(share[plan.fixed : plan.fixed + ESTIMATORS]))
    slopes = _variation(row, int(state[ATOMS]), plan, estimate)
    features = report.share_evidence(names, scores, paid.tolist(), slopes)
    leading = names.index(features[0][0]) if learned else _simplest(bets.means[: plan.scores])
    candidates = bets.runs if learned else np.where(np.arange(plan.columns) == leading, bets.runs, 0.0)
    at = np.unravel_index(int(np.argmax(candidates)), candidates.shape)
    return report.Crossing(
        score=report.LEARNED if learned else scores[leading].name,
        change_seq=int(bets.run_seq[at]),
        change_time=int(bets.run_time[at]),
        direction=_direction(bets.runs[:, :, leading].max(axis=0)),
        features=features,
    )


def lead_of(row: Row, plan: Plan) -> tuple[int, int]:
    """The column that leads a crossing, as in `read_crossing`, and the side to which it moved: 1 or -1."""
    bets = _bets(row, plan)
    share = column_weights(plan) * bets.means
    if float(share[plan.fixed :].sum()) >= float(share[: plan.fixed].max()):
        return plan.fixed + int(np.argmax(share[plan.fixed : plan.fixed + ESTIMATORS])), 1
    leading = _simplest(bets.means[: plan.scores])
    up, down = bets.runs[:, :, leading].max(axis=0)
    return leading, 1 if up >= down else -1


def _bets(row: Row, plan: Plan) -> Bets:
    columns, fixed, stakes = plan.columns, plan.fixed, len(STAKES)

    def both(at: int) -> NDArray[np.float64]:
        flat = row[at : at + plan.runs].reshape(len(RUN_STAKES), columns + fixed)
        table = np.zeros((len(RUN_STAKES), 2, columns))
        table[:, 0] = flat[:, :columns]
        table[:, 1, :fixed] = flat[:, columns:]
        return table

    statistic = row[plan.at_statistic : plan.at_statistic + plan.bets]
    means = statistic[: stakes * columns].reshape(stakes, columns).sum(axis=0)
    means[:fixed] += statistic[stakes * columns :].reshape(stakes, fixed).sum(axis=0)
    means[:fixed] /= 2 * stakes
    means[fixed:] /= stakes
    return Bets(means, both(plan.at_runs), both(plan.at_run_seq), both(plan.at_run_time))


def _simplest(means: NDArray[np.float64]) -> int:
    sureness = np.log(np.maximum(means, 1.0))
    return int(np.argmax(sureness >= _AS_SURE * sureness.max()))


def _direction(runs: NDArray[np.float64]) -> str:
    up, down = runs
    if max(up, down) <= _SMALLEST_RUN:
        return "both"
    return "up" if up > down else "down"


def _variation(row: Row, m: int, plan: Plan, estimate: int) -> list[float]:
    """Mean square of the estimate's slope along each feature, over the atoms."""
    atoms = row[plan.at_atoms : plan.at_wide].reshape(plan.dims, plan.room)[:, :m]
    gain = float(row[plan.at_gain]) * _WIDTH_FACTORS[estimate]
    inverse = row[{WIDE: plan.at_wide, MIDDLE: plan.at_middle, NARROW: plan.at_narrow}[estimate] :]
    w = row[plan.at_w + estimate * plan.room :]
    weights = np.empty(m)
    nystrom.dual_weights(inverse, m, w, weights)
    delta = atoms[:, :, None] - atoms[:, None, :]
    kernel = np.exp(gain * (delta**2).sum(axis=0))
    slopes = 2.0 * gain * (delta * (kernel * weights)).sum(axis=2)
    return [float(value) for value in (slopes**2).mean(axis=1)]
