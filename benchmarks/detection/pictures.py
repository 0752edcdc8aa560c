"""Pictures: bars of the leading measure for each task, and the series with what our detector found in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.detection.run import Result, Row
from benchmarks.detection.series import Found, Series
from benchmarks.detection.tasks import is_unlabelled

_COLORS = {"ours": "#c0392b", "peer": "#3b6ea8", "offline": "#7a93ad", "control": "#999999", "published": "#d98c3f"}
_ALARM = "#c0392b"
_LABEL = "#cfe8cf"
_ACROSS = 3
_MOST_FEATURES = 8


def draw(folder: Path, results: Sequence[Result]) -> None:
    """Write `scores.png`, and for each task a picture of its series.

    Raises:
        ModuleNotFoundError: matplotlib is missing (the extra `demo` brings it).
    """
    scored = [result for result in results if not is_unlabelled(result.task)]
    if scored:
        _bars(folder / "scores.png", scored)
    for result in results:
        name = "".join(letter if letter.isalnum() else "_" for letter in result.task.name)
        _series(folder / f"{name}.png", result)


def _figure(width: float, height: float, *, constrained: bool) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained" if constrained else None)
    FigureCanvasAgg(figure)
    return figure


def _bars(path: Path, results: Sequence[Result]) -> None:
    figure = _figure(5.0 * len(results), 6.5, constrained=True)
    for axis, result in zip(figure.subplots(1, len(results), squeeze=False)[0], results, strict=True):
        bars = [(row.measures[result.task.measures[0]] or 0.0, row) for row in result.rows if _has_leading(result, row)]
        bars.sort(key=lambda bar: bar[0])
        for y, (value, row) in enumerate(bars):
            axis.barh(y, value, color=_COLORS[row.kind])
            if row.oracle is not None:
                axis.plot([row.oracle], [y], "|", color="#222", markersize=9)
        axis.set_yticks(range(len(bars)), [row.detector for _, row in bars], fontsize=7)
        axis.set_title(f"{result.task.name}: {result.task.measures[0]}", loc="left", fontsize=9)
    figure.savefig(path, dpi=90)


def _has_leading(result: Result, row: Row) -> bool:
    return row.measures.get(result.task.measures[0]) is not None


def _series(path: Path, result: Result) -> None:
    """A panel for each series; stripes are labels, lines alarms, shading reaches back to the dated change."""
    series = result.task.series
    down = math.ceil(len(series) / _ACROSS)
    # Constrained layout of a hundred panels takes longer than the detector.
    height = 1.6 * down
    figure = _figure(5.0 * min(_ACROSS, len(series)), height, constrained=False)
    figure.subplots_adjust(
        left=0.03, right=0.99, bottom=0.3 / height, top=1.0 - 0.25 / height, hspace=0.35, wspace=0.08
    )
    axes = figure.subplots(down, min(_ACROSS, len(series)), squeeze=False).ravel()
    for axis, one in zip(axes, series, strict=False):
        _panel(axis, one, result.found[one.name], result.task.labels.get(one.name, ()))
    for axis in axes[len(series) :]:
        axis.set_visible(False)
    figure.savefig(path, dpi=80)


def _panel(axis: Any, series: Series, found: Found, labels: Sequence[tuple[int, int]]) -> None:
    for column in series.values.T[:_MOST_FEATURES]:
        spread = float(column.std()) or 1.0
        axis.plot((column - column.mean()) / spread, linewidth=0.4, color="#555", alpha=0.6)
    for first, last in labels:
        axis.axvspan(first, last, color=_LABEL, zorder=0)
    for alarm, change in zip(found.alarms, found.changes, strict=True):
        axis.axvline(alarm, color=_ALARM, linewidth=0.7)
        axis.axvspan(change, alarm, color=_ALARM, alpha=0.12, linewidth=0)
    axis.axvspan(0, series.training, color="#ececec", linewidth=0, zorder=0)
    axis.set_title(series.name, loc="left", fontsize=7)
    axis.tick_params(labelsize=6)
