"""How long a partition that moves is not served.

Two workers share two partitions of ten thousand keys each, whose models are armed; records keep coming. One worker
goes, in an orderly way (`--leave`) or by SIGKILL, and the other takes over its partition. Timed is from the moment at
which the survivor is told of the partition (the group needs the session time-out to notice a kill) until it has
committed records of it.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as ClientPartition

from benchmarks.job import JobData, wait_until_done, write_config
from benchmarks.live import LiveWorker, Row, fill, make_topics
from benchmarks.restore_replay import DETECTOR, rows

PARTITIONS = 2
SESSION_MS = 6000
CLIENTS = {
    "kafka-python": f"session_timeout_ms = {SESSION_MS}\nheartbeat_interval_ms = 1500\n",
    "confluent": f'"session.timeout.ms" = {SESSION_MS}\n"heartbeat.interval.ms" = 1500\n',
}


class Traffic:
    """Records of all keys in turn, some each tenth of a second, until told to stop."""

    def __init__(self, bootstrap: str, topic: str, keys: int, first_round: int, per_s: int) -> None:
        self._bootstrap, self._topic, self._per_s = bootstrap, topic, per_s
        self._rows = self._endless(keys, first_round)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30.0)

    @staticmethod
    def _endless(keys: int, first_round: int) -> Iterator[Row]:
        n = first_round
        while True:
            yield from rows(keys, range(n, n + 1))
            n += 1

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            fill(self._bootstrap, self._topic, (next(self._rows) for _ in range(self._per_s // 10)))


def seconds_of(line: dict[str, object]) -> float:
    return datetime.datetime.fromisoformat(str(line["timestamp"])).timestamp()


def taken_over(worker: LiveWorker, since: float) -> float | None:
    """When the worker was last told of partitions that it got, wall clock; None if it was not since then."""
    told = [seconds_of(x) for x in worker.lines() if x.get("event") == "assignment" and x.get("change") == "assigned"]
    return told[-1] if told and told[-1] >= since else None


def served_again(bootstrap: str, group: str, topic: str, stuck: dict[int, int], timeout_s: float) -> float:
    """Wall clock when all partitions had commits beyond these offsets."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            if all((consumer.committed(ClientPartition(topic, p)) or 0) > at for p, at in stuck.items()):
                return time.time()
            time.sleep(0.02)
    finally:
        consumer.close()
    raise RuntimeError(f"{topic} was not served again within {timeout_s} s")


def positions(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    found = {p: consumer.committed(ClientPartition(topic, p)) or 0 for p in range(PARTITIONS)}
    consumer.close()
    return found


def measure(bootstrap: str, folder: Path, keys: int, per_key: int, client: str, *, leave: bool) -> dict[str, Any]:
    app_id = f"move-{client}-{'leave' if leave else 'kill'}-{int(time.time())}"
    topic = make_topics(bootstrap, app_id, PARTITIONS, {})
    extra = f"{DETECTOR}[bus.kafka.consumer]\n{CLIENTS[client]}"
    shape = JobData(dims=2, mode="stream")
    workers = []
    for name in ("stays", "goes"):
        config = write_config(folder / f"{app_id}-{name}.toml", app_id, bootstrap, topic, shape, extra, client)
        workers.append(LiveWorker(config, folder / f"{app_id}-{name}.log", ("--leave",) if leave else ()))
    stays, goes = workers
    traffic = Traffic(bootstrap, topic, keys * PARTITIONS, per_key, 2000)
    try:
        stays.start()
        goes.start()
        for worker in workers:
            worker.wait_ready(120.0)
        total = fill(bootstrap, topic, rows(keys * PARTITIONS, range(per_key)))
        wait_until_done(bootstrap, app_id, topic, PARTITIONS, 300.0)
        traffic.start()
        time.sleep(8.0)  # snapshots are under way
        told = time.time()
        if leave:
            goes.terminate()
        else:
            goes.kill()
        gone = time.time()
        ours = stays.metrics().get("replayed_records_total", 0.0)
        again = served_again(bootstrap, app_id, topic, positions(bootstrap, app_id, topic), 120.0)
        stays.wait_ready(60.0)
        assigned = taken_over(stays, told)
        replayed = stays.metrics()["replayed_records_total"] - ours
    finally:
        traffic.stop()
        for worker in workers:
            worker.close()
    since = told if assigned is None else assigned
    return {
        "client": client,
        "how": "leave" if leave else "SIGKILL",
        "keys": keys,
        "records": total,
        "served_again_s": round(again - since, 2),
        "since_it_was_gone_s": round(again - gone, 2),
        "steps": steps(stays, since),
        "replayed": replayed,
    }


def steps(worker: LiveWorker, since: float) -> dict[str, float]:
    """Seconds from the assignment to each step of the opening, when it was first told."""
    found: dict[str, float] = {}
    for line in worker.lines():
        if line.get("event") in ("restoring", "restored", "reading", "replayed") and seconds_of(line) >= since - 0.01:
            found.setdefault(str(line["event"]), round(seconds_of(line) - since, 2))
    return found
