"""The main job at full size on a real broker, undisturbed and disturbed: `python -m benchmarks.main_job`.

400,000 records of 200 keys in 4 partitions; 20 keys change. Undisturbed: one estimate per record in order, changes
found, other
keys quiet. Disturbed: the worker is killed, stopped beyond its poll interval, and the broker is frozen; still one
estimate per
record, in order (alarms are not compared: models start afresh after a restart).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.job import OUTPUTS, JobData, WorkerProcess, create_topics, judge, produce, wait_until_done, write_config
from kstream_worker.bus.broker import LocalKafka

PARTITIONS = 4
IMPATIENT = (
    "[bus.kafka.consumer]\nsession_timeout_ms = 6000\nheartbeat_interval_ms = 1500\nmax_poll_interval_ms = 8000\n"
)
EXTRA = "[detector]\narl = 1000000\n"


def run(kafka: LocalKafka, data: JobData, *, disturbed: bool, folder: Path) -> dict[str, object]:
    bootstrap = kafka.bootstrap_servers
    app_id = f"job-{data.mode}-{'disturbed' if disturbed else 'calm'}-{int(time.time())}"
    topic = f"{app_id}-input"
    create_topics(bootstrap, [topic, *(f"{app_id}-{kind}" for kind in OUTPUTS)], PARTITIONS)
    config = write_config(
        folder / f"{app_id}.toml", app_id, bootstrap, topic, data, EXTRA + (IMPATIENT if disturbed else "")
    )
    records = produce(bootstrap, topic, PARTITIONS, data)
    worker = WorkerProcess(config, folder / f"{app_id}.log")
    worker.start()
    started = time.monotonic()
    try:
        if disturbed:
            disturb(kafka, worker)
        wait_until_done(bootstrap, app_id, topic, PARTITIONS, 300.0, worker)
        seconds = time.monotonic() - started
        code = worker.terminate()
    finally:
        worker.close()
    verdict = judge(bootstrap, app_id, PARTITIONS, data, records)
    row = dataclasses.asdict(verdict) | {
        "mode": data.mode,
        "disturbed": disturbed,
        "seconds": round(seconds, 1),
        "starts": worker.starts,
        "exit": code,
        "exactly_once": verdict.exactly_once,
    }
    print(json.dumps(row), flush=True)
    return row


def disturb(kafka: LocalKafka, worker: WorkerProcess) -> None:
    """SIGKILL while it works, SIGSTOP beyond the poll interval, the broker frozen for 6 s, SIGKILL again."""
    time.sleep(8.0)
    worker.kill()
    worker.start()
    time.sleep(9.0)
    worker.signal(signal.SIGSTOP)
    time.sleep(12.0)
    worker.signal(signal.SIGCONT)
    time.sleep(3.0)
    kafka.freeze()
    time.sleep(6.0)
    kafka.thaw()
    time.sleep(4.0)
    if worker.alive():
        worker.kill()
        worker.start()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000, help="records per key")
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--mode", choices=("explicit", "stream"), help="only this mode")
    args = parser.parse_args()
    rows = []
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="main-job-") as folder:
        for mode in [args.mode] if args.mode else ["explicit", "stream"]:
            data = JobData(keys=args.keys, pairs=args.pairs, mode=mode)
            for disturbed in (False, True):
                rows.append(run(kafka, data, disturbed=disturbed, folder=Path(folder)))
    print(json.dumps({"rows": rows}))
    calm = [row for row in rows if not row["disturbed"]]
    good = all(row["exactly_once"] for row in rows) and all(
        row["found"] >= 19 and row["false_alarms"] <= 2 for row in calm
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
