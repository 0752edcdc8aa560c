"""Proposed settings: their reasons, and a file that `check` accepts and that says the same as the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from calibration_data import history, normal

from kstream_worker.calibration.history import Collector, KeyHistory, Limits
from kstream_worker.calibration.propose import (
    LOWEST_ARL,
    OWN_DEAD_TIME_S,
    Proposal,
    Proposed,
    choose_on_alarm,
    climb,
    left_after,
    propose,
)
from kstream_worker.calibration.reading import Read
from kstream_worker.calibration.replay import Replay, replay
from kstream_worker.calibration.runs import Run, Runs, Settings
from kstream_worker.calibration.settings_file import settings_file
from kstream_worker.calibration.study import Input, study
from kstream_worker.config import from_dict, load
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.ports import Bank

CONFIGURED = Settings(1e4, "rebase", 0.0)


def bank(settings: Settings) -> Bank:
    return RankBank(
        1,
        arl=settings.arl,
        warmup=100,
        dependence="none",
        on_alarm=settings.on_alarm,
        dead_time_ms=round(1000 * (settings.dead_time_s or 0.0)),
    )


def proposal_of(
    histories: list[KeyHistory], samples_per_day: float | None, wanted: float, *, timed: bool = True
) -> dict[str, Proposed]:
    limits = Limits(9, 99_999)
    found = Input(Read(1, 1), len(histories), True, sum(map(len, histories)), samples_per_day, 0, 0, limits)
    measured, runs = study(found, ("f0",), CONFIGURED, histories, bank, 0, lambda _: None)
    return {one.key: one for one in propose(measured, runs, wanted, timed=timed).settings}


def test_the_run_length_follows_from_the_wanted_number_of_false_alarms() -> None:
    quiet = [history(normal(2000))]
    found = proposal_of(quiet, 123_456.0, 0.5)
    assert found["arl"].value == 250_000.0
    assert "123,456 samples a day of 1 keys, divided by 250,000" in found["arl"].reason
    assert (found["on_alarm"].value, found["dead_time"].value) == ("rebase", OWN_DEAD_TIME_S)
    assert proposal_of(quiet, 123_456.0, 1e6)["arl"].value == LOWEST_ARL
    assert proposal_of(quiet, None, 1.0)["arl"].value == CONFIGURED.arl
    assert proposal_of(quiet, 1e5, 1.0, timed=False)["dead_time"].value == OWN_DEAD_TIME_S


@pytest.mark.parametrize(
    ("alarms", "reached"),
    [
        ((90, 40, 20, 2), 1e6),  # each decade buys silence, until there is enough of it
        ((90, 40, 39, 30), 1e4),  # those that are left are of changes
        ((90, 85, 10, 1), 1e3),
        ((5, 1, 0, 0), 1e3),  # there are no more than wanted
    ],
)
def test_more_run_length_only_where_it_buys_silence(alarms: tuple[int, ...], reached: float) -> None:
    y = normal(400)
    y[300:] += 5.0
    (alarm,) = replay(bank(CONFIGURED), history(y)).alarms
    runs = Runs(bank, [history(normal(10_000))], lambda _: None)
    for power, count in enumerate(alarms):
        settings = Settings(10.0 ** (3 + power), "rebase", 0.0)
        runs.keep(settings, [Replay(np.ones(10_000, dtype=np.int8), [alarm] * count)])
    assert climb(runs, Settings(1e3, "rebase", 0.0), 1000.0, 0.5) == reached  # ten days, five alarms


@pytest.mark.parametrize(
    ("alarms", "armed", "chosen"),
    [(4, 5000, "rebase"), (5, 9500, "hold"), (6, 9500, "rebase"), (2, 7500, "hold"), (2, 5000, "rebase")],
)
def test_what_is_configured_stands_unless_the_other_is_clearly_better(alarms: int, armed: int, chosen: str) -> None:
    y = normal(400)
    y[300:] += 5.0
    (alarm,) = replay(bank(CONFIGURED), history(y)).alarms
    runs = Runs(bank, [history(normal(10_000))], lambda _: None)
    for on_alarm, count, rows in (("rebase", 5, 8000), ("hold", alarms, armed)):
        states = (np.arange(10_000) < rows).astype(np.int8)
        runs.keep(Settings(1e4, on_alarm, 0.0), [Replay(states, [alarm] * count)])
    found, reason = choose_on_alarm(runs, CONFIGURED)
    assert found == chosen
    assert f"rebase raises 5 alarms and is armed at 80.0% of the samples, hold raises {alarms}" in reason


def test_a_key_that_goes_back_and_forth_gets_a_dead_time() -> None:
    y = normal(6000)
    for start in range(1000, 5000, 800):
        y[start : start + 400] += 4.0
    found = proposal_of([history(y)], 1440.0, 0.1)
    assert found["dead_time"].value in (21_600.0, 86_400.0)
    assert "within a day of another one" in found["dead_time"].reason


def test_what_a_dead_time_leaves() -> None:
    times = [0, 1000, 59_000, 61_000, 200_000]
    assert left_after(times, 0.0) == 5
    assert left_after(times, 60.0) == 3
    assert left_after(times, 1e9) == 1
    assert left_after([], 60.0) == 0


def test_a_run_is_made_once() -> None:
    said: list[str] = []
    histories = [history(normal(500)), history(normal(50))]
    runs = Runs(bank, histories, said.append)
    first = runs.run(CONFIGURED)
    assert runs.run(CONFIGURED) is first
    assert len(said) == 1
    assert first == runs.keep(CONFIGURED, [replay(bank(CONFIGURED), one) for one in histories])
    assert (first.armed, first.warming, first.samples) == ((400, 0), (100, 50), (500, 50))
    assert first.per_day(1100.0) == 0.0
    assert first.per_day(None) is None


def test_alarms_a_day_count_all_keys_of_the_input() -> None:
    run = Run(CONFIGURED, ((1, 2), (3,)), (100, 100), (0, 0), (150, 150))
    assert run.per_day(1000.0) == pytest.approx(10.0)
    assert run.armed_share == pytest.approx(2 / 3)


def test_the_input_is_what_was_collected() -> None:
    limits = Limits(1, 10)
    found = Input.of(Read(2, 5), Collector(limits, 1, two_sided=False, seed=0), limits)
    assert (found.samples, found.samples_per_day, found.keys) == (0, None, 0)


CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "files": {
        "app": {"id": "pumps", "model_epoch": 3},
        "bus": {"kind": "files", "files": {"inputs": ["a b.csv", 'odd "\\\x7f\té🌊.csv'], "format": "csv"}},
        "input": {"y": ["v.a", "v.b"], "timestamp": "ts", "null_key": "by_offset", "null_key_buckets": 3},
        "detector": {"warmup": 250, "dependence": "none", "dead_time": "90s"},
        "commit": {"interval": "300ms", "max_bytes": "1MiB"},
        "telemetry": {"port": None},
    },
    "kafka": {
        "app": {"id": "pumps"},
        "bus": {
            "client": "confluent",
            "kafka": {
                "bootstrap_servers": ["a:1", "b:2"],
                "group_instance_id": "pod-1",
                "common": {"security.protocol": "SASL_PLAINTEXT", "socket.keepalive.enable": True},
                "consumer": {"session.timeout.ms": 9000},
            },
        },
        "input": {"topic": "readings", "x": "x", "y": "y", "dims": 4, "start": "2026-01-01T00:00:00Z"},
        "model": {"alpha": 0.2},
        "state": {"ttl": 0, "topic": "elsewhere"},
    },
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_file_says_what_the_configuration_says(name: str, tmp_path: Path) -> None:
    given = dict(CONFIGURATIONS[name])
    if name == "files":
        given["telemetry"] = {"port": 9999}
    config = from_dict(given)
    settings = (Proposed("arl", 25_000.0, "A reason.\nIn two lines."), Proposed("dead_time", 86_400.0, "Another."))
    run = Run(CONFIGURED, (), (), (), ())
    path = tmp_path / "proposed.toml"
    text = settings_file(config, Proposal(settings, ("A note.",), run, None), "What this is.")
    path.write_text(text, encoding="utf-8")
    assert load(path) == msgspec.structs.replace(
        config, detector=msgspec.structs.replace(config.detector, arl=25_000.0, dead_time=86_400.0)
    )
    assert '# Another.\ndead_time = "1d"' in text
    assert "estimates" not in text  # the defaults lead to it
    assert "# A reason.\n# In two lines.\narl = 25000.0" in text


def test_no_secret_gets_into_the_file() -> None:
    config = from_dict(
        {
            "app": {"id": "pumps"},
            "bus": {"kafka": {"bootstrap_servers": "a:1", "common": {"sasl_plain_password": "correct-horse"}}},
            "input": {"topic": "t", "y": "v"},
        }
    )
    text = settings_file(config, Proposal((), (), Run(CONFIGURED, (), (), (), ()), None), "x")
    assert "correct-horse" not in text
    assert "# sasl_plain_password is a secret" in text


def test_a_history_without_a_single_armed_sample_is_said_to_be_so() -> None:
    found = Input(Read(1, 1), 1, True, 50, 1440.0, 0, 0, Limits(9, 99))
    measured, runs = study(found, ("f0",), CONFIGURED, [history(normal(50))], bank, 0, lambda _: None)
    assert measured.keys[0].guarantee == "not armed"
    assert measured.configured.rate.per_1e5 is None
    assert propose(measured, runs, 1.0, timed=True).run.alarms == 0
