"""True average run lengths and delays of the rank detector on serially dependent streams.

    python -m benchmarks.arl_dependence [--short] [--arl 1000]

Prints a table of armed samples per false alarm (with the 95 % interval from the number of alarms, and the guarantee
that the alarms named), alarms of random walks at the defaults of a service, a table of delays at a stated run length of
10,000, and as the last line one JSON object. The exit code is 1 where a run length lies below the stated one with its
whole interval while alarms named a guarantee. Run lengths are taken at a stated 1,000: ten times as many alarms for the
same work. Ten minutes; the more features, the fewer samples.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.arl_pairs import poisson_interval
from benchmarks.processes import DAY, PROCESSES, STEP, Process
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.records import Scores

SIZES = {2: (20, 20_000), 1: (20, 20_000), 5: (10, 15_000), 10: (10, 10_000), 20: (6, 8_000)}  # keys, samples of each
WALKS = (20, 60_000)
ORIGIN = 1_700_006_400_000 // DAY * DAY  # midnight
DELAY_ARL = 10_000.0
HORIZON = 2_000
# process, change, number of the first changed sample
CHANGES = (
    ("iid", "m1", 1_000),
    ("AR .3", "m1", 1_000),
    ("AR .6", "m1", 1_000),
    ("AR .9", "m1", 1_000),
    ("AR .9", "m1", 5_000),
    ("AR .9", "m2", 1_000),
    ("AR .9", "var2", 1_000),
    ("AR .9", "stuck", 1_000),
    ("held .5", "m1", 2_000),
    ("held .5", "stuck", 2_000),
    ("GARCH(.1, .85)", "m1", 2_000),
    ("GARCH(.1, .85)", "var2", 2_000),
    ("daily + weekly, given", "m1", 4_000),
    ("random walk", "m10", 1_000),
)

Cube = NDArray[np.float64]


def bank_of(process: Process, d: int, arl: float, keys: int) -> tuple[RankBank, NDArray[np.int64]]:
    """A bank with the process's setting of seasons, and its slots."""
    period: tuple[int, ...] | Literal["none", "auto"] = "none"
    if process.period == "given":
        period = (DAY, 7 * DAY)
    elif process.period == "auto":
        period = "auto"
    bank = RankBank(d, arl=arl, dependence="auto", period=period, escalation=1.0, capacity=keys, seed=1)
    return bank, np.array([bank.allocate(b"key-%d" % k) for k in range(keys)])


def feed(bank: RankBank, slots: NDArray[np.int64], first: int, y: Cube) -> Scores:
    """The samples of all keys, side by side in time."""
    n, keys, d = y.shape
    times = ORIGIN + STEP * np.repeat(np.arange(first, first + n), keys)
    return bank.update(np.tile(slots, n), None, y.reshape(-1, d), times)


def run_length(name: str, d: int, keys: int, length: int, arl: float) -> dict[str, Any]:
    """Armed samples per alarm under no change, with the Poisson interval of the number of alarms."""
    process = PROCESSES[name]
    bank, slots = bank_of(process, d, arl, keys)
    armed = 0
    guarantees: Counter[str] = Counter()
    for first, y in process.chunks(d, keys, d, length):
        scores = feed(bank, slots, first, y)
        armed += int((scores.state == 1).sum())
        guarantees.update(t.guarantee for t in scores.transitions if t.kind == "raised")
    alarms = sum(guarantees.values())
    low, high = poisson_interval(alarms)
    return {
        "process": name,
        "d": d,
        "arl": round(armed / max(1, alarms)),
        "interval": [round(armed / high), round(armed / low) if low else None],
        "alarms": alarms,
        "samples": armed,
        "guarantees": dict(sorted(guarantees.items())),
    }


def change_samples(y: Cube, kind: str, at: int, last: Cube | None) -> Cube:
    """The samples of a chunk, changed from row `at` on; returns what a stuck stream shows from then on."""
    if at >= len(y):
        return y[-1]
    start = max(at, 0)
    if kind.startswith("m"):
        y[start:, :, 0] += float(kind[1:])
    elif kind == "var2":
        y[start:] *= np.sqrt(2.0)
    elif kind == "stuck":
        y[start:] = y[start] if last is None or at > 0 else last
    return y[-1].copy()


