"""Pictures of a study, as PNG files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kstream_worker.calibration.changes import CHANGES, Feature
from kstream_worker.calibration.replay import WARMING
from kstream_worker.calibration.study import KeyStudy, Study
from kstream_worker.state_tools.names import key_name

_ALARM = "#c0392b"
_INK = "#3b6ea8"
_WARMING = "#ececec"
_COLORS = ("#3b6ea8", "#d98c3f", "#5b8c5a", "#8a6fa8", "#777777")
_MOST_KEYS = 40
_MOST_HISTORIES = 6
_MOST_POINTS = 4_000
_FLOOR = 1e-3  # of axes with logarithms


def draw(folder: Path, study: Study) -> list[Path]:
    """Write all pictures into the folder.

    Raises:
        ModuleNotFoundError: matplotlib is missing (the extra `demo` brings it).
    """
    pictures = {
        "rates.png": _rates,
        "delays.png": _delays,
        "run_lengths.png": _run_lengths,
        "history.png": _histories,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # in names of keys
        for name, make in pictures.items():
            make(study).savefig(folder / name, dpi=80)
    return [folder / name for name in pictures]


def _figure(width: float, height: float, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, 1, squeeze=False)[:, 0]


def _rates(study: Study) -> Any:
    """Alarms in history of each key, with their interval, beside the stated rate."""
    keys = [key for key in study.keys if key.rate.armed][:_MOST_KEYS]
    figure, (axis,) = _figure(8.0, 1.6 + 0.24 * (len(keys) + 1))
    names = [key_name(key.history.key) for key in keys] + ["all"]
    rates = [key.rate for key in keys] + [study.rate]
    for row, rate in enumerate(rates):
        low, high = rate.interval_per_1e5() or (0.0, 0.0)
        color = _ALARM if rate.verdict == "more" else _INK
        axis.plot([max(low, _FLOOR), max(high, _FLOOR)], [row, row], color=color, linewidth=2.0, alpha=0.5)
        if rate.alarms:
            axis.plot([rate.per_1e5], [row], "o", color=color, markersize=5)
    axis.axvline(1e5 / study.settings.arl, color=_ALARM, linestyle=":", label="stated")
    axis.set_xscale("log")
    axis.set_yticks(range(len(names)), names, parse_math=False)
    axis.invert_yaxis()
    axis.set_xlabel("alarms in history per 1e5 armed samples, with 95 % interval")
    axis.legend(frameon=False)
    return figure


def _delays(study: Study) -> Any:
    """Share found and delay of each change, over all places of all keys."""
    figure, (above, below) = _figure(8.0, 6.4, 2)
    horizon = max((key.trials.horizon for key in study.keys), default=0)
    for color, change in zip((*_COLORS, _ALARM), CHANGES, strict=True):
        delays = np.sort([d for key in study.keys for d in key.trials.by_change[change.name].samples])
        if not len(delays):
            continue
        found = delays[np.isfinite(delays)]
        shares = np.arange(1, len(found) + 1) / len(delays)
        above.step(
            [1.0, *found, float(horizon)], [0.0, *shares, len(found) / len(delays)], where="post", color=color,
            label=change.name,
        )  # fmt: skip
    above.set_xscale("log")
    above.set_ylim(0.0, 1.02)
    above.set_xlabel("changed samples")
    above.set_ylabel("share found")
    if above.get_lines():
        above.legend(frameon=False)
    _medians(below, study)
    return figure


def _medians(axis: Any, study: Study) -> None:
    """Medians of each key: the spread between keys."""
    for column, _ in enumerate(CHANGES):
        medians = [key.delays[column].median_samples for key in study.keys]
        known = [median for median in medians if median is not None]
        axis.plot([column] * len(known), known, "o", color=_INK, alpha=0.5, markersize=5)
    axis.set_yscale("log")
    axis.set_xlim(-0.5, len(CHANGES) - 0.5)
    axis.set_xticks(range(len(CHANGES)), [change.name for change in CHANGES])
    axis.set_ylabel("median of each key, samples")


def _run_lengths(study: Study) -> Any:
    """Alarms on this history against the stated run length, with what chance would give."""
    figure, (axis,) = _figure(8.0, 4.2)
    arls = [run.settings.arl for run in study.run_lengths]
    axis.plot(arls, [max(run.alarms, 0.3) for run in study.run_lengths], "o-", color=_INK, label="alarms in history")
    allowed = [max(run.rate.allowed, _FLOOR) for run in study.run_lengths]
    axis.plot(arls, allowed, ":", color=_ALARM, label="of chance, at most, as stated")
    axis.axvline(study.settings.arl, color="#999999", linewidth=0.8, label="configured")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("stated run length (arl)")
    axis.set_ylabel("alarms, all keys looked at")
    axis.legend(frameon=False)
    return figure


def _histories(study: Study) -> Any:
    """The keys with the most alarms: signal, warm-ups, alarms."""
    keys = sorted(study.keys, key=lambda key: -key.rate.alarms)[:_MOST_HISTORIES]
    figure, axes = _figure(11.0, 0.6 + 1.7 * max(1, len(keys)), max(1, len(keys)))
    for axis, key in zip(axes, keys, strict=False):
        _history(axis, key)
    return figure


def _history(axis: Any, key: KeyStudy) -> None:
    history = key.history
    place = _places(history.times.tolist())
    rows = np.unique(np.linspace(0, len(history) - 1, min(len(history), _MOST_POINTS)).astype(np.int64))
    for color, values in zip(_COLORS, history.y.T, strict=False):  # five features are enough for the eye
        spread = Feature.of(values).spread or 1.0
        axis.plot(
            [place[row] for row in rows], ((values - np.median(values)) / spread)[rows], color=color, linewidth=0.6
        )
    for first, last in _stretches(key.replay.states == WARMING):
        axis.axvspan(place[first], place[last - 1], color=_WARMING, linewidth=0, zorder=0)
    for alarm in key.replay.alarms:
        axis.axvline(place[alarm.row], color=_ALARM, linewidth=1.0)
    title = f"{key_name(history.key)}: {key.rate.alarms} alarms, {key.guarantee}"
    axis.set_title(title, loc="left", fontsize=9, parse_math=False)


def _places(times: Sequence[int]) -> Sequence[Any]:
    """Where samples stand on the axis: at their event time, where it is known, else at their number."""
    if min(times) < 0:
        return range(len(times))
    return [datetime.fromtimestamp(time / 1000, UTC) for time in times]


def _stretches(flags: Any) -> Iterable[tuple[int, int]]:
    """First rows and ends of the runs of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]
