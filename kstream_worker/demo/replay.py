"""Replays the demonstration's data through the worker: from a file, or through a local Kafka."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kstream_worker import app
from kstream_worker.bus.files import read_output
from kstream_worker.config import Config, from_dict
from kstream_worker.demo.data import FEATURES, Track, records
from kstream_worker.errors import ConfigError
from kstream_worker.measures import Telemetry
from kstream_worker.telemetry import logs

Outputs = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # estimates, alarms


def demo_config(bus: Mapping[str, Any], **more: Any) -> Config:
    """The job: two features of each host, alarms at most once in a million samples."""
    return from_dict(
        {
            "app": {"id": "demo"},
            "bus": bus,
            "input": {
                "topic": "demo-readings",
                "y": [f"metrics.{name}" for name in FEATURES],
                "timestamp": "ts",
                "key": "host",
            },
            "detector": {"arl": 1_000_000, "dead_time": "1d"},
            **more,
        }
    )


class Progress(Telemetry):
    """Says on standard error how far the replay is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def scored(self, n: int) -> None:
        """Count samples. In a file, where no line can be overwritten, there is one line at the end."""
        self._done += n
        complete = self._done >= self._total
        if complete or sys.stderr.isatty():
            print(f"\r{self._done:7,} of {self._total:,} samples", end="\n" * complete, file=sys.stderr, flush=True)


def prepare_folder(folder: Path) -> Path:
    """An empty folder for outputs; only one that an earlier demonstration made is emptied.

    Raises:
        ConfigError: it cannot be written, or holds something else.
    """
    marker = folder / ".kstream-demo"
    try:
        if folder.exists() and any(folder.iterdir()):
            if not marker.exists():
                raise ConfigError(f"{folder} is not empty and not from an earlier demo: choose another --output")
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}. Choose another --output") from None
    return folder


def compile_kernels(config: Config) -> None:
    """Compile what the worker needs, saying so: the first time takes a while."""
    started = time.monotonic()
    print("compiling kernels (once; later starts load them) ... ", end="", file=sys.stderr, flush=True)
    app.warm_up_kernels(config)
    print(f"{time.monotonic() - started:.1f} s", file=sys.stderr)


def replay_files(tracks: list[Track], folder: Path) -> Outputs:
    """Through the files bus, in this process."""
    rows = list(records(tracks))
    source = folder / "readings.jsonl"
    source.write_bytes(b"".join(value + b"\n" for _, _, value in rows))
    config = demo_config({"kind": "files", "files": {"inputs": [str(source)], "output_dir": str(folder)}})
    logs.configure("error", "console")
    compile_kernels(config)
    app.build_worker(config, telemetry=Progress(len(rows))).run()
    return _read(folder / "demo-estimates.jsonl"), _read(folder / "demo-alarms.jsonl")


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(record.value or b"null") for record in read_output(path)]


def replay_kafka(tracks: list[Track], folder: Path, on_alarm: Callable[[dict[str, Any]], None]) -> Outputs:
    """Through a local Kafka: a producer, a worker process, and a reader that shows alarms as they are committed."""
    from kstream_worker.bus.broker import LocalKafka
    from kstream_worker.demo.kafka import Job

    logs.configure("error", "console")
    print("starting Apache Kafka on this machine (the first time fetches it) ... ", file=sys.stderr, flush=True)
    with LocalKafka() as kafka:
        print(f"broker at {kafka.bootstrap_servers}", file=sys.stderr)
        kafka_table = {"bootstrap_servers": kafka.bootstrap_servers}
        config = demo_config({"kafka": kafka_table}, telemetry={"port": None})
        compile_kernels(config)
        with Job(config, folder) as job:
            total = job.produce(records(tracks))
            return job.follow(total, on_alarm)
