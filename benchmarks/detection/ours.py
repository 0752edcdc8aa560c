"""Our stream detector over a whole series: one key, one call of `RankBank.update`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.detection.series import Found, Series
from kstream_worker.detectors.ranks import RankBank

LEAST_WARM_UP, DEFAULT_WARM_UP = 60, 600  # of a bank that tests for dependence

_PARAMETERS = frozenset(inspect.signature(RankBank).parameters)


def find(series: Series, options: Mapping[str, Any]) -> Found:
    """Alarms and the changes that they name.

    Args:
        series: to walk.
        options: of `RankBank`; the warm-up is by default the series' own part for learning, up to the bank's default.
    """
    known = {name: value for name, value in options.items() if name in _PARAMETERS}
    known.setdefault("warmup", warm_up(series))
    bank = RankBank(series.values.shape[1], feature_names=series.features, **known)
    slot = bank.allocate(series.name.encode())
    scores = bank.update(np.full(len(series), slot), None, series.values, series.times)
    raised = [transition for transition in scores.transitions if transition.kind == "raised"]
    return Found(
        tuple(transition.row for transition in raised),
        tuple(min(transition.row, transition.change_seq - 1) for transition in raised),
        tuple(transition.guarantee for transition in raised),
    )


def warm_up(series: Series) -> int:
    """Rows to warm up on: those that no score counts, between the least and the default of the bank."""
    return max(LEAST_WARM_UP, min(series.training, DEFAULT_WARM_UP))
