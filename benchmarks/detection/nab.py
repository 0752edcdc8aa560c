"""NAB, the Numenta Anomaly Benchmark: loader and score (Lavin, Ahmad, 2015; rules as of its version 1.1).

The first min(.15 n, 750) rows of a file are not scored. With s(x) = 2 / (1 + e^(5x)) - 1, the earliest alarm within a
labelled window of rows left..right and width w counts s(-(right - i + 1) / w) / s(-1), later ones in the same window
nothing; a missed window counts -fn. An alarm outside counts fp s(x), where x = (i - right') / (w' - 1) past the last
window before it, and fp s(infinity) = -fp from x = 3 on and where there was none. The score is 100 (sum - null) /
(perfect - null): null = -fn for each window, perfect = 1.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.detection.series import Series, milliseconds

LONGEST_PROBATION = 750
PROBATION = 0.15


@dataclass(frozen=True, slots=True)
class Profile:
    """What a missed window and a false alarm cost; a found window pays 1 at best."""

    fp: float
    fn: float


PROFILES: Mapping[str, Profile] = {
    "standard": Profile(0.11, 1.0),
    "low FP": Profile(0.22, 1.0),
    "low FN": Profile(0.11, 2.0),
}
PUBLISHED_NAMES = {"standard": "standard", "low FP": "reward_low_FP_rate", "low FN": "reward_low_FN_rate"}

Window = tuple[int, int]  # first and last row


@dataclass(frozen=True, slots=True)
class Labelled:
    """A series and its windows, ascending."""

    series: Series
    windows: tuple[Window, ...]


def load(folder: Path) -> list[Labelled]:
    """The files of `folder/nab/data` that are there."""
    labels = json.loads((folder / "nab/labels/combined_windows.json").read_text())
    root = folder / "nab/data"
    return [_read(path, f"{path.parent.name}/{path.name}", labels) for path in sorted(root.glob("*/*.csv"))]


def _read(path: Path, name: str, labels: Mapping[str, Sequence[Sequence[str]]]) -> Labelled:
    with path.open(newline="") as file:
        rows = [(row["timestamp"], row["value"]) for row in csv.DictReader(file)]
    times = milliseconds([time for time, _ in rows])
    values = np.array([[float(value)] for _, value in rows])
    first = {time: i for i, time in reversed(list(enumerate(times.tolist())))}
    edges = [milliseconds(window).tolist() for window in labels[name]]
    windows = tuple((first[left], first[right]) for left, right in edges)
    return Labelled(Series(name, values, times, ("value",), probation(len(rows))), windows)


def published(folder: Path) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Published results on all 58 files, best first: each profile's score at the threshold best for that profile."""
    results = json.loads((folder / "nab/results/final_results.json").read_text())
    rows = [(name, tuple(scores[PUBLISHED_NAMES[profile]] for profile in PROFILES)) for name, scores in results.items()]
    return tuple(sorted(rows, key=lambda row: -row[1][0]))


def probation(rows: int) -> int:
    """Rows at the start of a file that are not scored."""
    return min(math.floor(PROBATION * rows), LONGEST_PROBATION)


def raw_score(alarms: Iterable[int], windows: Sequence[Window], training: int, profile: Profile) -> float:
    """The sum over one file.

    Args:
        alarms: rows, in any order.
        windows: ascending, apart from each other.
        training: rows at the start that do not count.
        profile: costs.
    """
    total = -profile.fn * len(windows)
    found: set[int] = set()
    for row in sorted(set(alarms)):
        if row < training:
            continue
        inside = next((k for k, (left, right) in enumerate(windows) if left <= row <= right), None)
        if inside is None:
            total += profile.fp * _outside(row, windows)
        elif inside not in found:
            found.add(inside)
            left, right = windows[inside]
            width = right - left + 1
            total += profile.fn + _sigmoid(-(right - row + 1) / width) / _sigmoid(-1.0)
    return total


def _outside(row: int, windows: Sequence[Window]) -> float:
    before = [window for window in windows if window[1] < row]
    if not before:
        return -1.0
    left, right = before[-1]
    past = (row - right) / max(1, right - left)
    return -1.0 if past >= 3.0 else _sigmoid(past)


def _sigmoid(x: float) -> float:
    return 2.0 / (1.0 + math.exp(5.0 * x)) - 1.0


def normalised(raw: float, windows: int, profile: Profile) -> float:
    """From a sum over files to the published scale: 0 for no alarm at all, 100 for every window at its first row."""
    null = -profile.fn * windows
    return 100.0 * (raw - null) / (windows - null)


def score(files: Sequence[Labelled], alarms: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Each profile's score of alarms (rows by name of file) on these files."""
    windows = sum(len(file.windows) for file in files)
    result = {}
    for name, profile in PROFILES.items():
        raw = sum(raw_score(alarms[f.series.name], f.windows, f.series.training, profile) for f in files)
        result[name] = normalised(raw, windows, profile)
    return result


def counts(files: Sequence[Labelled], alarms: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Windows found and missed, alarms outside any, all alarms that count."""
    found = outside = scored = 0
    for file in files:
        rows = [row for row in alarms[file.series.name] if row >= file.series.training]
        hits = [{k for k, (left, right) in enumerate(file.windows) if left <= row <= right} for row in rows]
        found += len(set().union(*hits)) if hits else 0
        outside += sum(not hit for hit in hits)
        scored += len(rows)
    windows = sum(len(file.windows) for file in files)
    return {"windows": windows, "found": found, "missed": windows - found, "outside": outside, "alarms": scored}
