"""Models of all kinds on a real broker: a killed worker publishes what an undisturbed one does, once, to the bit.

To add a kind: a line in `KINDS`.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plugin_support import environment

from benchmarks.job import (
    OUTPUTS,
    JobData,
    WorkerProcess,
    committed_total,
    create_topics,
    produce,
    read_all,
    wait_until_done,
    write_config,
)

pytestmark = pytest.mark.kafka

PARTITIONS = 2
DETECTOR = '[detector]\narl = 1000\nwarmup = 100\ndependence = "none"\n'
QUICK = "[commit]\ninterval = 0.2\n[state]\ninterval = 0.5\n[bus.kafka.common]\nclient_id = 'm'\n"
KINDS = {
    "cme": '[model]\nkind = "cme"\n[cme]\natoms = 16\nwarmup = 20\n',
    "koopman": '[model]\nkind = "koopman"\n[koopman]\natoms = 16\nwarmup = 20\n',
    "olrsc": '[model]\nkind = "olrsc"\n[olrsc]\nrank = 1\nwarmup = 20\nsettle = 20\n',
    "ridge": '[model]\nkind = "ridge"\n[ridge]\nwindow = 64\n',
    "forecast": '[model]\nkind = "forecast"\noptions = { memory = 50 }\n',
}


class App:
    """One application on the shared input: its topics and its worker."""

    def __init__(self, kafka: str, folder: Path, site: Path, topic: str, data: JobData, model: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.app_id = f"models-{secrets.token_hex(4)}"
        create_topics(kafka, [f"{self.app_id}-{kind}" for kind in OUTPUTS], PARTITIONS)
        config = write_config(folder / f"{self.app_id}.toml", self.app_id, kafka, topic, data, model + DETECTOR + QUICK)
        self.worker = WorkerProcess(config, folder / f"{self.app_id}.log", environment=environment(site))

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait for it while the worker lives."""
        deadline = time.monotonic() + 90.0
        while not reached():
            assert time.monotonic() < deadline, self.worker.log.read_text()[-3000:]
            assert self.worker.alive(), self.worker.log.read_text()[-3000:]
            time.sleep(0.05)

    def reads(self) -> bool:
        """Whether it has opened its partitions."""
        return '"event": "reading"' in self.worker.log.read_text()

    def committed(self) -> int:
        """Records."""
        return committed_total(self.kafka, self.app_id, self.topic, PARTITIONS)[0]

    def finish(self) -> None:
        wait_until_done(self.kafka, self.app_id, self.topic, PARTITIONS, 120.0, self.worker)
        assert self.worker.terminate() == 0

    def published(self, kind: str) -> list[dict[str, Any]]:
        """What was committed, partition by partition, without what names the application or the wall clock."""
        found = [json.loads(value) for *_, value in sorted(read_all(self.kafka, f"{self.app_id}-{kind}", PARTITIONS))]
        incidents: dict[str, int] = {}  # their ids are made from the application's
        for one in found:
            assert one.pop("app_id") == self.app_id
            if "incident" in one:
                one["incident"] = incidents.setdefault(one["incident"], len(incidents))
            for name in ("id", "lag_s"):
                one.pop(name, None)
        return found


@pytest.fixture
def apps() -> Iterator[list[App]]:
    started: list[App] = []
    yield started
    for one in started:
        one.worker.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_killed_worker_publishes_what_an_undisturbed_one_does(
    kafka: str, plugin_site: Path, tmp_path: Path, apps: list[App], kind: str
) -> None:
    data = JobData(keys=8, pairs=300, changed=2, change_at=200, mode="stream")
    topic = f"models-{secrets.token_hex(4)}"
    create_topics(kafka, [topic], PARTITIONS)
    disturbed, calm = (App(kafka, tmp_path, plugin_site, topic, data, KINDS[kind]) for _ in range(2))
    apps += [disturbed, calm]
    producing = threading.Thread(target=produce, args=(kafka, topic, PARTITIONS, data, 0.012))
    disturbed.worker.start()
    disturbed.wait_until(disturbed.reads)
    producing.start()
    disturbed.wait_until(lambda: disturbed.committed() > 1000)
    disturbed.worker.kill()
    assert disturbed.committed() < data.keys * data.pairs
    disturbed.worker.start()
    producing.join(60.0)
    calm.worker.start()
    disturbed.finish()
    calm.finish()
    estimates = calm.published("estimates")
    assert len(estimates) == data.keys * data.pairs
    assert len({(one["partition"], one["offset"]) for one in estimates}) == len(estimates)
    assert any(value is not None for one in estimates for value in one["values"].values())
    assert disturbed.published("estimates") == estimates
    alarms = calm.published("alarms")
    assert alarms
    assert disturbed.published("alarms") == alarms
