"""TCPD, the Turing Change Point Dataset, and its scores (van den Burg, Williams, arXiv 2003.06222, section 4).

Change points are first rows of new segments, from 0; index 0 belongs to every set. F1: of all predictions the share
that some annotator shares (margin of 5 rows, each prediction used once), and the recall averaged over annotators.
Cover: each annotated segment's best Jaccard index with a predicted one, weighted by length, averaged over annotators.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.detection.series import Series

MARGIN = 5
ROW_MS = 1000  # most series have no clock: a row is called a second
CONTROLS = ("quality_control_1", "quality_control_2", "quality_control_4", "quality_control_5")


@dataclass(frozen=True, slots=True)
class Annotated:
    """A series and the change points that each annotator sees in it."""

    series: Series
    annotators: tuple[tuple[int, ...], ...]


def load(folder: Path) -> list[Annotated]:
    """The series of `folder/tcpd/datasets` that are there."""
    annotations = json.loads((folder / "tcpd/annotations.json").read_text())
    paths = sorted((folder / "tcpd/datasets").glob("*/*.json"))
    return [_read(json.loads(path.read_text()), annotations) for path in paths]


def _read(content: Mapping[str, object], annotations: Mapping[str, Mapping[str, Sequence[int]]]) -> Annotated:
    columns = content["series"]
    assert isinstance(columns, list)
    values = np.array([column["raw"] for column in columns], dtype=np.float64).T
    names = tuple(str(column.get("label", f"f{j}")) for j, column in enumerate(columns))
    name = str(content["name"])
    return annotated(name, values, names, annotations[name])


def annotated(
    name: str, values: np.ndarray, features: tuple[str, ...], annotations: Mapping[str, Sequence[int]]
) -> Annotated:
    """A series whose rows are called seconds, with its annotations by annotator."""
    times = np.arange(len(values), dtype=np.int64) * ROW_MS
    series = Series(name, np.ascontiguousarray(values, dtype=np.float64), times, features, 0)
    return Annotated(series, tuple(tuple(sorted(rows)) for rows in annotations.values()))


def clean(changes: Iterable[int], rows: int) -> list[int]:
    """As the published scores have it: ascending, each once, neither the first row nor the last."""
    return sorted({row for row in changes if 1 <= row < rows - 1})


def f1(annotators: Sequence[Sequence[int]], changes: Iterable[int]) -> float:
    """F1 of predicted change points."""
    predicted = sorted({0, *changes})
    truths = [sorted({0, *rows}) for rows in annotators]
    precision = _matched(sorted(set().union(*truths)), predicted) / len(predicted)
    recall = sum(_matched(truth, predicted) / len(truth) for truth in truths) / len(truths)
    return 2.0 * precision * recall / (precision + recall)


def _matched(truth: Sequence[int], predicted: Sequence[int]) -> int:
    """True points with a prediction within the margin, each prediction used once, the nearest first."""
    free = list(predicted)
    matched = 0
    for point in truth:
        nearest = min(free, key=lambda row: (abs(row - point), row), default=None)
        if nearest is not None and abs(nearest - point) <= MARGIN:
            free.remove(nearest)
            matched += 1
    return matched


def cover(annotators: Sequence[Sequence[int]], changes: Iterable[int], rows: int) -> float:
    """Cover of the annotated segments by the predicted ones."""
    predicted = _segments(changes, rows)
    return sum(_cover(_segments(truth, rows), predicted, rows) for truth in annotators) / len(annotators)


def _segments(changes: Iterable[int], rows: int) -> list[tuple[int, int]]:
    edges = sorted({0, rows, *(row for row in changes if 0 < row < rows)})
    return list(pairwise(edges))


def _cover(truth: Sequence[tuple[int, int]], predicted: Sequence[tuple[int, int]], rows: int) -> float:
    total = 0.0
    for a, b in truth:
        total += (b - a) * max(_jaccard(a, b, c, d) for c, d in predicted)
    return total / rows


def _jaccard(a: int, b: int, c: int, d: int) -> float:
    common = max(0, min(b, d) - max(a, c))
    return common / (b - a + d - c - common)


def score(sets: Sequence[Annotated], changes: Mapping[str, Sequence[int]]) -> dict[str, dict[str, float]]:
    """F1 and cover of each series, by its name."""
    result = {}
    for one in sets:
        rows = clean(changes[one.series.name], len(one.series))
        result[one.series.name] = {
            "F1": f1(one.annotators, rows),
            "cover": cover(one.annotators, rows, len(one.series)),
        }
    return result


def is_univariate(one: Annotated) -> bool:
    """Whether the published univariate means count the series (quality_control_* are not in them)."""
    return one.series.values.shape[1] == 1 and one.series.name not in CONTROLS


METHODS = ("zero", "pelt", "binseg", "amoc", "bocpd", "ecp", "kcpa", "cpnp", "rfpop", "segneigh", "wbs", "prophet")


def published(folder: Path) -> dict[str, dict[str, dict[str, float | None]]]:
    """Published scores at default settings: by measure (F1, cover), series and method; None where it failed."""
    root = folder / "tcpd/published_scores"
    return {
        "F1": json.loads((root / "default_f1_scores.json").read_text()),
        "cover": json.loads((root / "default_cover_scores.json").read_text()),
    }


def mean_published(
    scores: Mapping[str, Mapping[str, Mapping[str, float | None]]], names: Sequence[str], method: str
) -> tuple[float | None, float | None, None]:
    """Means of F1 and cover over series (failures count 0, as published), None where it ran on none of them."""
    means: list[float | None] = []
    for measure in ("F1", "cover"):
        values = [scores[measure][name].get(method) for name in names]
        known = [value for value in values if value is not None]
        means.append(sum(known) / len(names) if known else None)
    return means[0], means[1], None
