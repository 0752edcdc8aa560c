"""Pairs per second of the worker on a real broker, beside a pass-through: `python -m benchmarks.throughput`.

The pass-through consumes with the same client and publishes the same bytes again in the same transactions: what a
worker without
decoding, models and encoding would reach. Both run as processes of their own on the same topic, in turn, several
times; the ratio
is taken pair by pair. Explicit pairs, d = 4, JSON, an estimate for every pair. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.job import OUTPUTS, JobData, committed_total, create_topics, produce, write_config

PARTITIONS = 4
DEADLINE_S = 180.0


def run_passthrough(config_path: Path, records: int) -> dict[str, Any]:
    """Consume and publish the same bytes, with the worker's own adapters, outbox and committer."""
    from kstream_worker import app
    from kstream_worker.config import load
    from kstream_worker.measures import NoTelemetry
    from kstream_worker.records import Messages, Progress, TopicPartition
    from kstream_worker.worker.assignment import StartPositions
    from kstream_worker.worker.committer import CommitPolicy, Committer

    config = load(config_path)
    bus = app.build_bus(config)
    writer, source, cluster = bus.writer(), bus.source(), bus.cluster()
    writer.start(30.0)
    source.start()
    committer = Committer(writer, CommitPolicy(), {}, NoTelemetry(), time.monotonic)
    start = StartPositions(source, cluster, config.input.topic, "earliest")
    seen, first = 0, 0.0
    while seen < records or not committer.empty:
        poll = source.poll(0.1)
        for change in poll.changes:
            positions = start.find(change.partitions)
            for tp, (offset, _) in positions.items():
                source.seek(tp, offset)
            source.resume(positions)
        for batch in poll.batches:
            first = first or time.monotonic()
            seen += len(batch)
            target = TopicPartition(f"{config.app.id}-estimates", batch.partition.partition)
            copy = Messages(target, batch.keys, batch.values, batch.timestamps, batch.headers)
            committer.outbox.add(batch.partition, [copy])
            committer.outbox.advance(batch.partition, Progress(batch.next_offset, batch.leader_epoch))
        if committer.due() or (seen >= records and not committer.empty):
            committer.commit(source.membership())
    seconds = time.monotonic() - first
    source.close(leave=True, timeout_s=5.0)
    writer.close(timeout_s=5.0)
    cluster.close()
    return {"seconds": seconds, "per_s": records / seconds}


class _Stages:
    """A telemetry that adds up the seconds of each stage."""

    def __init__(self, base: object) -> None:
        self._base = base
        self.seconds: dict[str, float] = {}
        self.bank_bytes_by_partition: dict[Any, int] = {}
        self.seen = 0
        self.first = 0.0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return getattr(self._base, name)  # type: ignore[no-any-return]

    def records(self, partition: object, n: int) -> None:
        self.first = self.first or time.monotonic()
        self.seen += n

    def stage_seconds(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def commit(self, outcome: str, seconds: float) -> None:
        self.stage_seconds("commit", seconds)

    def bank_bytes(self, partition: object, n: int) -> None:
        self.bank_bytes_by_partition[partition] = n


def run_worker(config_path: Path, records: int) -> dict[str, Any]:
    """The worker as `kstream-worker run` builds it, stopped once all records are committed."""
    from kstream_worker import app
    from kstream_worker.config import load
    from kstream_worker.measures import NoTelemetry

    config = load(config_path)
    stages = _Stages(NoTelemetry())
    app.warm_up_kernels(config)
    worker = app.build_worker(config, telemetry=stages)  # type: ignore[arg-type]
    step = worker.step

    def stepping() -> bool:
        alive = step()
        if stages.seen >= records:
            worker.request_stop()
        return alive

    worker.step = stepping  # type: ignore[method-assign]
    worker.run()
    seconds = time.monotonic() - stages.first
    micros = {stage: 1e6 * s / records for stage, s in stages.seconds.items()}
    return {
        "seconds": seconds,
        "per_s": records / seconds,
        "us_per_record": {k: round(v, 2) for k, v in micros.items()},
        "bytes_per_key": app.build_bank(config).bytes_per_key,
        "bank_bytes": sum(stages.bank_bytes_by_partition.values()),
    }


def child(role: str, config: Path, records: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.throughput", "--child", role, str(config), str(records)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{role} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(bootstrap: str, data: JobData, rounds: int, folder: Path) -> dict[str, Any]:
    topic = f"throughput-{data.mode}-{int(time.time())}"
    create_topics(bootstrap, [topic], PARTITIONS)
    records = produce(bootstrap, topic, PARTITIONS, data)
    results: dict[str, list[dict[str, Any]]] = {"worker": [], "passthrough": []}
    for turn in range(rounds):
        for role in ("passthrough", "worker") if turn % 2 else ("worker", "passthrough"):
            app_id = f"{topic}-{role}-{turn}"
            create_topics(bootstrap, [f"{app_id}-{kind}" for kind in OUTPUTS], PARTITIONS)
            config = write_config(folder / f"{app_id}.toml", app_id, bootstrap, topic, data)
            result = child(role, config, records)
            done, end = committed_total(bootstrap, app_id, topic, PARTITIONS)
            if done != end:
                raise RuntimeError(f"{app_id}: committed {done} of {end}")
            results[role].append(result)
            stages = result.get("us_per_record", "")
            print(f"{data.mode:9} round {turn + 1} {role:12} {result['per_s']:9.0f} records/s  {stages}", flush=True)
    ratios = [w["per_s"] / p["per_s"] for w, p in zip(results["worker"], results["passthrough"], strict=True)]
    last = results["worker"][-1]
    return {
        "client": "kafka-python",
        "mode": data.mode,
        "dims": data.dims,
        "records": records,
        "keys": data.keys,
        "worker_per_s": round(statistics.median(r["per_s"] for r in results["worker"])),
        "passthrough_per_s": round(statistics.median(r["per_s"] for r in results["passthrough"])),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "us_per_record": last["us_per_record"],
        "bytes_per_key": last["bytes_per_key"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=3, metavar=("ROLE", "CONFIG", "RECORDS"), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=2000, help="records per key")
    args = parser.parse_args()
    if args.child:
        role, config, records = args.child
        run = run_worker if role == "worker" else run_passthrough
        print(json.dumps(run(Path(config), int(records))))
        return
    from kstream_worker.bus.broker import LocalKafka

    rows = []
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        for mode in ("explicit", "stream"):
            data = JobData(keys=args.keys, pairs=args.pairs, changed=0, dims=4, mode=mode)
            rows.append(measure(kafka.bootstrap_servers, data, args.rounds, Path(folder)))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
