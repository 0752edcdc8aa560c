"""ruptures' PELT: offline, it sees the whole series; only where change points are asked for, not alarms."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.detection.detector import Detector
from benchmarks.detection.series import Floats, Found, Series


def detectors() -> list[Detector]:
    """The example of its documentation, and PELT on means with the penalty of the Bayesian information criterion.

    Raises:
        ModuleNotFoundError: ruptures is not installed.
    """
    import ruptures as _  # noqa: F401 (asks whether it is there)

    return [
        Detector(
            "PELT, rbf",
            "ruptures",
            "penalty 10, as in its documentation",
            "penalty",
            10.0,
            (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0),
            _rbf,
            offline=True,
        ),
        Detector(
            "PELT, means",
            "ruptures",
            "penalty 2 d log n, noise variance from first differences",
            "penalty / (d log n)",
            2.0,
            (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
            _means,
            offline=True,
        ),
    ]


def _rbf(series: Series, penalty: float) -> Found:
    return _pelt(_scaled(series.values), "rbf", penalty)


def _means(series: Series, factor: float) -> Found:
    noise = np.median(np.abs(np.diff(series.values, axis=0)), axis=0) / (0.6745 * math.sqrt(2.0))
    noise = np.where(noise > 0.0, noise, np.where(series.values.std(axis=0) > 0.0, series.values.std(axis=0), 1.0))
    values = series.values / noise
    return _pelt(values, "l2", factor * values.shape[1] * math.log(len(values)))


def _pelt(values: Floats, model: str, penalty: float) -> Found:
    import ruptures

    ends = ruptures.Pelt(model=model, min_size=2, jump=1).fit(values).predict(pen=penalty)
    return Found.at([int(end) for end in ends[:-1]])


def _scaled(values: Floats) -> Floats:
    spread = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), dtype=np.float64)
