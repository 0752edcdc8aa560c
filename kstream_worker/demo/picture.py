"""The demonstration's picture: per entity the signal, the estimated log ratio, and the evidence with its threshold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kstream_worker.demo.data import FEATURES, Track

_COLORS = ("#3b6ea8", "#d98c3f")
_ALARM = "#c0392b"
_CHANGE = "#2e7d32"


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
        axes[2, column].tick_params(axis="x", rotation=35)
    for row, text in enumerate(("signal, standardised", "log likelihood ratio", "evidence / threshold")):
        axes[row, 0].set_ylabel(text)
    _legend(axes[0, 0])
    figure.savefig(path, dpi=80)


def _times(stamps: Iterable[int]) -> list[datetime]:
    return [datetime.fromtimestamp(t / 1000, UTC) for t in stamps]


def _signal(axis: Any, track: Track) -> None:
    scaled = (track.values - np.median(track.values, axis=0)) / track.values.std(axis=0)
    for order, (feature, color, values) in enumerate(zip(FEATURES, _COLORS, scaled.T, strict=True)):
        axis.plot(_times(track.times), values, color=color, linewidth=0.7, label=feature, alpha=0.9, zorder=3 - order)
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


def _legend(axis: Any) -> None:
    axis.axvline(np.nan, color=_ALARM, label="alarm")
    axis.axvline(np.nan, color=_CHANGE, linestyle="--", label="change put in")
    axis.legend(loc="upper left", fontsize=8, ncols=2)
