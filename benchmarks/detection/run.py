"""Every detector on every task: at its default, and at the value of one parameter that the answers would choose."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.detection import controls, mmd, offline_peers, ours, river_peers, setting, window_peers
from benchmarks.detection.cache import Cache
from benchmarks.detection.detector import Detector, apart
from benchmarks.detection.relocate import again
from benchmarks.detection.series import Found, Series
from benchmarks.detection.tasks import Finds, Task, is_unlabelled

OURS = "ours"
OURS_UNDATED = "ours, changes dated by the alarm"
OURS_AGAIN = "ours, changes found again by a rank split"
RANDOM_AGAIN = "as many random alarms, found again by a rank split"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Attributes:
        detector: as printed.
        kind: `ours`, `peer`, `offline`, `control` or `published`.
        measures: by name.
        oracle: of each measure's best value over the swept parameter the leading one, None where nothing is swept.
        oracle_at: the parameter there, in words.
    """

    detector: str
    kind: str
    measures: Mapping[str, float | None]
    oracle: float | None = None
    oracle_at: str = ""


@dataclass(slots=True)
class Result:
    """A task's table, and what our detector found in its series."""

    task: Task
    rows: list[Row] = field(default_factory=list)
    found: Finds = field(default_factory=dict)


def peers() -> tuple[list[Detector], list[str]]:
    """Those that are installed, and a line for each package that is not."""
    found, missing = [*window_peers.detectors(), *mmd.detectors()], []
    packages: tuple[tuple[str, Callable[[], list[Detector]]], ...] = (
        ("river", river_peers.detectors),
        ("changepoynt", window_peers.changepoynt),
        ("ruptures", offline_peers.detectors),
    )
    for package, make in packages:
        try:
            found += make()
        except ModuleNotFoundError:
            missing.append(f"{package} is not installed, its rows are left out (pip install {package})")
    return found, missing


def run(tasks: Sequence[Task], others: Sequence[Detector], cache: Cache) -> list[Result]:
    """All tables."""
    results = []
    for task in tasks:
        started = time.perf_counter()
        result = our_rows(task)
        print(f"{task.name}: ours {time.perf_counter() - started:.0f} s", flush=True)
        for detector in others:
            if task.offline or not detector.offline:
                started = time.perf_counter()
                result.rows.append(_peer_row(task, detector, cache))
                print(f"{task.name}: {detector.name} {time.perf_counter() - started:.0f} s", flush=True)
        result.rows += control_rows(task, result)
        result.rows += [
            Row(name, "published", dict(zip(task.measures, values, strict=False))) for name, values in task.published
        ]
        results.append(result)
    return results


def our_rows(task: Task) -> Result:
    """Our detector at the one setting, with the best of other run lengths beside it."""
    options = setting.EVERYWHERE | dict(task.times)
    swept = () if is_unlabelled(task) else setting.SWEPT_ARL
    by_arl = {arl: _find_all(task.series, partial(_ours, options | {"arl": arl})) for arl in swept}
    found = by_arl.get(options["arl"]) or _find_all(task.series, partial(_ours, options))
    best, at = _best(task, by_arl.items())
    rows = [Row(OURS, "ours", task.judge(found), best, f"A = {at:g}")]
    if task.offline:
        undated = {name: Found.at(list(one.alarms)) for name, one in found.items()}
        rows.append(Row(OURS_UNDATED, "ours", task.judge(undated)))
        rows.append(Row(OURS_AGAIN, "ours", task.judge(_all_again(task, found))))
    return Result(task, rows, found)


def _all_again(task: Task, found: Finds) -> Finds:
    return {one.name: again(one, found[one.name]) for one in task.series}


def _ours(options: Mapping[str, object], series: Series) -> Found:
    return ours.find(series, options)


def _peer_row(task: Task, detector: Detector, cache: Cache) -> Row:
    values = (detector.default,) if is_unlabelled(task) else dict.fromkeys((detector.default, *detector.swept))
    by_value = {value: _find_all(task.series, partial(_peer, detector, cache, task, value)) for value in values}
    best, at = _best(task, by_value.items()) if len(by_value) > 1 else (None, 0.0)
    kind = "offline" if detector.offline else "peer"
    return Row(detector.name, kind, task.judge(by_value[detector.default]), best, f"{detector.parameter} {at:g}")


def _peer(detector: Detector, cache: Cache, task: Task, value: float, series: Series) -> Found:
    return apart(cache.find(detector, series, value), series, int(task.times["dead_time_ms"]))


def _find_all(series: Iterable[Series], find: Callable[[Series], Found]) -> dict[str, Found]:
    return {one.name: find(one) for one in series}


def _best(task: Task, candidates: Iterable[tuple[float, Finds]]) -> tuple[float | None, float]:
    """The best leading measure and where; of tasks without labels None."""
    leading = task.measures[0]
    if is_unlabelled(task):
        return None, 0.0
    scores = [(task.judge(found)[leading], -order, value) for order, (value, found) in enumerate(candidates)]
    best = max(scores)
    return best[0], best[2]


def control_rows(task: Task, result: Result) -> list[Row]:
    """No alarm at all, as many random ones as ours, a clock of as many; the best clock as the oracle's figure.

    Without labels: what our setting states.
    """
    if is_unlabelled(task):
        rate = 1e5 / float(setting.EVERYWHERE["arl"])
        return [Row("stated: at most", "control", {"per 1e5 samples": rate, "claimed per 1e5": rate})]
    empty = {one.name: Found((), ()) for one in task.series}
    count = sum(row >= one.training for one in task.series for row in result.found[one.name].alarms)
    random = [controls.random_alarms(task.series, count, seed) for seed in range(controls.SEEDS)]
    every = controls.like_ours(task.series, count)
    best, at = _best(task, ((k, controls.clock(task.series, k)) for k in dict.fromkeys((every, *controls.CLOCKS))))
    return [
        Row("no alarm", "control", task.judge(empty)),
        Row("as many random alarms", "control", controls.mean_scores([task.judge(one) for one in random])),
        *_found_again(task, random),
        Row(
            f"clock, every {every} rows",
            "control",
            task.judge(controls.clock(task.series, every)),
            best,
            f"{at:g} rows",
        ),
    ]


def _found_again(task: Task, random: Sequence[Finds]) -> list[Row]:
    """What the split gives for nothing, where changes are asked for."""
    if not task.offline:
        return []
    scores = controls.mean_scores([task.judge(_all_again(task, one)) for one in random])
    return [Row(RANDOM_AGAIN, "control", scores)]
