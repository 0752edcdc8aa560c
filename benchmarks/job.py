"""The main job on a real broker, for tests and benches: data with known changes, workers, a reader, a verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from kstream_worker import records
from kstream_worker.bus.kafka_python import KafkaSettings
from kstream_worker.bus.kafka_python.reader import KafkaReader

EPOCH_MS = 1_760_000_000_000
KEEP = {"retention.ms": "-1"}  # record times lie in the past
OUTPUTS = ("estimates", "alarms", "dead-letters", "state")
KINDS = ("shift", "variance", "correlation")


@dataclass(frozen=True)
class JobData:
    """Sample pairs of many keys; the first `changed` keys change at pair `change_at`, one kind after the other."""

    keys: int = 200
    pairs: int = 2000
    changed: int = 20
    change_at: int = 1000
    dims: int = 2
    mode: str = "explicit"
    seed: int = 1

    def records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """(key, value, timestamp) in time order, one record per key and instant."""
        rng = np.random.default_rng(self.seed)
        live = rng.standard_normal((self.pairs, self.keys, self.dims))
        for k in range(self.changed):
            live[self.change_at :, k] = _changed(live[self.change_at :, k], KINDS[k % 3])
        reference = rng.standard_normal((self.pairs, self.keys, self.dims))
        names = [f"pump-{k}".encode() for k in range(self.keys)]
        for t in range(self.pairs):
            ts = EPOCH_MS + 1000 * t
            for k, name in enumerate(names):
                value: dict[str, object] = {"ts": ts, "y": [round(v, 6) for v in live[t, k].tolist()]}
                if self.mode == "explicit":
                    value["x"] = [round(v, 6) for v in reference[t, k].tolist()]
                yield name, json.dumps(value).encode(), ts

    def partition(self, key: bytes, partitions: int) -> int:
        """All records of a key go to one partition."""
        return int(key.rsplit(b"-", 1)[1]) % partitions


def _changed(samples: np.ndarray, kind: str) -> np.ndarray:
    out = samples.copy()
    if kind == "shift":
        out[:, 0] += 2.0
    elif kind == "variance":
        out *= 2.0
    else:
        out[:, 1] = 0.8 * out[:, 0] + 0.6 * out[:, 1]
    return out


def create_topics(bootstrap: str, names: Sequence[str], partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    compact = {"cleanup.policy": "compact"}
    admin.create_topics(
        [NewTopic(name, partitions, 1, topic_configs=compact if name.endswith("-state") else KEEP) for name in names]
    )
    admin.close()


def produce(bootstrap: str, topic: str, partitions: int, data: JobData, pause_s: float = 0.0) -> int:
    """Write all records, with a pause after each instant; the number written."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=20, batch_size=1 << 18, acks=1, metrics_enabled=False
    )
    count = 0
    for key, value, ts in data.records():
        producer.send(topic, value, key=key, partition=data.partition(key, partitions), timestamp_ms=ts)
        count += 1
        if pause_s and count % data.keys == 0:
            time.sleep(pause_s)
    producer.flush()
    producer.close()
    return count


def write_config(
    path: Path,
    app_id: str,
    bootstrap: str,
    topic: str,
    data: JobData,
    extra: str = "",
    client: str = "kafka-python",
) -> Path:
    """A configuration file for the worker, one section per table; `extra` is appended."""
    x = 'x = "x"\n' if data.mode == "explicit" else ""
    path.write_text(
        f'app.id = "{app_id}"\n'
        f'[bus]\nclient = "{client}"\n'
        f'[bus.kafka]\nbootstrap_servers = ["{bootstrap}"]\n'
        f'[input]\ntopic = "{topic}"\n{x}y = "y"\ndims = {data.dims}\ntimestamp = "ts"\n'
        f"[telemetry]\nport = 0\n{extra}"
    )
    return path


@dataclass
class WorkerProcess:
    """One `kstream-worker run` as a child process; its log goes to a file."""

    config: Path
    log: Path
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kstream_worker", "run", "--config", str(self.config), *self.flags],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
            )
        self.starts += 1

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL and reap."""
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self, timeout_s: float = 60.0) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 60.0) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def close(self) -> None:
        if self.alive():
            self.signal(signal.SIGCONT)
            self.kill()


def committed_total(bootstrap: str, group: str, topic: str, partitions: int) -> tuple[int, int]:
    """(sum of committed offsets, sum of end offsets) of the group on the topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    try:
        tps = [TopicPartition(topic, p) for p in range(partitions)]
        ends = consumer.end_offsets(tps)
        done = sum(consumer.committed(tp) or 0 for tp in tps)
        return done, sum(ends.values())
    finally:
        consumer.close()


