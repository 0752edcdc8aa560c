"""Our stream detector over a whole series: one key, one call of `RankBank.update`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.detection.series import Found, Series
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.whitening import AR_TERMS
from kstream_worker.records import Transition

DEFAULT_WARM_UP = 600  # of a bank that tests for dependence
# Where a series has no part for learning: ten rows for each coefficient of the autoregression that may be fitted.
LEAST_WARM_UP = 10 * AR_TERMS

_PARAMETERS = frozenset(inspect.signature(RankBank).parameters)


def find(series: Series, options: Mapping[str, Any]) -> Found:
    """Alarms and the changes that they name.

    Where the interval of a change reaches back to the arming after the alarm before, it may lie before that: such an
    alarm tells that the change of the alarm before goes on, and names no other.

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
        _changes(raised),
        tuple(transition.guarantee for transition in raised),
        tuple(series.features.index(transition.features[0][0]) for transition in raised),
        tuple(transition.incident is not None and transition.incident.repeat > 0 for transition in raised),
    )


def _changes(raised: list[Transition]) -> tuple[int, ...]:
    changes: list[int] = []
    for transition in raised:
        told = transition.explanation
        goes_on = told is not None and told.change_seq_low is None and bool(changes)
        changes.append(changes[-1] if goes_on else min(transition.row, transition.change_seq - 1))
    return tuple(changes)


def warm_up(series: Series) -> int:
    """Rows to warm up on: those that no score counts, at least `LEAST_WARM_UP`, at most the default of the bank."""
    return max(LEAST_WARM_UP, min(series.training, DEFAULT_WARM_UP))
