"""The demonstration's picture: per entity the signal, the estimated log ratio, and the evidence with its threshold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from kstream_worker.demo.data import FEATURES, Track

_COLORS = ("#3b6ea8", "#d98c3f")
_ALARM = "#c0392b"
_CHANGE = "#2e7d32"
_WARMING = "#ececec"


def draw(
    path: Path,
    tracks: Sequence[Track],
    estimates: Iterable[Mapping[str, Any]],
    alarms: Iterable[Mapping[str, Any]],
) -> None:
    """Write the picture as PNG.

    Raises:
        ModuleNotFoundError: matplotlib is missing (the extra `demo` brings it).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_key: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for estimate in estimates:
        by_key[estimate["key"]].append(estimate)
    raised = [alarm for alarm in alarms if alarm["transition"] == "raised"]
    figure = Figure(figsize=(5.2 * len(tracks), 8.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, len(tracks), squeeze=False, sharex="col")
    for column, track in enumerate(tracks):
        mine = [alarm for alarm in raised if alarm["key"] == track.entity.name]
        _signal(axes[0, column], track)
        _ratio(axes[1, column], by_key[track.entity.name])
        _evidence(axes[2, column], by_key[track.entity.name])
        for axis in axes[:, column]:
            _mark(axis, mine, track.injected_at)
            _shade_warm_up(axis, by_key[track.entity.name])
        _date(axes[2, column].xaxis)
    for row, text in enumerate(("signal, standardised", "log likelihood ratio", "evidence / threshold")):
        axes[row, 0].set_ylabel(text)
    _legend(figure)
    figure.savefig(path, dpi=80)


def _times(stamps: Iterable[int]) -> list[datetime]:
    return [datetime.fromtimestamp(t / 1000, UTC) for t in stamps]


def _date(axis: Any) -> None:
    from matplotlib import dates

    calendar: Any = dates  # without types
    axis.set_major_locator(calendar.AutoDateLocator(minticks=4, maxticks=7))
    axis.set_major_formatter(calendar.DateFormatter("%d %b"))


def _signal(axis: Any, track: Track) -> None:
    scaled = (track.values - np.median(track.values, axis=0)) / track.values.std(axis=0)
    for order, (color, values) in enumerate(zip(_COLORS, scaled.T, strict=True)):
        axis.plot(_times(track.times), values, color=color, linewidth=0.7, alpha=0.9, zorder=3 - order)
    change = f": {track.entity.change} changed" if track.entity.change else ": changes of its own"
    axis.set_title(track.entity.name + change, loc="left")


def _ratio(axis: Any, estimates: Sequence[Mapping[str, Any]]) -> None:
    armed = [e for e in estimates if e["log_ratio"] is not None]
    axis.plot(
        _times(e["event_time"] for e in armed), [e["log_ratio"] for e in armed], ".", color="#555", markersize=1.5
    )
    axis.axhline(0.0, color="#999", linewidth=0.6)
    axis.set_ylim(-4.0, 2.5)


def _evidence(axis: Any, estimates: Sequence[Mapping[str, Any]]) -> None:
    values = [max(e["evidence"] / e["threshold"], 1e-7) for e in estimates]
    axis.semilogy(_times(e["event_time"] for e in estimates), values, color="#444", linewidth=0.9)
    axis.axhline(1.0, color=_ALARM, linewidth=0.8, linestyle=":")
    axis.set_ylim(1e-7, 10.0)


def _mark(axis: Any, alarms: Sequence[Mapping[str, Any]], injected_at: int | None) -> None:
    for alarm in alarms:
        axis.axvline(_times([alarm["event_time"]])[0], color=_ALARM, linewidth=1.2)
        axis.axvspan(*_times([alarm["change_time"], alarm["event_time"]]), color=_ALARM, alpha=0.15)
    if injected_at is not None:
        axis.axvline(_times([injected_at])[0], color=_CHANGE, linewidth=1.2, linestyle="--")


def _shade_warm_up(axis: Any, estimates: Sequence[Mapping[str, Any]]) -> None:
    for warming, group in groupby(estimates, lambda estimate: estimate["state"] == "warming"):
        run = list(group)
        if warming:
            axis.axvspan(*_times([run[0]["event_time"], run[-1]["event_time"]]), color=_WARMING, linewidth=0, zorder=0)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks = [
        *(Line2D([], [], color=color, label=feature) for feature, color in zip(FEATURES, _COLORS, strict=True)),
        Line2D([], [], color=_CHANGE, linestyle="--", label="change put in"),
        Patch(color=_ALARM, alpha=0.15, label="from the likely change to the alarm"),
        Line2D([], [], color=_ALARM, label="alarm"),
        Line2D([], [], color=_ALARM, linestyle=":", label="threshold"),
        Patch(color=_WARMING, label="warm-up: no alarm possible"),
    ]
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), frameon=False)
