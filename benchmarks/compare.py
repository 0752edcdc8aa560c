"""Records per second of another commit and of this tree, in turn: `python -m benchmarks.compare --commit COMMIT`.

The other commit is checked out into a temporary folder; each side runs as processes of its own, on its own code and
compiled kernels, over the same topic on the same broker, round by round, the order alternating. Counted is the time
from the first record until the last output is committed; what a worker writes when it is told to stop is not part of
it. This tree writes snapshots all the while: keys are due after a second. Each pair of runs gives a ratio; printed are
their median and a 95 % interval of it (bootstrap over the pairs, seeded). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.job import OUTPUTS, JobData, committed_total, create_topics, produce, run_child, write_config
from kstream_worker.bus.broker import LocalKafka

PARTITIONS = 4
DEADLINE_S = 300.0
ROOT = Path(__file__).resolve().parent.parent
SNAPSHOTS = "[state]\ninterval = 1.0\n"

# Run in either tree, so it uses what both have.
CHILD = """
import json, sys, time
from kstream_worker import app
from kstream_worker.config import load
try:
    from kstream_worker.measures import Telemetry as Silent
except ImportError:  # of a tree from before there was state
    from kstream_worker.ports import NoTelemetry as Silent

class Counting(Silent):
    seen, first, written, snapshots_written, seconds = 0, 0.0, 0, 0, {}
    def records(self, partition, n):
        self.first = self.first or time.monotonic()
        self.seen += n
    def snapshots(self, n, n_bytes):
        self.snapshots_written += n
        self.written += n_bytes
    def stage_seconds(self, stage, seconds):
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
    def commit(self, outcome, seconds):
        self.stage_seconds("commit", seconds)

config, records = load(sys.argv[1]), int(sys.argv[2])
app.warm_up_kernels(config)
counting, done = Counting(), {}
worker = app.build_worker(config, telemetry=counting)
step = worker.step

def stepping():
    alive = step()
    if counting.seen >= records and worker._committer.empty and not done:
        done.update(seconds=time.monotonic() - counting.first, snapshot_bytes=counting.written,
                    snapshots=counting.snapshots_written, cpu_s=time.process_time() - began)
        worker.request_stop()
    return alive

worker.step = stepping
began = time.process_time()
worker.run()
done["us_per_record"] = {name: round(1e6 * s / records, 2) for name, s in counting.seconds.items()}
print(json.dumps(done))
"""


def checkout(commit: str, folder: Path) -> Path:
    tree = folder / "before"
    for command in (
        ["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(tree)],
        ["git", "-C", str(tree), "checkout", "--quiet", commit],
    ):
        subprocess.run(command, check=True, timeout=120)
    return tree


def copied(folder: Path) -> Path:
    """This tree as it is now: it may be worked on while the bench runs."""
    tree = folder / "after"
    shutil.copytree(ROOT / "kstream_worker", tree / "kstream_worker", ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def child(tree: Path, cache: Path, config: Path, records: int) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": str(tree), "KSTREAM_WORKER_JIT_CACHE": str(cache)}
    result = run_child(["-c", CHILD, str(config), str(records)], DEADLINE_S, cwd=tree, env=env)
    return result | {"per_s": records / result["seconds"]}


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % of the median, by bootstrap."""
    values, rng = np.array(ratios), np.random.default_rng(0)
    medians = np.median(values[rng.integers(0, len(values), (10_000, len(values)))], axis=1)
    return round(float(np.quantile(medians, 0.025)), 3), round(float(np.quantile(medians, 0.975)), 3)


def measure(bootstrap: str, data: JobData, trees: dict[str, Path], rounds: int, folder: Path) -> dict[str, Any]:
    topic = f"compare-{data.mode}-{int(time.time())}"
    create_topics(bootstrap, [topic], PARTITIONS)
    records = produce(bootstrap, topic, PARTITIONS, data)
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in trees}
    for turn in range(-1, rounds):  # the first round compiles, and does not count
        for side in ("before", "after") if turn % 2 else ("after", "before"):
            app_id = f"{topic}-{side}-{turn + 1}"
            create_topics(bootstrap, [f"{app_id}-{kind}" for kind in OUTPUTS], PARTITIONS)
            extra = SNAPSHOTS if side == "after" else ""
            config = write_config(folder / f"{app_id}.toml", app_id, bootstrap, topic, data, extra)
            result = child(trees[side], folder / f"kernels-{side}", config, records)
            committed, end = committed_total(bootstrap, app_id, topic, PARTITIONS)
            if committed != end:
                raise RuntimeError(f"{app_id}: committed {committed} of {end}")
            print(f"{data.mode:9} round {turn + 1} {side:7} {json.dumps(result)}", flush=True)
            if turn >= 0:
                results[side].append(result)
    return report(data, records, results)


def report(data: JobData, records: int, results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    pairs = list(zip(results["before"], results["after"], strict=True))
    ratios = [after["per_s"] / before["per_s"] for before, after in pairs]
    cpu = [before["cpu_s"] / after["cpu_s"] for before, after in pairs]
    last = results["after"][-1]
    return {
        "mode": data.mode,
        "dims": data.dims,
        "keys": data.keys,
        "records": records,
        "rounds": len(pairs),
        **{f"{side}_per_s": round(statistics.median(r["per_s"] for r in rows)) for side, rows in results.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratio_interval": interval(ratios),
        "cpu_ratio": round(statistics.median(cpu), 3),
        "cpu_ratio_interval": interval(cpu),
        "snapshot_bytes": last["snapshot_bytes"],
        "snapshot_bytes_per_s": round(last["snapshot_bytes"] / last["seconds"]),
        "snapshots": last["snapshots"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", required=True, help="to compare this tree with")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=2000, help="records per key")
    parser.add_argument("--mode", choices=("explicit", "stream"), help="only this mode")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="compare-") as name, LocalKafka() as kafka:
        folder = Path(name)
        trees = {"before": checkout(args.commit, folder), "after": copied(folder)}
        for mode in [args.mode] if args.mode else ["explicit", "stream"]:
            data = JobData(keys=args.keys, pairs=args.pairs, changed=0, dims=4, mode=mode)
            rows.append(measure(kafka.bootstrap_servers, data, trees, args.rounds, folder))
    print(json.dumps({"commit": args.commit, "rows": rows}))


if __name__ == "__main__":
    main()
