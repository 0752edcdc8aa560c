"""A worker process watched while it runs, and the topics beside it: for the benches of state."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from benchmarks.job import KEEP, OUTPUTS, WorkerProcess
from kstream_worker.bus.kafka_python import KafkaSettings
from kstream_worker.bus.kafka_python.reader import KafkaReader
from kstream_worker.records import Batch, TopicPartition
from kstream_worker.state.format import HEADER_KEY, Header, decode_header

PREFIX = "kstream_worker_"
Row = tuple[int, bytes, bytes, int]  # partition, key, value, time in milliseconds


@dataclass
class LiveWorker(WorkerProcess):
    """A worker whose metrics are read through its own endpoint."""

    _port: int = 0
    _mark: int = 0  # where in the log this start begins

    def start(self) -> None:
        self._mark = self.log.stat().st_size if self.log.exists() else 0
        self._port = 0
        super().start()

    def lines(self) -> list[dict[str, object]]:
        """The log since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._mark)
            text = log.read().decode(errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]

    def metrics(self) -> dict[str, float]:
        """Sums over the labels of each metric; empty while the endpoint does not answer."""
        text = self._get("/metrics")
        found: dict[str, float] = {}
        for line in (text or "").splitlines():
            if line.startswith(PREFIX):
                name, _, value = line.removeprefix(PREFIX).rpartition(" ")
                name = name.partition("{")[0]
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def wait_ready(self, timeout_s: float) -> float:
        """Seconds until all assigned partitions are being read, replays included."""
        started = time.monotonic()
        while time.monotonic() - started < timeout_s:
            if not self.alive():
                raise RuntimeError(f"the worker ended with {self.wait()}:\n{self.log.read_text()[-3000:]}")
            if self._get("/readyz") is not None:
                return time.monotonic() - started
            time.sleep(0.05)
        raise RuntimeError(f"not ready after {timeout_s} s:\n{self.log.read_text()[-3000:]}")

    def restart(self, timeout_s: float = 120.0) -> float:
        """SIGKILL, then start again; seconds until it is ready."""
        self.kill()
        started = time.monotonic()
        self.start()
        self.wait_ready(timeout_s)
        return time.monotonic() - started

    def rss_bytes(self) -> int:
        """Resident memory."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return 1024 * int(line.split()[1])

    def _get(self, path: str) -> str | None:
        if not self._port:
            ports = [line["port"] for line in self.lines() if line.get("event") == "serving metrics and health"]
            if not ports:
                return None
            self._port = int(str(ports[-1]))
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5.0) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None


def name_worker(config: Path, name: str) -> Path:
    """Make the worker a static member: a killed one is replaced at once, not after its session has timed out."""
    config.write_text(config.read_text().replace("[bus.kafka]\n", f'[bus.kafka]\ngroup_instance_id = "{name}"\n'))
    return config


def make_topics(bootstrap: str, app_id: str, partitions: int, state: Mapping[str, str]) -> str:
    """Input, outputs and the state topic of an app; the name of the input."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    names = [f"{app_id}-input", *(f"{app_id}-{kind}" for kind in OUTPUTS)]
    configs = {f"{app_id}-state": {"cleanup.policy": "compact", **state}}
    admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs.get(name, KEEP)) for name in names])
    admin.close()
    return names[0]


def alter_topic(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))])
    admin.close()


def fill(bootstrap: str, topic: str, rows: Iterable[Row]) -> int:
    """Write records as fast as the broker takes them; their number."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "acks": 1, "compression.type": "none"})
    count = 0
    for partition, key, value, time_ms in rows:
        while True:
            try:
                producer.produce(topic, value, key, partition=partition, timestamp=time_ms)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    if producer.flush(120.0):
        raise RuntimeError(f"{topic}: records could not be written")
    return count


def topic_bytes(data: Path, topic: str) -> int:
    """Bytes of a topic's segments in the folder of a broker; a segment may go while one looks."""
    total = 0
    for segment in data.glob(f"data-0/{topic}-*/*.log"):
        try:
            total += segment.stat().st_size
        except FileNotFoundError:
            continue
    return total


def settled_bytes(data: Path, topic: str, timeout_s: float, quiet_s: float = 4.0) -> int:
    """Bytes of a topic once its cleaner has had nothing to do for a while, or the time is over."""
    deadline = time.monotonic() + timeout_s
    least, since = topic_bytes(data, topic), time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < quiet_s:
        time.sleep(0.25)
        now = topic_bytes(data, topic)
        if now < least * 0.98:
            least, since = now, time.monotonic()
    return topic_bytes(data, topic)


def reader_of(bootstrap: str, positions: Mapping[TopicPartition, int]) -> KafkaReader:
    reader = KafkaReader(KafkaSettings([bootstrap]))
    reader.assign(positions)
    return reader


def read_to(bootstrap: str, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Batch]:
    """All committed records of some partitions."""
    reader = reader_of(bootstrap, starts)
    batches: list[Batch] = []
    deadline = time.monotonic() + 300.0
    while any(reader.position(tp) < end for tp, end in ends.items()):
        if time.monotonic() > deadline:
            raise RuntimeError("the topic cannot be read to its end")
        batches += reader.poll(0.5)
    reader.close()
    return batches


def last_headers(batches: Iterable[Batch]) -> dict[int, Header]:
    """The last header of each partition of the state topic."""
    headers: dict[int, Header] = {}
    for batch in batches:
        for key, value in zip(batch.keys, batch.values, strict=True):
            if key == HEADER_KEY and value is not None:
                headers[batch.partition.partition] = decode_header(value)
    return headers
