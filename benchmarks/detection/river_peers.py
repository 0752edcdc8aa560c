"""River's drift detectors, one per feature (they take one number at a time), and its half-space trees.

ADWIN compares means of numbers it takes to be of the order of 1, Page-Hinkley has its threshold in units of the data:
both get features scaled by the part for learning. Each detector forgets its past at an alarm by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.detection.detector import Detector, by_score, merge, scaled
from benchmarks.detection.series import Floats, Found, Series

SEED = 1
TREES_WINDOW = 250  # of half-space trees, by default


def detectors() -> list[Detector]:
    """All of them at River's defaults.

    Raises:
        ModuleNotFoundError: River is not installed.
    """
    import river.drift as _  # noqa: F401 (asks whether it is there)

    return [
        Detector("ADWIN", "river", "delta .002", "delta", 0.002, (0.3, 0.05, 0.002, 1e-4, 1e-6, 1e-9, 1e-13), _adwin),
        Detector(
            "Page-Hinkley",
            "river",
            "delta .005, threshold 50",
            "threshold",
            50.0,
            (5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0),
            _page_hinkley,
        ),
        Detector(
            "KSWIN", "river", "alpha .005, windows 100 and 30", "alpha", 0.005, (), _kswin
        ),  # a millisecond per number
        by_score(
            "half-space trees", "river", f"10 trees of height 8, window {TREES_WINDOW}, features scaled to 0..1", _trees
        ),
    ]


def _each(series: Series, make: Callable[[], Any], begun: Callable[[int, Any], int]) -> Found:
    columns = scaled(series).T
    return merge([_walk(column, make(), begun) for column in columns])


def _walk(column: Floats, detector: Any, begun: Callable[[int, Any], int]) -> Found:
    alarms, changes = [], []
    for row, value in enumerate(column.tolist()):
        detector.update(value)
        if detector.drift_detected:
            alarms.append(row)
            changes.append(min(row, max(0, begun(row, detector))))
    return Found(tuple(alarms), tuple(changes))


def _adwin(series: Series, delta: float) -> Found:
    from river.drift import ADWIN

    return _each(series, lambda: ADWIN(delta=delta), lambda row, detector: row - int(detector.width) + 1)


def _page_hinkley(series: Series, threshold: float) -> Found:
    from river.drift import PageHinkley

    return _each(series, lambda: PageHinkley(threshold=threshold), lambda row, _: row)


def _kswin(series: Series, alpha: float) -> Found:
    from river.drift import KSWIN

    return _each(series, lambda: KSWIN(alpha=alpha, seed=SEED), lambda row, _: row)


def _trees(series: Series) -> Floats:
    from river import anomaly, compose, preprocessing

    model = compose.Pipeline(preprocessing.MinMaxScaler(), anomaly.HalfSpaceTrees(seed=SEED))
    scores = []
    for values in series.values.tolist():
        sample = dict(enumerate(values))
        scores.append(model.score_one(sample))
        model.learn_one(sample)
    scores[:TREES_WINDOW] = [np.nan] * len(scores[:TREES_WINDOW])  # nothing is learned before the first window is full
    return np.array(scores)
