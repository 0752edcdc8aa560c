"""Many keys that come once: `python -m benchmarks.keys`.

A million keys with one record each pass through a worker; event time advances, so that they expire. Then one key per
partition keeps talking, which alone moves the clock and so lets the last of the others go. All the while the worker is
looked at: resident memory, live keys, size of the compacted state topic, and, after a SIGKILL, the time until it serves
again. Each has a plateau: `*_growth` is the largest of the second half of the samples against the largest of the first
half (the first sample left out). The last line is one JSON object.

The state topic of this bench is compacted at once (small segments, any dirtiness, no lag), and its tombstones live for
seconds. A worker refuses to start on a topic that forgets tombstones so soon, since a restore could miss one; so the
setting is put right for the moment of each start.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.job import EPOCH_MS, JobData, wait_until_done, write_config
from benchmarks.live import LiveWorker, Row, alter_topic, fill, make_topics, name_worker, settled_bytes
from kstream_worker.bus.broker import LocalKafka

PARTITIONS = 2
STEP_MS = 6  # of event time, from one key to the next
COMPACT_NOW = {
    "segment.bytes": str(1 << 20),
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
BROKER = {"log.cleaner.backoff.ms": "500", "log.retention.check.interval.ms": "1000"}
LONG, SHORT = {"delete.retention.ms": "86400000"}, {"delete.retention.ms": "3000"}


def one_shots(first: int, last: int) -> Iterator[Row]:
    for i in range(first, last):
        ts = EPOCH_MS + STEP_MS * i
        yield i % PARTITIONS, f"one-shot-{i}".encode(), _value(i, ts), ts


def talkers(start_ms: int, step_ms: int, count: int) -> Iterator[Row]:
    for i in range(count):
        ts = start_ms + step_ms * i
        for p in range(PARTITIONS):
            yield p, f"talker-{p}".encode(), _value(i, ts), ts


def _value(i: int, ts: int) -> bytes:
    return b'{"ts":%d,"y":[%d.5,%d.25]}' % (ts, i % 7, i % 5)


class Bench:
    """One worker on one broker, and what was seen of it."""

    def __init__(self, kafka: LocalKafka, data: Path, folder: Path, live_keys: int) -> None:
        self.bootstrap, self.data = kafka.bootstrap_servers, data
        self.app_id = f"keys-{int(time.time())}"
        self.state = f"{self.app_id}-state"
        self.ttl_ms = live_keys * STEP_MS
        self.topic = make_topics(self.bootstrap, self.app_id, PARTITIONS, {**COMPACT_NOW, **LONG})
        extra = f'[state]\nttl = "{self.ttl_ms} ms"\ninterval = 1.0\n'
        shape = JobData(dims=2, mode="stream")
        config = write_config(folder / "keys.toml", self.app_id, self.bootstrap, self.topic, shape, extra)
        self.worker = LiveWorker(name_worker(config, "w-0"), folder / "keys.log")
        self.samples: list[dict[str, float]] = []
        self.written = 0

    def pass_on(self, rows: Iterator[Row]) -> float:
        """Write records and wait until the worker has done them; seconds."""
        started = time.monotonic()
        self.written += fill(self.bootstrap, self.topic, rows)
        wait_until_done(self.bootstrap, self.app_id, self.topic, PARTITIONS, 300.0, self.worker)
        return time.monotonic() - started

    def look(self, phase: str, seconds: float) -> None:
        """One sample, with a SIGKILL and a start in it."""
        seen = self.worker.metrics()
        rss = self.worker.rss_bytes()
        state_bytes = settled_bytes(self.data, self.state, 20.0)
        alter_topic(self.bootstrap, self.state, LONG)
        restart_s = self.worker.restart()
        after = self.worker.metrics()
        alter_topic(self.bootstrap, self.state, SHORT)
        sample = {
            "records": self.written,
            "seconds": round(seconds, 1),
            "live_keys": seen["live_keys"],
            "rss_mb": round(rss / 1e6, 1),
            "state_mb": round(state_bytes / 1e6, 2),
            "restart_s": round(restart_s, 2),
            "restored_keys": after["restored_keys_total"],
            "replayed": after["replayed_records_total"],
            "rss_after_restart_mb": round(self.worker.rss_bytes() / 1e6, 1),
        }
        print(phase, json.dumps(sample), flush=True)
        self.samples.append(sample)


def growth(samples: list[dict[str, float]], name: str) -> float:
    values = [sample[name] for sample in samples[1:]]
    half = len(values) // 2
    return round(max(values[half:]) / max(values[:half]), 3)


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    data = folder / "kafka"
    with LocalKafka(data_dir=data, settings=BROKER) as kafka:
        bench = Bench(kafka, data, folder, args.live)
        bench.worker.start()
        try:
            bench.worker.wait_ready(120.0)
            empty_mb = bench.worker.rss_bytes() / 1e6
            chunk = args.keys // args.samples
            for first in range(0, args.keys, chunk):
                bench.look("one-shot", bench.pass_on(one_shots(first, first + chunk)))
            start_ms = EPOCH_MS + STEP_MS * args.keys
            for turn in range(args.talks):
                at = start_ms + turn * bench.ttl_ms
                bench.look("talking", bench.pass_on(talkers(at, bench.ttl_ms // 200, 200)))
            bench.worker.terminate()
        finally:
            bench.worker.close()
    return verdict(bench, args, empty_mb)


def verdict(bench: Bench, args: argparse.Namespace, empty_mb: float) -> dict[str, Any]:
    shots, talks = bench.samples[: args.samples], bench.samples[args.samples :]
    seconds = sum(sample["seconds"] for sample in shots)
    return {
        "keys": args.keys,
        "keys_per_s": round(args.keys / seconds),
        "live_keys": shots[-1]["live_keys"],
        "rss_empty_mb": round(empty_mb, 1),
        "rss_growth": growth(shots, "rss_mb"),
        "state_growth": growth(shots, "state_mb"),
        "restart_growth": growth(shots, "restart_s"),
        "peak": {name: max(sample[name] for sample in shots) for name in ("rss_mb", "state_mb", "restart_s")},
        "talking": {name: talks[-1][name] for name in ("live_keys", "rss_mb", "state_mb", "restart_s")},
        "bytes_per_live_key": round(1e6 * (shots[-1]["rss_mb"] - empty_mb) / max(shots[-1]["live_keys"], 1)),
        "samples": bench.samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--live", type=int, default=40_000, help="keys within one time to live")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--talks", type=int, default=4, help="samples after the last one-shot key")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keys-") as folder:
        print(json.dumps(measure(args, Path(folder))))


if __name__ == "__main__":
    main()
