"""The benchmark around the scorers: adapters, the running rule, controls, tables, on made series."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.detection import controls, mmd, ours, setting, tables, tasks, window_peers
from benchmarks.detection.__main__ import main
from benchmarks.detection.cache import Cache
from benchmarks.detection.detector import Detector, apart, by_running_rule, by_score, merge, scaled
from benchmarks.detection.relocate import again, rank_split
from benchmarks.detection.run import OURS, control_rows, our_rows, run
from benchmarks.detection.series import Found, Series

CHANGE = 700


def shifted(name: str = "shifted", rows: int = 1000, training: int = 200, d: int = 1) -> Series:
    """Independent normal samples, a second apart, whose mean rises by 3 at row 700."""
    values = np.random.default_rng(5).normal(size=(rows, d))
    values[CHANGE:] += 3.0
    return Series(name, values, np.arange(rows) * 1000, tuple(f"f{j}" for j in range(d)), training)


def change_task(series: Series) -> tasks.Task:
    return tasks.Task(
        "made",
        (series,),
        {"dead_time_ms": 10_000_000},
        ("right", "alarms"),
        lambda found: {
            "right": float(any(CHANGE <= row < CHANGE + 50 for row in found[series.name].alarms)),
            "alarms": float(len(found[series.name].alarms)),
        },
        (("somebody", (0.5, None)),),
    )


def test_our_detector_walks_a_series_in_one_call_and_dates_the_change() -> None:
    found = ours.find(shifted(), setting.EVERYWHERE | {"dead_time_ms": 10_000_000, "no_such_option": 3})
    assert len(found.alarms) == 1
    assert CHANGE <= found.alarms[0] <= CHANGE + 20
    assert abs(found.changes[0] - CHANGE) <= 5


def test_an_alarm_that_goes_on_with_the_last_change_names_no_other() -> None:
    found = ours.find(shifted(), setting.EVERYWHERE | setting.TCPD | {"dependence": "none", "period": "none"})
    assert len(found.alarms) > 1
    assert found.changes[1] == found.changes[0]
    assert abs(found.changes[0] - CHANGE) <= 5


def test_changes_are_found_again_since_the_last_one_in_the_leading_feature() -> None:
    rng = np.random.default_rng(2)
    values = 0.1 * rng.normal(size=(100, 2))
    values[40:, 0] += 1.0
    values[70:, 0] -= 1.0
    values[20:, 1] += 1.0
    series = Series("two steps", values, 1000 * np.arange(100), ("a", "b"), 0)
    found = Found((60, 90), (60, 90), ("none", "none"), (0, 0))
    assert again(series, found).changes == (40, 70)
    assert again(series, Found((60, 65), (60, 65), (), (1, 0))).changes == (20, 40)
    assert again(series, Found((2,), (1,))).changes == (1,)  # too few rows to split
    ties = np.array([[1.0], [1.0], [0.0], [2.0], [2.0], [2.0]])
    assert rank_split(ties) == 3


@pytest.mark.parametrize(("training", "rows"), [(0, 90), (243, 243), (750, 600)])
def test_the_warm_up_is_the_part_for_learning_within_what_the_bank_takes(training: int, rows: int) -> None:
    assert ours.warm_up(shifted(training=training)) == rows


def test_the_running_rule_compares_with_scores_before_alone() -> None:
    scores = np.random.default_rng(1).random(300)
    scores[200] = 50.0
    assert by_running_rule(scores, 4.0, 30) == Found((200,), (170,))
    scores[:100] = np.nan  # no score yet: the next 60 are the history
    assert by_running_rule(scores, 4.0, 30) == Found((200,), (170,))
    assert by_running_rule(np.zeros(300), 4.0, 0) == Found((), ())
    scores[10] = 50.0  # too few before it
    assert 10 not in by_running_rule(scores, 4.0, 0).alarms


def test_alarms_within_the_dead_time_of_one_that_stands_are_one() -> None:
    found = Found((1, 5, 12, 13, 30), (0, 4, 11, 12, 29))
    assert apart(found, shifted(), 11_000) == Found((1, 12, 30), (0, 11, 29))
    assert apart(found, shifted(), 0) == found


def test_detectors_of_single_features_are_merged_by_row() -> None:
    assert merge([Found((3, 9), (2, 8)), Found((1, 3), (0, 1))]) == Found((1, 3, 9), (0, 2, 8))


def test_scaling_sees_the_part_for_learning_alone() -> None:
    z = scaled(shifted())
    assert z[:200].mean() == pytest.approx(0.0, abs=1e-12)
    assert z[:200].std() == pytest.approx(1.0)
    assert z[CHANGE:].mean() > 2.0


def test_online_mmd_alarms_about_as_often_as_asked_and_finds_a_shift() -> None:
    [detector] = mmd.detectors()
    assert detector.find is not None
    rng = np.random.default_rng(3)
    null = Series("null", rng.normal(size=(8000, 2)), np.arange(8000), ("a", "b"), 600)
    assert 10 <= len(detector.find(null, 300.0).alarms) <= 50  # 25 expected
    found = detector.find(shifted(training=400), 1000.0)
    assert CHANGE <= next(row for row in found.alarms if row > CHANGE - 20) <= CHANGE + 20


def test_windowed_rulsif_is_largest_around_the_change() -> None:
    [detector] = window_peers.detectors()
    assert detector.score is not None
    scores = detector.score(shifted())
    assert CHANGE + 20 <= int(np.nanargmax(scores)) <= CHANGE + 2 * window_peers.WINDOW
    [first, *_] = by_running_rule(scores, 6.0, detector.lag).alarms
    assert CHANGE <= first <= CHANGE + window_peers.WINDOW


def test_random_alarms_are_as_many_as_asked_where_scores_count() -> None:
    series = [shifted("a"), shifted("b", rows=300)]
    found = controls.random_alarms(series, 90, seed=4)
    assert sum(len(one.alarms) for one in found.values()) == 90
    assert min(row for one in found.values() for row in one.alarms) >= 200
    assert len(found["a"].alarms) > len(found["b"].alarms)
    assert controls.random_alarms(series, 90, seed=4) == found
    assert controls.random_alarms(series, 90, seed=5) != found


def test_a_clock_of_as_many_alarms_knows_no_data() -> None:
    series = [shifted("a"), shifted("b", training=0, rows=500)]
    assert controls.like_ours(series, 13) == 100
    found = controls.clock(series, 100)
    assert found["a"].alarms == tuple(range(200, 1000, 100))
    assert found["b"].alarms == (100, 200, 300, 400)


def test_answers_of_peers_are_kept_until_version_setting_or_data_change(tmp_path: Path) -> None:
    calls: list[float] = []

    def find(series: Series, value: float) -> Found:
        calls.append(value)
        return Found((len(series) - 1,), (int(value),))

    detector = Detector("p", "", "s", "v", 1.0, (2.0,), find)
    cache = Cache(tmp_path)
    first = cache.find(detector, shifted(), 1.0)
    assert Cache(tmp_path).find(detector, shifted(), 1.0) == first
    assert calls == [1.0]
    cache.find(detector, shifted(), 2.0)
    cache.find(detector, shifted(rows=900), 1.0)
    cache.find(Detector("p", "", "other", "v", 1.0, (), find), shifted(), 1.0)
    assert calls == [1.0, 2.0, 1.0, 1.0]


def test_scores_of_peers_are_kept_for_all_thresholds(tmp_path: Path) -> None:
    calls: list[str] = []

    def score(series: Series) -> np.ndarray:
        calls.append(series.name)
        return np.abs(series.values[:, 0])

    detector = by_score("p", "", "s", score)
    cache = Cache(tmp_path)
    few, many = (cache.find(detector, shifted(), value) for value in (9.0, 2.0))
    assert len(few.alarms) < len(many.alarms)
    assert calls == ["shifted"]


def test_a_table_has_ours_peers_controls_and_published_rows_with_the_oracle_beside_them(tmp_path: Path) -> None:
    series = shifted()
    [peer] = mmd.detectors()
    [result] = run([change_task(series)], [peer], Cache(tmp_path))
    kinds = [row.kind for row in result.rows]
    assert kinds == ["ours", "peer", "control", "control", "control", "published"]
    assert result.rows[0].measures == {"right": 1.0, "alarms": 1.0}
    assert result.rows[0].oracle == 1.0
    assert 0.0 <= float(result.rows[3].measures["right"] or 0.0) < 0.5  # one random alarm among 800 rows
    text = tables.markdown([result])
    assert "| **ours** | 1.0 | 1 | 1.0 (A = " in text
    assert "| somebody (published) | 0.5 |  |  |" in text
    summary = json.loads(json.dumps(tables.summary([result])))
    assert summary["tasks"]["made"]["rows"][OURS]["right"] == 1.0


def test_controls_of_a_silent_detector_are_silent() -> None:
    task = change_task(shifted())
    result = our_rows(task)
    result.found = {"shifted": Found((), ())}
    rows = control_rows(task, result)
    assert [row.measures["alarms"] for row in rows] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("value", "text"), [(86_400_000, "1 d"), (10_000, "10 s"), (1500, "1500 ms"), (0, "0"), ("auto", "auto")]
)
def test_times_are_said_in_their_largest_unit(value: object, text: str) -> None:
    assert tables.duration(value) == text


def test_without_data_the_command_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    assert "set KSTREAM_DATA" in capsys.readouterr().err


def test_rates_without_labels_stand_beside_what_is_stated_and_claimed() -> None:
    series = shifted()
    task = tasks.unlabelled("null", [series], {"dead_time_ms": 0})
    levels, repeats = ("none", "none", "approximate"), (False, False, True)
    found = {"shifted": Found((100, 300, 600), (90, 290, 590), levels, repeats=repeats)}
    rates = {"alarms": 2.0, "per 1e5 samples": 250.0, "samples": 800.0}
    assert task.judge(found) == rates | {"claimed per 1e5": 125.0, "incidents": 1.0}
    assert task.judge({"shifted": Found.at([100, 300, 600])}) == rates  # peers know of neither
    [stated] = control_rows(task, our_rows(task))
    assert stated.measures["per 1e5 samples"] == 1e5 / setting.EVERYWHERE["arl"]
