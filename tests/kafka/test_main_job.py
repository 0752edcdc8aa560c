"""The main job with real worker processes on a real broker: calm, and through kills, stops and a frozen broker."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.job import OUTPUTS, JobData, WorkerProcess, create_topics, judge, produce, wait_until_done, write_config
from kstream_worker.bus.broker import LocalKafka

pytestmark = pytest.mark.kafka

PARTITIONS = 2
DETECTOR = "[detector]\narl = 10000\nwarmup = 200\n"
IMPATIENT = (
    "[bus.kafka.consumer]\nsession_timeout_ms = 6000\nheartbeat_interval_ms = 1500\nmax_poll_interval_ms = 6000\n"
)


class Setting:
    """Topics, a configuration and a worker process for one test."""

    def __init__(
        self, kafka: LocalKafka, folder: Path, data: JobData, extra: str = "", client: str = "kafka-python"
    ) -> None:
        self.kafka, self.data = kafka, data
        self.app_id = f"job-{secrets.token_hex(4)}"
        self.topic = f"{self.app_id}-input"
        outputs = [f"{self.app_id}-{kind}" for kind in OUTPUTS]
        create_topics(kafka.bootstrap_servers, [self.topic, *outputs], PARTITIONS)
        config = write_config(
            folder / "worker.toml", self.app_id, kafka.bootstrap_servers, self.topic, data, DETECTOR + extra, client
        )
        self.worker = WorkerProcess(config, folder / "worker.log")

    def produce(self, pause_s: float = 0.0) -> int:
        return produce(self.kafka.bootstrap_servers, self.topic, PARTITIONS, self.data, pause_s)

    def finish(self, records: int) -> object:
        wait_until_done(self.kafka.bootstrap_servers, self.app_id, self.topic, PARTITIONS, 120.0, self.worker)
        assert self.worker.terminate() == 0
        return judge(self.kafka.bootstrap_servers, self.app_id, PARTITIONS, self.data, records)


@pytest.fixture
def workers() -> Iterator[list[WorkerProcess]]:
    started: list[WorkerProcess] = []
    yield started
    for worker in started:
        worker.close()


@pytest.mark.parametrize(
    ("mode", "client"), [("explicit", "kafka-python"), ("stream", "kafka-python"), ("explicit", "confluent")]
)
def test_calm(kafka_process: LocalKafka, tmp_path: Path, workers: list[WorkerProcess], mode: str, client: str) -> None:
    data = JobData(keys=12, pairs=900, changed=3, change_at=600, mode=mode)
    extra = 'dependence = "none"\n' if mode == "stream" else ""
    setting = Setting(kafka_process, tmp_path, data, extra, client)
    workers.append(setting.worker)
    records = setting.produce()
    setting.worker.start()
    verdict = setting.finish(records)
    assert verdict.exactly_once
    assert verdict.found == 3
    assert verdict.false_alarms <= 1


def test_disturbed(kafka_process: LocalKafka, tmp_path: Path, workers: list[WorkerProcess]) -> None:
    data = JobData(keys=20, pairs=1200, changed=0)
    setting = Setting(kafka_process, tmp_path, data, IMPATIENT)
    workers.append(setting.worker)
    produced: list[int] = []
    producing = threading.Thread(target=lambda: produced.append(setting.produce(pause_s=0.02)))
    setting.worker.start()
    producing.start()
    time.sleep(6.0)
    setting.worker.kill()
    setting.worker.start()
    time.sleep(5.0)
    setting.worker.signal(signal.SIGSTOP)  # beyond its session and its poll interval
    time.sleep(8.0)
    setting.worker.signal(signal.SIGCONT)
    time.sleep(2.0)
    kafka_process.freeze()
    time.sleep(6.0)
    kafka_process.thaw()
    producing.join(60.0)
    verdict = setting.finish(produced[0])
    assert verdict.exactly_once
    assert verdict.estimates == 24_000


def test_a_topic_that_does_not_exist_is_78(kafka_process: LocalKafka, tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.toml", "nobody", kafka_process.bootstrap_servers, "nothing-here", JobData())
    done = run_worker(config)
    assert done.returncode == 78
    assert "nothing-here does not exist" in done.stderr


def test_a_broker_that_is_away_at_the_start_is_1_after_patience(tmp_path: Path) -> None:
    extra = "[bus.kafka.common]\nbootstrap_timeout_ms = 500\n"
    config = write_config(tmp_path / "c.toml", "away", "127.0.0.1:1", "t", JobData(), extra)
    with subprocess.Popen(
        [sys.executable, "-m", "kstream_worker", "run", "--config", str(config)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "does not answer" in line:
                break
        process.send_signal(signal.SIGTERM)  # it waits for the bus, and stops when told to
        assert process.wait(30.0) == 0


def run_worker(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kstream_worker", "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
