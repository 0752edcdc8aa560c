"""True average run lengths and delays of both detectors, stated 10,000, each beside a plain transcription of its rules.

    python -m benchmarks.arl [--short]

Prints two tables; the last line is one JSON object. The exit code is 1 where a run length lies below the stated one
with its whole 95 % interval, or a median delay above 1.10 times that of the transcription.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks import arl_pairs, arl_ranks

STATED = 10_000
MOST_DELAY = 1.10


def run(short: bool) -> dict[str, Any]:
    """Both halves."""
    halves: dict[str, dict[str, Any]] = {}
    for name, half in (("explicit", arl_pairs.run), ("stream", arl_ranks.run)):
        started = time.perf_counter()
        halves[name] = half(short)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    return halves


def run_length_table(halves: dict[str, dict[str, Any]]) -> list[str]:
    """One line per detector and dimension."""
    lines = ["", f"samples per false alarm, stated {STATED:,}", "detector       d      true   95 % interval     alarms"]
    for name, half in halves.items():
        for kind, rows in ((name, half["arl"]), (f"{name} AR(.6)", half.get("arl_auto", {}))):
            for d, row in rows.items():
                low, high = row["interval"]
                upper = f"{high:,}" if high else "-"
                lines.append(f"{kind:<13} {d:>2} {row['arl']:>9,}   {low:>7,} - {upper:<9} {row['alarms']:>4}")
    return lines


def delay_table(halves: dict[str, dict[str, Any]]) -> list[str]:
    """One line per detector, dimension and change."""
    lines = [
        "",
        "delay in samples, median / 90 %",
        "detector   d  change      bank         transcription  ratio  missed",
    ]
    for name, half in halves.items():
        for d, changes in half["delay"].items():
            for change, row in changes.items():
                bank = f"{row['median']:g} / {row['q90']:.0f}"
                plain = f"{row['transcription_median']:g} / {row['transcription_q90']:.0f}"
                lines.append(
                    f"{name:<9} {d:>2}  {change:<6} {bank:>13} {plain:>16}  {row['ratio']:>7.2f}  {row['missed']:>4}"
                )
    return lines


def summary(halves: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the last line says: run lengths as plain numbers, then everything."""
    return {
        "arl": {name: {d: row["arl"] for d, row in half["arl"].items()} for name, half in halves.items()},
        "delay": {name: half["delay"] for name, half in halves.items()},
        "arl_detail": {name: half["arl"] for name, half in halves.items()},
        "arl_auto": {name: half["arl_auto"] for name, half in halves.items() if "arl_auto" in half},
        "stated": STATED,
    }


def failures(halves: dict[str, dict[str, Any]]) -> list[str]:
    """What misses its mark, in words."""
    found = []
    for name, half in halves.items():
        for d, row in half["arl"].items():
            if row["interval"][1] is not None and row["interval"][1] < STATED:
                found.append(f"{name}, d = {d}: a false alarm every {row['arl']:,} samples, stated {STATED:,}")
        for d, changes in half["delay"].items():
            found += [
                f"{name}, d = {d}, {change}: {row['ratio']:.2f} times the delay of the transcription"
                for change, row in changes.items()
                if row["ratio"] > MOST_DELAY
            ]
    return found


def main(arguments: list[str]) -> int:
    """Run, print, judge."""
    halves = run("--short" in arguments)
    missed = failures(halves)
    print("\n".join([*run_length_table(halves), *delay_table(halves), *missed]))
    print(json.dumps(summary(halves)))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
