"""How fast state is read back, beside the client's raw reading of the same topic in the same run.

A state topic is filled with snapshots of keys as a worker writes them. One side polls the client and counts bytes; the
other reads through the product's reader, decodes, and puts every model into its bank. Both begin connected; the order
alternates round by round; each round gives a ratio of bytes per second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition

from benchmarks.compare import interval
from benchmarks.job import EPOCH_MS, JobData, write_config
from benchmarks.live import Row, fill, make_topics
from kstream_worker import app
from kstream_worker.bus.confluent import ConfluentSettings
from kstream_worker.bus.kafka_python import KafkaSettings
from kstream_worker.config import Config, load
from kstream_worker.http import Status
from kstream_worker.measures import Telemetry
from kstream_worker.ports import Bus
from kstream_worker.records import TopicPartition
from kstream_worker.state.format import Snapshot, encode_snapshot, state_key
from kstream_worker.state.ledger import Ledger
from kstream_worker.worker.restore import Restore
from kstream_worker.worker.task import Task

PARTITIONS = 2
PATTERNS = 40  # different models
SAMPLES = {"armed": 1500, "warming": 5}


def snapshots(config: Config, samples: int) -> list[bytes]:
    """Values of the state topic, of models that have seen so many samples."""
    bank, rng = app.build_bank(config), np.random.default_rng(1)
    values = []
    for number in range(PATTERNS):
        slot = bank.allocate(b"pattern-%d" % number)
        y = rng.standard_normal((samples, 2))
        bank.update(np.full(samples, slot), None, y, np.full(samples, EPOCH_MS))
        values.append(encode_snapshot(Snapshot(samples, EPOCH_MS, 0, bank.snapshot(slot)), 1))
        bank.free(slot)
    return values


def state_rows(values: list[bytes], keys: int) -> Iterator[Row]:
    for i in range(keys):
        yield i % PARTITIONS, state_key(b"key-%d" % i), values[i % len(values)], EPOCH_MS


def make_tasks(config: Config, bus: Bus, topic: str) -> list[Task]:
    encoder = app.with_cluster(bus, lambda cluster: app.build_encoder(config, cluster, app.build_bank(config)))
    return [
        Task(
            TopicPartition(topic, p),
            app.build_decoder(config),
            app.build_bank(config),
            encoder,
            app.build_limit(config),
            Ledger(app.ledger_settings(config)),
            Status(),
            Telemetry(),
            time.monotonic,
            app.wall_clock_ms,
        )
        for p in range(PARTITIONS)
    ]


def restore(config: Config, bus: Bus, topic: str, ends: dict[TopicPartition, int]) -> float:
    """Seconds to restore everything through the product."""
    tasks = make_tasks(config, bus, topic)
    starts = dict.fromkeys(ends, 0)
    reading = Restore(
        bus.reader(), config.state.topic, tasks, starts, ends, time.monotonic, lambda *_: None, bus.stall_s
    )
    began = time.perf_counter()
    while not all(part.done for part in reading.parts.values()):
        reading.step(0.2)
    seconds = time.perf_counter() - began
    reading.close()
    if sum(task.live_keys for task in tasks) != sum(ends.values()):
        raise RuntimeError("keys are missing")
    return seconds


def raw_kafka_python(bootstrap: str, ends: dict[TopicPartition, int]) -> float:
    consumer = KafkaConsumer(**KafkaSettings([bootstrap]).for_consumer(), group_id=None)
    consumer.assign([ClientPartition(*tp) for tp in ends])
    for tp in ends:
        consumer.seek(ClientPartition(*tp), 0)
    began, left, size = time.perf_counter(), sum(ends.values()), 0
    while left:
        for records in consumer.poll(timeout_ms=200).values():
            left -= len(records)
            size += sum(len(record.value) for record in records)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def raw_confluent(bootstrap: str, ends: dict[TopicPartition, int]) -> float:
    settings = ConfluentSettings([bootstrap]).for_consumer()
    consumer = Consumer({**settings, "group.id": "raw-reading"})
    consumer.list_topics(timeout=10.0)
    consumer.assign([ConfluentPartition(*tp, 0) for tp in ends])
    began, left, size = time.perf_counter(), sum(ends.values()), 0
    while left:
        records = consumer.consume(8000, 0.05)
        left -= len(records)
        size += sum(len(record.value() or b"") for record in records)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


RAW = {"kafka-python": raw_kafka_python, "confluent": raw_confluent}


def measure(bootstrap: str, folder: Path, client: str, kind: str, megabytes: int, rounds: int) -> dict[str, Any]:
    app_id = f"speed-{client}-{kind}-{int(time.time())}"
    topic = make_topics(bootstrap, app_id, PARTITIONS, {"segment.bytes": str(1 << 30)})
    data = JobData(dims=2, mode="stream")
    extra = "[state]\nmax_keys = 10000000\n"
    config = load(write_config(folder / f"{app_id}.toml", app_id, bootstrap, topic, data, extra, client))
    app.warm_up_kernels(config)
    values = snapshots(config, SAMPLES[kind])
    size = statistics.mean(map(len, values))
    keys = max(int(megabytes * 1e6 / size) // PARTITIONS, 1) * PARTITIONS
    fill(bootstrap, config.state.topic, state_rows(values, keys))
    ends = {TopicPartition(config.state.topic, p): keys // PARTITIONS for p in range(PARTITIONS)}
    bus = app.build_bus(config)
    times: dict[str, list[float]] = {"raw": [], "restore": []}
    for turn in range(-1, rounds):
        for side in ("raw", "restore") if turn % 2 else ("restore", "raw"):
            seconds = RAW[client](bootstrap, ends) if side == "raw" else restore(config, bus, topic, ends)
            if turn >= 0:  # the first round warms the broker's cache
                times[side].append(seconds)
    ratios = [raw / ours for raw, ours in zip(times["raw"], times["restore"], strict=True)]
    total = size * keys
    return {
        "client": client,
        "keys": keys,
        "kind": kind,
        "bytes_per_snapshot": round(size),
        "model_bytes": app.build_bank(config).bytes_per_key,
        "raw_mb_per_s": round(total / statistics.median(times["raw"]) / 1e6, 1),
        "restore_mb_per_s": round(total / statistics.median(times["restore"]) / 1e6, 1),
        "keys_per_s": round(keys / statistics.median(times["restore"])),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_interval": interval(ratios),
    }
