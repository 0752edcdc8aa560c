"""State read back: `python -m benchmarks.restore`. The parts, each in a module of its own:

    replay   100,000 keys, SIGKILL: how many records are read again, and what snapshots took (`restore_replay`)
    speed    restore beside the client's raw reading, both clients, interleaved (`restore_speed`)
    move     a partition of 10,000 keys goes to another worker (`restore_move`)
    slow     a restore that takes longer than the poll interval (`restore_slow`)

Stream pairing, d = 2, on a real broker. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import restore_move, restore_replay, restore_speed
from benchmarks.job import JobData, produce, write_config
from benchmarks.live import make_topics
from kstream_worker.bus.broker import LocalKafka

POLL_INTERVAL_S = 30
POLL_INTERVALS = {
    "kafka-python": f"max_poll_interval_ms = {1000 * POLL_INTERVAL_S}\n",
    "confluent": f'"max.poll.interval.ms" = {1000 * POLL_INTERVAL_S}\n',
}
CLIENTS = tuple(POLL_INTERVALS)


def replay(bootstrap: str, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        restore_replay.measure(bootstrap, folder, args.keys, args.per_key, args.replay_records, client)
        for client in args.clients
    ]


def speed(bootstrap: str, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        restore_speed.measure(bootstrap, folder, client, kind, megabytes, args.rounds)
        for client in args.clients
        for kind, megabytes in (("armed", args.megabytes), ("warming", max(args.megabytes // 40, 1)))
    ]


def move(bootstrap: str, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        restore_move.measure(bootstrap, folder, args.moved_keys, args.per_key, client, leave=leave)
        for client in args.clients
        for leave in (True, False)
    ]


def slow(bootstrap: str, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    return [slow_restore(bootstrap, folder, client, args.slow_s) for client in args.clients]


def slow_restore(bootstrap: str, folder: Path, client: str, seconds: float) -> dict[str, Any]:
    app_id = f"slow-{client}-{int(time.time())}"
    topic = make_topics(bootstrap, app_id, 2, {})
    data = JobData(keys=20, pairs=50, changed=0, mode="stream")
    produce(bootstrap, topic, 2, data)
    extra = f"[bus.kafka.consumer]\n{POLL_INTERVALS[client]}"
    config = write_config(folder / f"{app_id}.toml", app_id, bootstrap, topic, data, extra, client)
    for slowed_s in (0.0, seconds):  # the first one leaves state behind
        command = [sys.executable, "-m", "benchmarks.restore_slow", str(config), str(slowed_s)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 200.0, check=False)
        if done.returncode:
            raise RuntimeError(f"{app_id} failed:\n{done.stderr[-3000:]}")
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    stayed = (seen["assigned"], seen["taken"], len(seen["generations"])) == (1, 0, 1)
    return {"client": client, "restore_s": seconds, "poll_interval_s": POLL_INTERVAL_S, **seen, "stayed": stayed}


PARTS: dict[str, Callable[[str, Path, argparse.Namespace], list[dict[str, Any]]]] = {
    "replay": replay,
    "speed": speed,
    "move": move,
    "slow": slow,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help="only these parts")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--keys", type=int, default=100_000, help="of the replay")
    parser.add_argument("--per-key", type=int, default=25, help="records of each key, of replay and move")
    parser.add_argument("--replay-records", type=int, default=500_000)
    parser.add_argument("--megabytes", type=int, default=200, help="of armed snapshots, of the speed")
    parser.add_argument("--rounds", type=int, default=6, help="of the speed")
    parser.add_argument("--moved-keys", type=int, default=10_000)
    parser.add_argument("--slow-s", type=float, default=40.0)
    args = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    for name in args.parts:
        with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="restore-") as folder:
            results[name] = PARTS[name](kafka.bootstrap_servers, Path(folder), args)
        for row in results[name]:
            print(name, json.dumps(row), flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
