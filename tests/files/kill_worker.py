"""Runs a worker on files again and again, each killed after a moment, until one gets to the end.

    python kill_worker.py INPUTS OUTPUTS SEED      SEED 0: one that nothing disturbs

Prints how many were killed, and the exit status of the last. A start that brought a partition no further is not
followed by another such: a record at which processes die again and again would be given up.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from contextlib import closing
from pathlib import Path

import msgspec

from kstream_worker import app
from kstream_worker.bus.files import source
from kstream_worker.bus.files.store import DATABASE
from kstream_worker.config import Config, from_dict

START_MS = 1_760_000_000_000

source.MAX_POLL_RECORDS = 40  # many commits, so that kills meet every stage of one


def config_of(inputs: Path, outputs: Path) -> Config:
    config = from_dict(
        {
            "app": {"id": "drift"},
            "bus": {"kind": "files", "files": {"inputs": [str(inputs)], "output_dir": str(outputs)}},
            "input": {"y": "y", "dims": 1, "timestamp": "ts", "key": "id"},
            "detector": {"arl": 1000, "warmup": 60, "dependence": "none"},
            "output": {"estimates": "estimates", "alarms": "alarms", "dead_letters": "dead-letters"},
        }
    )
    replace = msgspec.structs.replace  # faster than the checks let pass: a commit at every step, snapshots at most
    return replace(
        config,
        commit=replace(config.commit, interval=0.0),
        state=replace(config.state, interval=0.1),
    )


def run(config: Config) -> None:
    """One process, as far as it gets."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        app.build_worker(config, now_ms=lambda: START_MS).run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def positions(outputs: Path) -> dict[int, int]:
    """What is committed now, by partition."""
    try:
        with closing(sqlite3.connect(f"file:{outputs / DATABASE}?mode=ro", uri=True)) as database:
            return dict(database.execute("SELECT partition, position FROM inputs WHERE position IS NOT NULL"))
    except sqlite3.Error:  # not made yet
        return {}


class Killer:
    """Ends processes, but not two in a row that brought the same partition no further."""

    def __init__(self, inputs: Path, outputs: Path, seed: int) -> None:
        self._outputs = outputs
        self._ends = {number: path.stat().st_size for number, path in enumerate(sorted(inputs.iterdir()))}
        self._random = random.Random(seed)
        self._stuck: set[int] = set()
        self.kills = 0

    def end(self, child: int) -> int | None:
        """Kill it after a moment; its exit status if it came to its end before."""
        before = positions(self._outputs)
        time.sleep(self._random.uniform(0.0, 0.1 + 0.02 * self.kills))
        while self._stuck & self._standing(before):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(self._random.uniform(0.001, 0.05))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        self._stuck = self._standing(before)
        self.kills += 1
        return None

    def _standing(self, before: dict[int, int]) -> set[int]:
        now = positions(self._outputs)
        unfinished = {number for number, end in self._ends.items() if now.get(number, 0) < end}
        return {number for number in unfinished if now.get(number, 0) == before.get(number, 0)}


def main() -> None:
    inputs, outputs, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    config = config_of(inputs, outputs)
    app.warm_up_kernels(config)
    killer = Killer(inputs, outputs, seed)
    status = None
    while status is None:
        child = os.fork()
        if child == 0:
            run(config)
        status = killer.end(child) if seed else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(killer.kills, status)


if __name__ == "__main__":
    main()