def wait_until_done(
    bootstrap: str, group: str, topic: str, partitions: int, deadline_s: float, worker: WorkerProcess | None = None
) -> float:
    """Wait until the group has committed to the end of the topic; seconds it took."""
    started = time.monotonic()
    while time.monotonic() - started < deadline_s:
        if worker is not None and not worker.alive():
            raise RuntimeError(f"the worker ended with {worker.wait()}:\n{worker.log.read_text()[-3000:]}")
        done, end = committed_total(bootstrap, group, topic, partitions)
        if done >= end:
            return time.monotonic() - started
        time.sleep(0.3)
    tail = worker.log.read_text()[-3000:] if worker else ""
    raise RuntimeError(f"committed {done} of {end} after {deadline_s} s\n{tail}")


def read_all(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int, bytes, bytes]]:
    """(partition, offset, key, value) of all committed records."""
    tps = [TopicPartition(topic, p) for p in range(partitions)]
    ends = _high_watermarks(bootstrap, tps)  # not the stable ends: markers of the last commit may still be on their way
    reader = KafkaReader(KafkaSettings([bootstrap]))
    reader.assign(dict.fromkeys([records.TopicPartition(topic, p) for p in range(partitions)], 0))
    out: list[tuple[int, int, bytes, bytes]] = []
    deadline = time.monotonic() + 120.0
    while any(reader.position(records.TopicPartition(*tp)) < end for tp, end in ends.items()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic}: could not be read to its end")
        for batch in reader.poll(0.5):
            p = batch.partition.partition
            out += [(p, o, k or b"", v or b"") for o, k, v in zip(batch.offsets, batch.keys, batch.values, strict=True)]
    reader.close()
    return out


def _high_watermarks(bootstrap: str, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        ends: dict[TopicPartition, int] = consumer.end_offsets(tps)
        return ends
    finally:
        consumer.close()


@dataclass
class Verdict:
    """What was found in the outputs."""

    records: int
    estimates: int
    missing: int
    doubled: int
    out_of_order: int
    found: int
    found_by_kind: dict[str, int]
    false_alarms: int
    false_keys: list[str] = field(default_factory=list)

    @property
    def exactly_once(self) -> bool:
        return self.missing == self.doubled == self.out_of_order == 0


def judge(bootstrap: str, app_id: str, partitions: int, data: JobData, records: int) -> Verdict:
    """Read estimates and alarms at read_committed and hold them against the input."""
    seen: Counter[tuple[int, int]] = Counter()
    last: dict[bytes, int] = defaultdict(lambda: -1)
    disorder = 0
    for _, _, key, value in read_all(bootstrap, f"{app_id}-estimates", partitions):
        estimate = json.loads(value)
        seen[estimate["partition"], estimate["offset"]] += 1
        disorder += estimate["offset"] <= last[key]
        last[key] = estimate["offset"]
    found, wrong = set(), []
    for _, _, key, value in read_all(bootstrap, f"{app_id}-alarms", partitions):
        alarm = json.loads(value)
        if alarm["transition"] != "raised":
            continue
        number = int(key.rsplit(b"-", 1)[1])
        late = alarm["event_time"] >= EPOCH_MS + 1000 * data.change_at
        if number < data.changed and late:
            found.add(number)
        elif number >= data.changed:
            wrong.append(key.decode())
    doubled = sum(n - 1 for n in seen.values())
    kinds = Counter(KINDS[k % 3] for k in found)
    return Verdict(
        records, sum(seen.values()), records - len(seen), doubled, disorder, len(found), dict(kinds), len(wrong), wrong
    )


def cores() -> int:
    return len(os.sched_getaffinity(0))


def run_child(arguments: Sequence[str], deadline_s: float, **options: Any) -> dict[str, Any]:
    """A Python process of its own; what its last line says in JSON."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=deadline_s, check=False, **options
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)[:200]} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
