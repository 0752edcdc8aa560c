"""The demonstration through Kafka: topics, a producer, a worker process and a reader of its outputs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from kstream_worker import app
from kstream_worker.bus.kafka_python import KafkaReader, KafkaSettings
from kstream_worker.bus.kafka_python.produce import produce
from kstream_worker.config import Config
from kstream_worker.errors import Fatal
from kstream_worker.records import TopicPartition

PARTITIONS = 2
_DEADLINE_S = 180.0


class Job:
    """Topics on a broker and one worker process, ended on leaving the context."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._settings = KafkaSettings(list(config.bus.kafka.bootstrap_servers))
        self._worker: subprocess.Popen[bytes] | None = None
        names = (config.input.topic, *app.output_topics(config))
        # Record times lie years back: by default retention would delete them while they are read.
        settings = {name: {"retention.ms": "-1"} for name in names}
        settings[config.state.topic] = {"cleanup.policy": "compact"}
        app.with_cluster(
            app.build_bus(config), lambda cluster: cluster.create_topics(dict.fromkeys(settings, PARTITIONS), settings)
        )

    def __enter__(self) -> Job:
        settings = self._folder / "demo.yaml"
        settings.write_bytes(msgspec.yaml.encode(self._config))
        command = [sys.executable, "-m", "kstream_worker", "run", "--config", str(settings)]
        with (self._folder / "worker.log").open("wb") as log:
            self._worker = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None and self._worker.poll() is None:
            self._worker.send_signal(signal.SIGTERM)
            try:
                self._worker.wait(30.0)
            except subprocess.TimeoutExpired:
                self._worker.kill()
                self._worker.wait()

    def produce(self, rows: Iterable[tuple[str, int, bytes]]) -> int:
        """Write the input, all records of a key to one partition; how many they were."""
        return produce(self._settings, self._config.input.topic, rows, PARTITIONS)

    def follow(
        self, total: int, on_alarm: Callable[[dict[str, Any]], None]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Read estimates and alarms, committed ones only, until there is an estimate for every record."""
        estimates_topic, alarms_topic, _ = app.output_topics(self._config)
        reader = KafkaReader(self._settings)
        reader.assign({TopicPartition(t, p): 0 for t in (estimates_topic, alarms_topic) for p in range(PARTITIONS)})
        found: dict[str, list[dict[str, Any]]] = {estimates_topic: [], alarms_topic: []}
        deadline = time.monotonic() + _DEADLINE_S
        quiet = 0  # polls without anything after the last estimate: alarms of the same commit may come behind it
        while len(found[estimates_topic]) < total or quiet < 2:
            self._check(deadline)
            batches = reader.poll(0.5)
            quiet = 0 if batches else quiet + 1
            for batch in batches:
                outputs = [json.loads(value or b"null") for value in batch.values]
                found[batch.partition.topic] += outputs
                if batch.partition.topic == alarms_topic:
                    for alarm in outputs:
                        on_alarm(alarm)
            print(f"\r{len(found[estimates_topic]):7,} of {total:,} estimates", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        reader.close()
        return found[estimates_topic], found[alarms_topic]

    def _check(self, deadline: float) -> None:
        log = self._folder / "worker.log"
        if self._worker is not None and self._worker.poll() is not None:
            raise Fatal(f"the worker ended with exit code {self._worker.returncode}; see {log}")
        if time.monotonic() > deadline:
            raise Fatal(f"no estimate for every record after {_DEADLINE_S:.0f} s; see {log}")
