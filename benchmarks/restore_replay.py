"""Replay after SIGKILL with many keys, and what snapshots take meanwhile.

All keys keep talking in turn, so all are dirty all the time. While the worker runs, its `/metrics` are read each
second: bytes of snapshots against the budget that the worker states, and the records that it would have to read again.
Then it is killed. What it must read again is computed from the headers in the state topic, and compared with what the
next process says that it did.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition

from benchmarks.job import EPOCH_MS, JobData, committed_total, write_config
from benchmarks.live import LiveWorker, Row, fill, last_headers, make_topics, name_worker, read_to
from kstream_worker.records import TopicPartition

PARTITIONS = 2
WARMUP = 20
DETECTOR = f'[detector]\nwarmup = {WARMUP}\ndependence = "none"\n'
TAIL = 0.15  # of the records that are left when the worker is killed


def rows(keys: int, rounds: range) -> Iterator[Row]:
    for n in rounds:
        ts = EPOCH_MS + 1000 * n
        for k in range(keys):
            yield k % PARTITIONS, b"key-%d" % k, b'{"ts":%d,"y":[%d.5,%d.25]}' % (ts, (n * 7 + k) % 11, (n + k) % 5), ts


class Watched:
    """Samples of the metrics of a running worker."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []

    def look(self, worker: LiveWorker) -> dict[str, float]:
        seen = worker.metrics()
        self.samples.append(seen | {"at": time.monotonic()})
        return seen

    def summary(self) -> dict[str, Any]:
        """Bytes per second of snapshots, and the budget, over the samples in which snapshots were written."""
        written, allowed, seconds, peaks = 0.0, 0.0, 0.0, [0.0]
        for before, after in zip(self.samples, self.samples[1:], strict=False):
            took = after["at"] - before["at"]
            size = _of(after, "state_snapshot_bytes_total") - _of(before, "state_snapshot_bytes_total")
            budget = max(_of(one, "state_snapshot_budget_bytes_per_second") for one in (before, after))
            written, allowed, seconds = written + size, allowed + budget * took, seconds + took
            peaks.append(budget)
        spans = [_of(sample, "replay_span_records") for sample in self.samples]
        return {
            "snapshot_bytes_per_s": round(written / seconds),
            "budget_bytes_per_s": round(allowed / seconds),
            "budget_used": round(written / allowed, 3),
            "budget_peak_bytes_per_s": round(max(peaks)),
            "replay_span_max": max(spans),
            "dirty_keys_max": max(_of(sample, "dirty_keys") for sample in self.samples),
        }


def _of(sample: dict[str, float], name: str) -> float:
    return sample.get(name, 0.0)


def to_replay(bootstrap: str, state: str) -> int:
    """Records that the next process must read again, by the headers in the state topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    tps = [ClientPartition(state, p) for p in range(PARTITIONS)]
    starts = {TopicPartition(*tp): at for tp, at in consumer.beginning_offsets(tps).items()}
    ends = {TopicPartition(*tp): at for tp, at in consumer.end_offsets(tps).items()}  # behind open transactions too
    consumer.close()
    headers = last_headers(read_to(bootstrap, starts, ends))
    return sum(header.offset - header.replay_from for header in headers.values())


def measure(bootstrap: str, folder: Path, keys: int, per_key: int, replay_records: int, client: str) -> dict[str, Any]:
    app_id = f"replay-{int(time.time())}"
    topic = make_topics(bootstrap, app_id, PARTITIONS, {"segment.bytes": str(64 << 20)})
    extra = f"{DETECTOR}[state]\nreplay_records = {replay_records}\ninterval = 5.0\n"
    shape = JobData(dims=2, mode="stream")
    config = write_config(folder / f"{app_id}.toml", app_id, bootstrap, topic, shape, extra, client)
    worker = LiveWorker(name_worker(config, "w-0"), folder / f"{app_id}.log")
    total = fill(bootstrap, topic, rows(keys, range(per_key)))
    watched, began = Watched(), time.monotonic()
    try:
        worker.start()
        done = 0.0
        while done < (1 - TAIL) * total:
            time.sleep(1.0)
            if time.monotonic() - began > 600.0 or not worker.alive():
                raise RuntimeError(f"{done} of {total} records:\n{worker.log.read_text()[-3000:]}")
            done = _of(watched.look(worker), "records_total")
        running_s = watched.samples[-1]["at"] - next(s["at"] for s in watched.samples if _of(s, "records_total"))
        worker.kill()
        committed, _ = committed_total(bootstrap, app_id, topic, PARTITIONS)
        expected = to_replay(bootstrap, f"{app_id}-state")
        worker.start()
        ready_s = worker.wait_ready(300.0)
        after = worker.metrics()
    finally:
        worker.close()
    restored = [line for line in worker.lines() if line.get("event") in ("restored", "replayed")]
    print(json.dumps(restored), flush=True)
    return {
        "client": client,
        "keys": keys,
        "records": total,
        "replay_records": replay_records,
        "records_per_s": round(done / running_s),
        **watched.summary(),
        "committed": committed,
        "replayed": after["replayed_records_total"],
        "replayed_by_headers": expected,
        "restored_keys": after["restored_keys_total"],
        "ready_s": round(ready_s, 1),
        "restore_s": max(float(str(line["seconds"])) for line in restored if line["event"] == "restored"),
    }
