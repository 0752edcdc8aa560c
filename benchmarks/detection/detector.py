"""What the benchmark asks of a detector: alarms on a series, at a default setting and at others of one parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata

import numpy as np

from benchmarks.detection.series import Floats, Found, Series

Find = Callable[[Series, float], Found]
Score = Callable[[Series], Floats]

LEAST_HISTORY = 60  # rows of scores before a running threshold says anything


@dataclass(frozen=True, slots=True)
class Detector:
    """A detector of others behind one face.

    Attributes:
        name: as printed.
        package: the distribution it comes from; empty where it is written in this benchmark.
        setting: its default in words.
        parameter: what the oracle's figure chooses.
        default: of the parameter.
        swept: values that the oracle may choose from.
        find: alarms on a series at a value of the parameter; None of a detector with a score.
        offline: it sees the whole series before it says anything.
        score: the costly part of a detector that has a score but no rule of alarm; entry i uses no row after
            i and is NaN where there is none yet.
        lag: how many rows before it such a score dates the change.
    """

    name: str
    package: str
    setting: str
    parameter: str
    default: float
    swept: tuple[float, ...]
    find: Find | None = None
    offline: bool = False
    score: Score | None = None
    lag: int = 0

    @property
    def version(self) -> str:
        """Of the package; of what is written here, of its code (raise it with a change)."""
        return metadata.version(self.package) if self.package else "1"


def by_score(name: str, package: str, setting: str, score: Score, lag: int = 0) -> Detector:
    """A detector that has a score but no rule of alarm: the running rule is given to it."""
    return Detector(
        name=name,
        package=package,
        setting=f"{setting}; alarm at 4 standard deviations above the mean of its scores so far",
        parameter="standard deviations",
        default=4.0,
        swept=(2.0, 3.0, 4.0, 6.0, 9.0, 13.0),
        score=score,
        lag=lag,
    )


def by_running_rule(scores: Floats, deviations: float, lag: int) -> Found:
    """Alarms where scores cross, dated `lag` rows back."""
    rows = crossings(scores, deviations)
    return Found(tuple(rows), tuple(max(0, row - lag) for row in rows))


def crossings(scores: Floats, deviations: float) -> list[int]:
    """Rows whose score lies that many standard deviations above the mean of the scores before it; NaN: no score yet."""
    known = np.flatnonzero(np.isfinite(scores))
    values = scores[known]
    counts = np.arange(1, len(values) + 1)
    mean = np.cumsum(values) / counts
    spread = np.sqrt(np.maximum(np.cumsum(values * values) / counts - mean * mean, 0.0))
    above = values[1:] > mean[:-1] + deviations * spread[:-1]
    above &= (spread[:-1] > 0.0) & (counts[:-1] >= LEAST_HISTORY)
    return [int(row) for row in known[1:][above]]


def apart(found: Found, series: Series, dead_time_ms: int) -> Found:
    """Without alarms within the dead time of the last that stands: what is said twice is one alarm."""
    kept: list[int] = []
    for k, row in enumerate(found.alarms):
        if not kept or series.times[row] >= series.times[found.alarms[kept[-1]]] + dead_time_ms:
            kept.append(k)
    return Found(tuple(found.alarms[k] for k in kept), tuple(found.changes[k] for k in kept))


def merge(founds: Sequence[Found]) -> Found:
    """Alarms of several detectors that watch one feature each; of those at one row the first."""
    pairs: dict[int, int] = {}
    for found in founds:
        for row, change in zip(found.alarms, found.changes, strict=True):
            pairs.setdefault(row, change)
    return Found(tuple(sorted(pairs)), tuple(pairs[row] for row in sorted(pairs)))


def scaled(series: Series) -> Floats:
    """Each feature less the mean and over the standard deviation of the part for learning, 60 rows at least."""
    first = series.values[: max(series.training, LEAST_HISTORY)]
    spread = first.std(axis=0)
    return np.asarray((series.values - first.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), dtype=np.float64)
