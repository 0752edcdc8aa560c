"""The data sets as tasks: series, the times that their purpose sets, and a judge of what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.detection import nab, occupancy, setting, skab, tcpd, waterflow
from benchmarks.detection.series import Found, Series

Finds = Mapping[str, Found]
Published = tuple[tuple[str, tuple[float | None, ...]], ...]
NO_ANOMALY = "artificialNoAnomaly/"


@dataclass(frozen=True, slots=True)
class Task:
    """One data set, or a part of it that has a score of its own.

    Attributes:
        name: as printed.
        series: to walk.
        times: options of our detector that follow the purpose; `dead_time_ms` holds for all detectors.
        measures: what `judge` gives, the leading one first.
        judge: measures of what was found.
        published: (name, values in the order of `measures`, None where unknown); may be of more series than are here.
        offline: whether detectors that see the whole series may take part.
        labels: first and last rows of what is labelled, by series, for the pictures.
    """

    name: str
    series: tuple[Series, ...]
    times: Mapping[str, Any]
    measures: tuple[str, ...]
    judge: Callable[[Finds], dict[str, float]]
    published: Published = ()
    offline: bool = False
    labels: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


def load(folder: Path, boards: Mapping[str, Any]) -> list[Task]:
    """All tasks whose data is in the folder.

    Args:
        folder: of the local data.
        boards: its leaderboards.json.
    """
    tasks = []
    if (folder / "nab").is_dir():
        tasks += _nab(nab.load(folder), nab.published(folder))
    if (folder / "skab").is_dir():
        tasks += [
            _skab(skab.load(folder), boards["SKAB"]),
            unlabelled("SKAB, anomaly-free", [skab.load_anomaly_free(folder)], setting.SKAB),
        ]
    if (folder / "tcpd").is_dir():
        tasks += _tcpd(folder, tcpd.load(folder))
    if (folder / "waterflow").is_dir():
        tasks.append(unlabelled("water flow", [waterflow.load(folder)], setting.WATER_FLOW))
    return tasks


def _nab(files: Sequence[nab.Labelled], published: Published) -> list[Task]:
    null = [file.series for file in files if file.series.name.startswith(NO_ANOMALY)]
    return [
        Task(
            "NAB",
            tuple(file.series for file in files),
            setting.NAB,
            (*nab.PROFILES, "found", "outside", "alarms"),
            partial(_judge_nab, files),
            published,
            labels={file.series.name: file.windows for file in files},
        ),
        unlabelled("NAB, no anomaly", null, setting.NAB),
    ]


def _judge_nab(files: Sequence[nab.Labelled], found: Finds) -> dict[str, float]:
    alarms = {name: one.alarms for name, one in found.items()}
    return nab.score(files, alarms) | nab.counts(files, alarms)


def _skab(files: Sequence[skab.Labelled], board: Mapping[str, Any]) -> Task:
    names = [name for name in board["changepoint"] if name in board["outlier"]]
    published = tuple((name, (*board["changepoint"][name][:3], *board["outlier"][name])) for name in names)
    return Task(
        "SKAB",
        tuple(file.series for file in files),
        setting.SKAB,
        (*nab.PROFILES, "F1", "FAR %", "MAR %", "found", "outside", "alarms"),
        partial(_judge_skab, files),
        published,
        labels={file.series.name: [(row, row + 60) for row in file.changes] for file in files},
    )


def _judge_skab(files: Sequence[skab.Labelled], found: Finds) -> dict[str, float]:
    alarms = {name: one.alarms for name, one in found.items()}
    states = {file.series.name: skab.states(alarms[file.series.name], len(file.series)) for file in files}
    return skab.change_score(files, alarms) | skab.outlier_score(files, states) | skab.counts(files, alarms)


def _tcpd(folder: Path, sets: Sequence[tcpd.Annotated]) -> list[Task]:
    scores = tcpd.published(folder)
    single = [one for one in sets if tcpd.is_univariate(one)]
    tasks = [_changes("TCPD, univariate", single, scores)]
    tasks += [_changes("TCPD, run_log", [one], scores) for one in sets if one.series.name == "run_log"]
    if (folder / "occupancy").is_dir():
        tasks.append(_changes("TCPD, occupancy", [occupancy.load(folder)], scores))
    return tasks


def _changes(name: str, sets: Sequence[tcpd.Annotated], scores: Mapping[str, Any]) -> Task:
    names = [one.series.name for one in sets]
    published = tuple((method, tcpd.mean_published(scores, names, method)) for method in tcpd.METHODS)
    return Task(
        name,
        tuple(one.series for one in sets),
        setting.TCPD,
        ("F1", "cover", "alarms"),
        partial(_judge_changes, sets),
        tuple(row for row in published if row[1][0] is not None),
        offline=True,
        labels={one.series.name: [(row, row) for rows in one.annotators for row in rows] for one in sets},
    )


def _judge_changes(sets: Sequence[tcpd.Annotated], found: Finds) -> dict[str, float]:
    scores = tcpd.score(sets, {name: one.changes for name, one in found.items()}).values()
    return {
        "F1": sum(score["F1"] for score in scores) / len(sets),
        "cover": sum(score["cover"] for score in scores) / len(sets),
        "alarms": float(sum(len(found[one.series.name].alarms) for one in sets)),
    }


def unlabelled(name: str, series: Sequence[Series], times: Mapping[str, Any]) -> Task:
    measures = ("alarms", "per 1e5 samples", "incidents", "claimed per 1e5", "samples")
    return Task(name, tuple(series), times, measures, partial(_judge_unlabelled, series))


def _judge_unlabelled(series: Sequence[Series], found: Finds) -> dict[str, float]:
    """Alarms after the part for learning and their rate; the rate of those that claim a guarantee, where any can.

    Incidents: the alarms that repeat none which is still up, of detectors that know of such.
    """
    alarms = sum(row >= one.training for one in series for row in found[one.name].alarms)
    samples = sum(len(one) - one.training for one in series)
    measures = {"alarms": float(alarms), "per 1e5 samples": 1e5 * alarms / samples, "samples": float(samples)}
    levels = [(row, level, one) for one in series for row, level in _levels(found[one.name])]
    if levels or not alarms:
        claimed = sum(row >= one.training and level != "none" for row, level, one in levels)
        measures["claimed per 1e5"] = 1e5 * claimed / samples
    told = [(row, again, one) for one in series for row, again in _repeats(found[one.name])]
    if told or not alarms:
        measures["incidents"] = float(sum(row >= one.training and not again for row, again, one in told))
    return measures


def _levels(found: Found) -> list[tuple[int, str]]:
    return list(zip(found.alarms, found.levels, strict=False))


def _repeats(found: Found) -> list[tuple[int, bool]]:
    return list(zip(found.alarms, found.repeats, strict=False))


def is_unlabelled(task: Task) -> bool:
    """Whether the fewer alarms the better: there is nothing labelled."""
    return task.measures[0] == "alarms"