def delay(name: str, kind: str, change: int, runs: int, d: int = 2) -> dict[str, Any]:
    """Samples from the change to the first alarm after it, of the runs without an alarm before it."""
    process = PROCESSES[name]
    bank, slots = bank_of(process, d, DELAY_ARL, runs)
    found = np.full(runs, HORIZON + 1)
    last: Cube | None = None
    early = np.zeros(runs, dtype=bool)
    for first, y in process.chunks(1_000 + d, runs, d, change + HORIZON, 500):
        last = change_samples(y, kind, change - first, last)
        for t in feed(bank, slots, first, y).transitions:
            key = int(np.flatnonzero(slots == t.slot)[0])
            if t.kind == "raised" and t.seq <= change:
                early[key] = True
            elif t.kind == "raised":
                found[key] = min(found[key], t.seq - change)
    found = found[~early]
    return {
        "process": name,
        "change": kind,
        "at": change,
        "median": float(np.median(found)),
        "q90": float(np.quantile(found, 0.9)),
        "missed": int((found > HORIZON).sum()),
        "early": int(early.sum()),
        "runs": runs,
    }


def walks(keys: int, length: int) -> dict[str, Any]:
    """Alarms and notices of random walks at a stated million, with the escalation of a service."""
    bank = RankBank(2, arl=1e6, escalation=10.0, capacity=keys, seed=1)
    slots = np.array([bank.allocate(b"walk-%d" % k) for k in range(keys)])
    counts = {kind: np.zeros(keys, dtype=np.int64) for kind in ("raised", "cleared", "notice")}
    for first, y in PROCESSES["random walk"].chunks(7, keys, 2, length):
        for t in feed(bank, slots, first, y).transitions:
            counts[t.kind][slots == t.slot] += 1
    return {
        "keys": keys,
        "samples": length,
        "alarms": int(counts["raised"].sum()),
        "most": int(counts["raised"].max()),
        "notices": [int(counts["notice"].min()), int(counts["notice"].max())],
    }


def run(short: bool = False, arl: float = 1_000.0) -> dict[str, Any]:
    """All tables as lists of rows."""
    sizes = {2: (8, 12_000)} if short else SIZES
    names = ("AR .6", "held .5", "GARCH(.1, .85)") if short else tuple(PROCESSES)
    return {
        "stated": arl,
        "arl": [run_length(name, d, *size, arl) for d, size in sizes.items() for name in names],
        "walks": walks(*((4, 6_000) if short else WALKS)),
        "delay": [delay(*row, runs=20 if short else 200) for row in (CHANGES[2:3] if short else CHANGES)],
    }


def failures(result: dict[str, Any]) -> list[str]:
    """Run lengths below the stated one, in words; not those of keys whose alarms all said that none can be stated."""
    return [
        f"{row['process']}, d = {row['d']}: a false alarm every {row['arl']:,} samples, stated {result['stated']:,.0f}"
        for row in result["arl"]
        if row["interval"][1] is not None
        and row["interval"][1] < result["stated"]
        and set(row["guarantees"]) != {"none"}
    ]


def tables(result: dict[str, Any]) -> list[str]:
    """Lines for people."""
    lines = [f"samples per false alarm, stated {result['stated']:,.0f}"]
    lines.append(f"{'process':<24} {'d':>2} {'true':>9}   95 % interval     alarms")
    for row in result["arl"]:
        low, high = row["interval"]
        said = ", ".join(f"{level} {count}" for level, count in row["guarantees"].items())
        upper = f"{high:,}" if high else "-"
        lines.append(
            f"{row['process']:<24} {row['d']:>2} {row['arl']:>9,}   {low:>7,} - {upper:<9} {row['alarms']:>4}   {said}"
        )
    found = result["walks"]
    lines += [
        "",
        f"{found['keys']} random walks of {found['samples']:,} samples, stated 1,000,000: {found['alarms']} alarms, at "
        f"most {found['most']} of a key; notices per key {found['notices'][0]} to {found['notices'][1]}",
    ]
    lines += ["", f"delay in samples at a stated {DELAY_ARL:,.0f}, d = 2"]
    lines.append(f"{'process':<24} {'change':<6} {'at':>6} {'median':>8} {'90 %':>7} {'missed':>7} {'early':>6}")
    for row in result["delay"]:
        lines.append(
            f"{row['process']:<24} {row['change']:<6} {row['at']:>6} {row['median']:>8g} {row['q90']:>7.0f} "
            f"{row['missed']:>4}/{row['runs']} {row['early']:>4}"
        )
    return lines


def main(arguments: list[str]) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arl_dependence")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--arl", type=float, default=1_000.0)
    given = parser.parse_args(arguments)
    result = run(given.short, given.arl)
    missed = failures(result)
    print("\n".join([*tables(result), *missed]))
    print(json.dumps(result))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
