"""A silent key on a real broker: raised once and cleared once, by workers that are killed in between."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from benchmarks.job import (
    OUTPUTS,
    JobData,
    WorkerProcess,
    create_topics,
    read_all,
    wait_until_done,
    write_config,
)

pytestmark = pytest.mark.kafka

START_MS = int(time.time()) // 10 * 10_000 - 3_600_000  # on the grid of ticks, eighths of 10 s
EXTRA = '[detector]\nsilence = "10s"\ndependence = "none"\n[commit]\ninterval = 0.2\n'


class App:
    """A topic of one partition, and its worker."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.kafka = kafka
        self.app_id = f"silence-{secrets.token_hex(4)}"
        self.topic = f"{self.app_id}-input"
        create_topics(kafka, [self.topic, *(f"{self.app_id}-{kind}" for kind in OUTPUTS)], 1)
        data = JobData(mode="stream")
        config = write_config(folder / "worker.toml", self.app_id, kafka, self.topic, data, EXTRA)
        self.values = [0.5] * data.dims
        static = ("--set", "bus.kafka.group_instance_id=one")  # the next process need not wait for the end of a session
        self.worker = WorkerProcess(config, folder / "worker.log", flags=static)

    def send(self, *samples: tuple[str, int]) -> None:
        """Samples of keys, at these seconds."""
        producer = KafkaProducer(bootstrap_servers=self.kafka)
        for key, seconds in samples:
            time_ms = START_MS + 1000 * seconds
            value = json.dumps({"ts": time_ms, "y": self.values}).encode()
            producer.send(self.topic, key=key.encode(), value=value, timestamp_ms=time_ms)
        producer.flush(30)
        producer.close()

    def work(self) -> None:
        """A worker reads and commits all there is."""
        if not self.worker.alive():
            self.worker.start()
        wait_until_done(self.kafka, self.app_id, self.topic, 1, 120.0, self.worker)

    def told(self) -> list[tuple[str, str, str, int]]:
        alarms: list[dict[str, Any]] = [json.loads(row[-1]) for row in read_all(self.kafka, f"{self.app_id}-alarms", 1)]
        return [(alarm["key"], alarm["transition"], alarm["reason"], alarm["offset"]) for alarm in alarms]


@pytest.fixture
def silent_app(kafka: str, tmp_path: Path) -> Iterator[App]:
    app = App(kafka, tmp_path)
    yield app
    app.worker.close()


@pytest.mark.timeout(400)
def test_a_silent_key_is_raised_once_and_cleared_once(silent_app: App) -> None:
    app = silent_app
    app.send(("pump", 0), *(("other", second) for second in range(13)))
    app.work()
    raised = ("pump", "raised", "silent", 13)  # the tick of 11.25 s, at the record of 12 s
    assert app.told() == [raised]
    app.worker.kill()
    app.send(*(("other", second) for second in range(13, 20)))
    app.work()
    app.worker.kill()
    app.send(("other", 20), ("pump", 20), ("pump", 21), ("other", 21))
    app.work()
    app.worker.kill()
    app.send(("other", 22))
    app.work()
    assert app.worker.terminate() == 0
    assert app.told() == [raised, ("pump", "cleared", "returned", 22)]
