"""False alarms and delays of the detector against a frozen reference, beside those of the prototype it was built from.

    python -m benchmarks.arl_reference [--short]

Standard normal data. For each number of features d and size n of the reference: alarms in 100,000 live samples of each
of several references, with the tolerance (delta = .05) and without; delays of changes after 2,000 live samples, each
run with a reference of its own. The threshold is A = 10,000, half of what `arl` = A takes, as it was in the prototype:
nominal are at most 10 alarms in 100,000 samples. Prints a table; the last line is one JSON object. The exit code is 1
where the mean number of alarms is above the nominal one, or a median delay above 1.5 times the prototype's: those are
medians of 10 runs, with standard errors of up to a fifth.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.reference import ReferenceBank

THRESHOLD = 10_000.0
NOMINAL = 1e5 / THRESHOLD
CHANGE, HORIZON = 2_000, 3_000
MOST_DELAY = 1.5
RAMP = 5_000  # samples in which the mean moves by one standard deviation

# d, n: medians of the prototype.
PROTOTYPE: dict[tuple[int, int], dict[str, float]] = {
    (1, 500): {"m.5": 113, "m1": 36, "m2": 20, "var2": 129, "ramp": 1390},
    (2, 500): {"m.5": 166, "m1": 45, "m2": 24, "var2": 116, "corr": 50, "ramp": 1778},
    (2, 2000): {"m.5": 148, "m1": 48, "m2": 23, "var2": 53, "corr": 47, "ramp": 1217},
    (5, 500): {"m.5": 183, "m1": 48, "m2": 26, "var2": 51, "corr": 77, "ramp": 1879},
    (10, 500): {"m.5": 227, "m1": 55, "m2": 27, "var2": 40, "corr": 63, "ramp": 1893},
}

Matrix = NDArray[np.float64]


def bank_of(d: int, n: int, *, tolerance: bool = True) -> ReferenceBank:
    """One key at threshold A. The data are independent by construction, so they are not tested for it."""
    bank = ReferenceBank(d, samples=n, arl=THRESHOLD / 2.0, test=False, capacity=1)
    if not tolerance:
        *given, _ = bank._compiled.given
        bank._compiled = bank._compiled._replace(given=(*given, 0.0))  # no setting does that: it would void the bound
    return bank


def alarms_of(bank: ReferenceBank, name: bytes, y: Matrix) -> list[int]:
    """Numbers of the samples at which the key raised an alarm."""
    slot = bank.allocate(name)
    scores = bank.update(np.full(len(y), slot), None, y, np.arange(len(y)))
    bank.free(slot)
    return [t.seq for t in scores.transitions if t.kind == "raised"]


def false_alarms(d: int, n: int, references: int, live: int, *, tolerance: bool) -> dict[str, Any]:
    """Alarms per 100,000 live samples under no change: mean and maximum over references."""
    bank = bank_of(d, n, tolerance=tolerance)
    counts = []
    for r in range(references):
        y = np.random.default_rng((d, n, r)).standard_normal((n + live, d))
        counts.append(len(alarms_of(bank, b"null-%d" % r, y)) * 1e5 / live)
    return {"mean": round(float(np.mean(counts)), 2), "max": round(max(counts), 1), "references": references}


def changed(rng: np.random.Generator, d: int, n: int, scenario: str) -> Matrix:
    """A reference and live samples, changed from the 2,001st of these on."""
    y = rng.standard_normal((n + CHANGE + HORIZON, d))
    late = y[n + CHANGE :]
    if scenario.startswith("m"):
        late[:, 0] += float(scenario[1:])
    elif scenario == "ramp":
        late[:, 0] += np.arange(HORIZON) / RAMP
    elif scenario == "var2":
        late *= math.sqrt(2.0)
    else:
        late[:, 1] = 0.8 * late[:, 0] + 0.6 * late[:, 1]
    return y


def delays(d: int, n: int, scenario: str, runs: int) -> dict[str, Any]:
    """Samples from the change to the first alarm behind it; a run without one counts as longer than all."""
    bank = bank_of(d, n)
    found = []
    for r in range(runs):
        y = changed(np.random.default_rng((d, n, r, 1)), d, n, scenario)
        late = [seq - n - CHANGE for seq in alarms_of(bank, b"run-%d" % r, y) if seq > n + CHANGE]
        found.append(late[0] if late else HORIZON + 1)
    median, prototype = float(np.median(found)), PROTOTYPE[d, n][scenario]
    return {
        "median": median,
        "q90": float(np.quantile(found, 0.9)),
        "missed": sum(delay > HORIZON for delay in found),
        "prototype": prototype,
        "ratio": round(median / prototype, 2),
        "runs": runs,
    }


def run(short: bool = False) -> dict[str, Any]:
    """Rows by `d=..., n=...`."""
    cases = [(2, 500)] if short else list(PROTOTYPE)
    references, live, runs = (4, 25_000, 10) if short else (10, 100_000, 60)
    rows = {}
    for d, n in cases:
        started = time.perf_counter()
        rows[f"d={d}, n={n}"] = {
            "alarms": false_alarms(d, n, references, live, tolerance=True),
            "alarms_without_tolerance": false_alarms(d, n, max(2, references // 2), live, tolerance=False),
            "delay": {name: delays(d, n, name, runs) for name in (("m1",) if short else PROTOTYPE[d, n])},
            "seconds": round(time.perf_counter() - started),
        }
        print(line(f"d={d}, n={n}", rows[f"d={d}, n={n}"]), flush=True)
    return rows


def line(name: str, row: dict[str, Any]) -> str:
    """One case: alarms with and without the tolerance, then median / 90 % (prototype's median) of each change."""
    parts = [f"{key} {r['median']:g}/{r['q90']:.0f} ({r['prototype']:g})" for key, r in row["delay"].items()]
    with_it, without = row["alarms"], row["alarms_without_tolerance"]
    return (
        f"{name:<13} alarms {with_it['mean']:g} (max {with_it['max']:g}), "
        f"without tolerance {without['mean']:g} (max {without['max']:g});  " + ", ".join(parts)
    )


def failures(rows: dict[str, Any]) -> list[str]:
    """What misses its mark, in words."""
    found = []
    for name, row in rows.items():
        if row["alarms"]["mean"] > NOMINAL:
            found.append(f"{name}: {row['alarms']['mean']} alarms in 100,000 samples, nominal {NOMINAL:g}")
        found += [
            f"{name}, {change}: {delay['ratio']:.2f} times the delay of the prototype"
            for change, delay in row["delay"].items()
            if delay["ratio"] > MOST_DELAY
        ]
    return found


def main(arguments: list[str]) -> int:
    """Run, print, judge."""
    rows = run("--short" in arguments)
    missed = failures(rows)
    print("\n".join(missed))
    print(json.dumps({"threshold": THRESHOLD, "rows": rows, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
