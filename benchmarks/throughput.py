"""Pairs per second of the worker on a real broker, beside a pass-through: `python -m benchmarks.throughput`.

`--client confluent` runs both on librdkafka, `--client both` on each client in turn on the same topic.

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
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.job import OUTPUTS, JobData, committed_total, create_topics, produce, run_child, write_config

PARTITIONS = 4
CLIENTS = ("kafka-python", "confluent")
MODES = ("explicit", "stream")
DEADLINE_S = 180.0


def run_passthrough(config_path: Path, records: int) -> dict[str, Any]:
    """Consume and publish the same bytes, with the worker's own adapters and outbox."""
    from kstream_worker import app
    from kstream_worker.config import load
    from kstream_worker.records import Messages, Outcome, Progress, TopicPartition
    from kstream_worker.worker.outbox import Outbox

    config = load(config_path)
    bus = app.build_bus(config)
    writer, source, cluster = bus.writer(), bus.source(), bus.cluster()
    writer.start(30.0)
    source.start()
    outbox, committed_at = Outbox(), time.monotonic()
    seen, first = 0, 0.0
    while seen < records or outbox:
        poll = source.poll(0.1)
        for change in poll.changes:
            for tp, offset in cluster.earliest(change.partitions).items():
                source.seek(tp, offset)
            source.resume(change.partitions)
        for batch in poll.batches:
            first = first or time.monotonic()
            seen += len(batch)
            target = TopicPartition(f"{config.app.id}-estimates", batch.partition.partition)
            outbox.add(batch.partition, [Messages(target, batch.keys, batch.values, batch.timestamps, batch.headers)])
            outbox.advance(batch.partition, Progress(batch.next_offset, batch.leader_epoch))
        membership, late = source.membership(), time.monotonic() - committed_at >= config.commit.interval
        full = outbox.size_bytes >= config.commit.max_bytes
        if outbox and membership and (late or full or seen >= records):
            outcome = writer.commit(outbox.messages(), outbox.progress(), membership, str(seen), 30.0)
            if outcome is not Outcome.COMMITTED:
                raise RuntimeError("a commit of the pass-through was aborted")
            outbox, committed_at = Outbox(), time.monotonic()
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
    from kstream_worker.measures import Telemetry

    config = load(config_path)
    stages = _Stages(Telemetry())
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
    return run_child(["-m", "benchmarks.throughput", "--child", role, str(config), str(records)], DEADLINE_S)


def fill(bootstrap: str, data: JobData) -> tuple[str, int]:
    """A new topic with the data; its name and the number of records."""
    topic = f"throughput-{data.mode}-{int(time.time())}"
    create_topics(bootstrap, [topic], PARTITIONS)
    return topic, produce(bootstrap, topic, PARTITIONS, data)


def measure(
    bootstrap: str, client: str, data: JobData, topic: str, records: int, rounds: int, folder: Path
) -> dict[str, Any]:
    results: dict[str, list[dict[str, Any]]] = {"worker": [], "passthrough": []}
    for turn in range(rounds):
        for role in ("passthrough", "worker") if turn % 2 else ("worker", "passthrough"):
            app_id = f"{topic}-{client}-{role}-{turn}"
            create_topics(bootstrap, [f"{app_id}-{kind}" for kind in OUTPUTS], PARTITIONS)
            config = write_config(folder / f"{app_id}.toml", app_id, bootstrap, topic, data, client=client)
            result = child(role, config, records)
            done, end = committed_total(bootstrap, app_id, topic, PARTITIONS)
            if done != end:
                raise RuntimeError(f"{app_id}: committed {done} of {end}")
            results[role].append(result)
            stages = result.get("us_per_record", "")
            print(
                f"{client:12} {data.mode:9} round {turn + 1} {role:12} {result['per_s']:9.0f} records/s  {stages}",
                flush=True,
            )
    ratios = [w["per_s"] / p["per_s"] for w, p in zip(results["worker"], results["passthrough"], strict=True)]
    last = results["worker"][-1]
    return {
        "client": client,
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
    parser.add_argument("--client", choices=(*CLIENTS, "both"), default=CLIENTS[0])
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both")
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
        for mode in MODES if args.mode == "both" else (args.mode,):
            data = JobData(keys=args.keys, pairs=args.pairs, changed=0, dims=4, mode=mode)
            topic, records = fill(kafka.bootstrap_servers, data)
            for client in CLIENTS if args.client == "both" else (args.client,):
                where = (kafka.bootstrap_servers, client, data, topic, records, args.rounds, Path(folder))
                rows.append(measure(*where))
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
