"""A notice is published once per key, counted, and leaves the key's alarm as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from kstream_worker import app
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.ranks_layout import NOT_STATIONARY, STATIONARY
from kstream_worker.http import Status
from kstream_worker.telemetry.metrics import Metrics


class Wandering(RankBank):
    """A bank whose keys are all found to be not stationary."""

    def allocate(self, key: bytes) -> int:
        slot = super().allocate(key)
        self._slots.ints[slot, STATIONARY] = NOT_STATIONARY
        return slot


def test_a_key_that_is_not_stationary_gives_one_notice(
    make_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"arl": 10_000.0, "warmup": 60, "dependence": "none"}
    monkeypatch.setattr(app, "build_bank", lambda config: Wandering(2, **settings))
    job = make_job(input={"x": ""}, detector={"dependence": "none"})
    job.fill(pairs=400, keys=2)
    board = Status(1e9)
    metrics = Metrics("1", board)
    bus = job.broker.bus(topic="readings", group="drift", identity="app-0", poll_sizes=(100,))
    clock = job.broker.clock
    worker = app.build_worker(
        job.config, bus=bus, telemetry=metrics, board=board, clock=clock, sleep=clock.sleep, now_ms=lambda: 0
    )
    job.run(worker)
    alarms = job.alarms()
    notices = [alarm for alarm in alarms if alarm["transition"] == "notice"]
    assert [(n["key"], n["reason"], n["seq"]) for n in notices] == [
        ("pump-0", "not_stationary", 61),
        ("pump-1", "not_stationary", 61),
    ]
    assert all(n["explanation"] is None and n["features"] == [] and n["evidence"] == 0.0 for n in notices)
    assert [alarm["key"] for alarm in alarms if alarm["transition"] == "raised"] == ["pump-0"]
    assert len({alarm["id"] for alarm in alarms}) == len(alarms)
    page = generate_latest(metrics.registry).decode()
    assert 'kstream_worker_alarm_transitions_total{kind="notice"} 2.0' in page
