"""Controls that do not look at the data: what a score gives for nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.detection.series import Found, Series

CLOCKS = (20, 30, 40, 60, 80, 120, 200, 400, 800, 1600)  # rows, for the oracle's figure
SEEDS = 50


def random_alarms(series: Sequence[Series], count: int, seed: int) -> dict[str, Found]:
    """`count` alarms at different rows, uniform over all rows that are scored."""
    offsets = np.cumsum([0, *(len(one) - one.training for one in series)])
    picks = np.sort(np.random.default_rng(seed).choice(int(offsets[-1]), size=count, replace=False))
    found = {}
    for k, one in enumerate(series):
        mine = picks[(picks >= offsets[k]) & (picks < offsets[k + 1])] - offsets[k] + one.training
        found[one.name] = Found.at(mine.tolist())
    return found


def clock(series: Sequence[Series], every: int) -> dict[str, Found]:
    """An alarm every so many rows from the first that is scored on (from the first full interval where all are)."""
    return {one.name: Found.at(list(range(one.training or every, len(one), every))) for one in series}


def like_ours(series: Sequence[Series], count: int) -> int:
    """Rows between the alarms of a clock that raises as many."""
    return max(1, sum(len(one) - one.training for one in series) // max(1, count))


def mean_scores(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Measure by measure."""
    return {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}
