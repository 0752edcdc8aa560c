"""SKAB, the Skoltech Anomaly Benchmark: loader and scores (Katser, Kozitsin, 2020).

Of each file rows 0-399 teach, the rest is scored. Change points: each true one opens a window of 60 s to its right; the
first alarm in it pays from 1 at its start to -fp at its end along a tanh, further ones in it nothing; a missed window
costs fn, an alarm outside any fp; 100 (sum - null) / (perfect - null). Outliers: F1, false alarm rate and missed alarm
rate over all rows; of a detector of changes the state is the number of its alarms so far, modulo 2.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.nab import PROFILES, Profile, normalised
from benchmarks.detection.series import Ints, Series, milliseconds

TRAINING = 400
WINDOW_MS = 60_000
_GRAIN = 1000  # steps of the tanh
ANOMALY_FREE = "anomaly-free/anomaly-free.csv"
_LABELS = ("anomaly", "changepoint")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A series, the rows of its change points, and which rows are anomalous."""

    series: Series
    changes: tuple[int, ...]
    anomalous: NDArray[np.bool_]


def load(folder: Path) -> list[Labelled]:
    """The labelled files of `folder/skab/data` that are there."""
    root = folder / "skab/data"
    names = [f"{path.parent.name}/{path.name}" for path in sorted(root.glob("*/*.csv"))]
    return [_read(root / name, name) for name in names if name != ANOMALY_FREE]


def load_anomaly_free(folder: Path) -> Series:
    """The file without anomalies."""
    return _read(folder / "skab/data" / ANOMALY_FREE, ANOMALY_FREE).series


def _read(path: Path, name: str) -> Labelled:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    features = tuple(column for column in rows[0] if column not in ("datetime", *_LABELS))
    values = np.array([[float(row[feature]) for feature in features] for row in rows])
    times = milliseconds([row["datetime"] for row in rows])
    changes = tuple(i for i, row in enumerate(rows) if float(row.get("changepoint", 0)) == 1.0)
    anomalous = np.array([float(row.get("anomaly", 0)) == 1.0 for row in rows])
    return Labelled(Series(name, values, times, features, TRAINING), changes, anomalous)


def windows_of(changes: Sequence[int], times: Ints) -> list[tuple[int, int]]:
    """Start and end of each window in milliseconds; of two that touch the later begins with the other's end."""
    windows = [(int(times[row]), int(times[row]) + WINDOW_MS) for row in changes if row >= TRAINING]
    for k in range(1, len(windows)):
        if windows[k - 1][1] >= windows[k][0]:
            windows[k] = (windows[k - 1][1], windows[k][1])
    return windows


def raw_score(alarms: Iterable[int], windows: Sequence[tuple[int, int]], times: Ints, profile: Profile) -> float:
    """The sum over one file; windows in milliseconds, ascending."""
    at = sorted({int(times[row]) for row in alarms if row >= TRAINING})
    total = -profile.fp * sum(not any(left <= t <= right for left, right in windows) for t in at)
    for left, right in windows:
        first = next((t for t in at if left <= t <= right), None)
        total += -profile.fn if first is None else _worth(first, left, right, profile.fp)
    return total


def _worth(at: int, left: int, right: int, fp: float) -> float:
    """From 1 at the left edge to -fp at the right one, on a grid of 1,000 points as the reference has it."""
    if right <= left:
        return 1.0
    step = min(_GRAIN - 1, int((at - left) / (right - left) * _GRAIN))
    x = -math.pi / 2 + math.pi * step / (_GRAIN - 1)
    half = (1.0 + fp) / 2
    return -half * math.tanh(x) / math.tanh(math.pi / 2) + half - fp


def change_score(files: Sequence[Labelled], alarms: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Each profile's score of alarms (rows by name of file)."""
    windows = {f.series.name: windows_of(f.changes, f.series.times) for f in files}
    count = sum(map(len, windows.values()))
    return {
        name: normalised(
            sum(raw_score(alarms[f.series.name], windows[f.series.name], f.series.times, profile) for f in files),
            count,
            profile,
        )
        for name, profile in PROFILES.items()
    }


def states(alarms: Sequence[int], rows: int) -> NDArray[np.bool_]:
    """bool[rows]: whether the number of alarms up to and with a row is odd."""
    flips = np.zeros(rows, dtype=np.int64)
    for row in alarms:
        if row >= TRAINING:
            flips[row] += 1
    odd: NDArray[np.bool_] = np.cumsum(flips) % 2 == 1
    return odd


def outlier_score(files: Sequence[Labelled], predicted: Mapping[str, NDArray[np.bool_]]) -> dict[str, float]:
    """F1, and the rates of false and missed alarms in per cent, pooled over the scored rows of all files."""
    tp = fp = fn = tn = 0
    for file in files:
        truth, said = file.anomalous[TRAINING:], predicted[file.series.name][TRAINING:]
        tp += int((truth & said).sum())
        fp += int((~truth & said).sum())
        fn += int((truth & ~said).sum())
        tn += int((~truth & ~said).sum())
    return {
        "F1": 2.0 * tp / max(1, 2 * tp + fp + fn),
        "FAR %": 100.0 * fp / max(1, fp + tn),
        "MAR %": 100.0 * fn / max(1, fn + tp),
    }


def counts(files: Sequence[Labelled], alarms: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Change points, those found and missed, alarms outside any window, all alarms that count."""
    total = found = outside = scored = 0
    for file in files:
        windows = windows_of(file.changes, file.series.times)
        at = [int(file.series.times[row]) for row in alarms[file.series.name] if row >= TRAINING]
        total += len(windows)
        found += sum(any(left <= t <= right for t in at) for left, right in windows)
        outside += sum(not any(left <= t <= right for left, right in windows) for t in at)
        scored += len(at)
    return {"windows": total, "found": found, "missed": total - found, "outside": outside, "alarms": scored}
