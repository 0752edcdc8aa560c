"""Time per sample of the stream detector beside the bare kernel and the plain transcription of its rules.

`run(short)` gives microseconds of processor time per sample by number of features, the smallest of several rounds in
which the contestants take turns (`make bench-speed-ranks`; the last line is JSON):

    bank        `RankBank.update`, 1,000 samples of one armed key at a time
    bare        the compiled walk alone on the same rows: what checks, answers and transitions cost is bank - bare
    plain       `transcription_ranks.first_alarm`, which has neither sizes of single samples nor scores tested in turn
    base        the bank without sizes of single samples
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.transcription_ranks import first_alarm
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.numerics.random import stream_of

DIMS = (1, 2, 5, 10)
WARMUP = 200
BATCH = 1_000
NEVER = 1e19  # samples between false alarms, so that there are none

Matrix = NDArray[np.float64]


def run(*, short: bool = False) -> dict[str, dict[str, float]]:
    """Rows by number of features; `ratio` is bank / bare."""
    return {str(d): _row(d, 5 if short else 30) for d in ((2,) if short else DIMS)}


def _row(d: int, rounds: int) -> dict[str, float]:
    y = np.random.default_rng(d).standard_normal((4 * BATCH, d))
    bank, base = _armed(d, y, True), _armed(d, y, False)
    contestants: dict[str, Callable[[], Any]] = {
        "bank": lambda: _update(bank, y[:BATCH]),
        "bare": _bare(_armed(d, y, True), y[:BATCH]),
        "base": lambda: _update(base, y[:BATCH]),
        "plain": lambda: first_alarm(y[: WARMUP + BATCH], stream_of(1, b"key"), WARMUP, 1e300),
    }
    best = dict.fromkeys(contestants, float("inf"))
    for turn in range(rounds):
        for name, work in contestants.items():
            started = time.process_time()
            work()
            if turn > 0:
                best[name] = min(best[name], (time.process_time() - started) / BATCH * 1e6)
    row = {name: round(us, 2) for name, us in best.items()}
    return {**row, "ratio": round(best["bank"] / best["bare"], 3)}


def _armed(d: int, y: Matrix, spikes: bool) -> RankBank:
    """A bank with one armed key whose bags are full."""
    bank = RankBank(d, arl=NEVER, dependence="none", warmup=WARMUP, spikes=spikes, capacity=1)
    bank.allocate(b"key")
    _update(bank, y)
    return bank


def _update(bank: RankBank, y: Matrix) -> None:
    bank.update(np.zeros(len(y), dtype=np.int64), None, y, np.zeros(len(y), dtype=np.int64))


def _bare(bank: RankBank, y: Matrix) -> Callable[[], Any]:
    n = len(y)
    slots, times = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    answers = np.zeros((3, n), dtype=np.int64), np.zeros((4, n))
    return lambda: bank._walk(0, slots, y, (times, times), *answers)


if __name__ == "__main__":
    rows = run(short="--short" in sys.argv)
    for d, row in rows.items():
        print(f"{d:>3} features: " + ", ".join(f"{name} {value}" for name, value in row.items()))
    print(json.dumps(rows))
