"""Changes that leave every mean, variance and correlation as it was, and one that is hard for its dimension.

All start as independent standard normal features and change at sample 2,000. `run(short)` gives, by scenario, how many
of the runs had an alarm within the horizon, how many before the change, and the median delay, at a stated run length
of 10,000 (`make bench-hidden`; the last line is JSON).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.ranks import RankBank

ARL = 10_000.0
CHANGE = 2_000
CHUNK = 250

Matrix = NDArray[np.float64]
Change = Callable[[np.random.Generator, Matrix], None]


def quadratic(strength: float) -> Change:
    """Feature 1 becomes strength (y0^2 - 1) / sqrt 2 + sqrt(1 - strength^2) y1."""

    def change(_rng: np.random.Generator, y: Matrix) -> None:
        y[:, 1] = strength * (y[:, 0] ** 2 - 1.0) / math.sqrt(2.0) + math.sqrt(1.0 - strength**2) * y[:, 1]

    return change


def parity(_rng: np.random.Generator, y: Matrix) -> None:
    """The product of the signs of the first three features becomes 1; any two stay independent."""
    y[:, 2] = np.abs(y[:, 2]) * np.sign(y[:, 0] * y[:, 1])


def ring(_rng: np.random.Generator, y: Matrix) -> None:
    """The first two features move to a ring of radius sqrt 2 (with noise), uniform in the angle."""
    angle = np.arctan2(y[:, 1], y[:, 0])
    radius = math.sqrt(2.0 * (1.0 - 0.15**2))
    noise = 0.15 * y[:, :2]
    y[:, 0] = radius * np.cos(angle) + math.sqrt(2.0) * noise[:, 0] / math.sqrt(2.0)
    y[:, 1] = radius * np.sin(angle) + math.sqrt(2.0) * noise[:, 1] / math.sqrt(2.0)


def sizes(_rng: np.random.Generator, y: Matrix) -> None:
    """|y1| becomes |y0| with its sign kept: no correlation, the same marginals."""
    y[:, 1] = np.abs(y[:, 0]) * np.sign(y[:, 1])


def bimodal(rng: np.random.Generator, y: Matrix) -> None:
    """Feature 0 becomes a mixture of two normals at +-.9 with variance 1 in all."""
    y[:, 0] = 0.9 * rng.choice((-1.0, 1.0), len(y)) + math.sqrt(1.0 - 0.81) * y[:, 0]


def laplace(rng: np.random.Generator, y: Matrix) -> None:
    """Feature 0 becomes Laplacian of variance 1."""
    y[:, 0] = rng.laplace(scale=math.sqrt(0.5), size=len(y))


def correlation(_rng: np.random.Generator, y: Matrix) -> None:
    """Features 0 and 1 become correlated, .8: no hidden change, but one of very many pairs."""
    y[:, 1] = 0.8 * y[:, 0] + 0.6 * y[:, 1]


# name: (features, change, runs, samples after the change)
SCENARIOS: dict[str, tuple[int, Change, int, int]] = {
    "d=5 quadratic": (5, quadratic(0.8), 15, 5_000),
    "d=5 quadratic, half": (5, quadratic(0.5), 15, 5_000),
    "d=3 parity": (3, parity, 15, 5_000),
    "d=20 correlation": (20, correlation, 12, 4_000),
    "d=1 laplace": (1, laplace, 15, 5_000),
    "d=1 bimodal": (1, bimodal, 15, 5_000),
    "d=2 quadratic": (2, quadratic(0.8), 15, 5_000),
    "d=2 ring": (2, ring, 15, 5_000),
    "d=5 bimodal": (5, bimodal, 15, 5_000),
    "d=5 sizes": (5, sizes, 15, 5_000),
    "d=5 parity": (5, parity, 15, 5_000),
    "d=10 quadratic": (10, quadratic(0.8), 15, 5_000),
}
SHORT = ("d=3 parity",)


def run(short: bool = False, **settings: Any) -> dict[str, dict[str, Any]]:
    """One row per scenario: runs, those with an alarm after the change, those with one before, delays, scores named."""
    return {name: _row(*SCENARIOS[name], settings) for name in (SHORT if short else SCENARIOS)}


def _row(d: int, change: Change, runs: int, horizon: int, settings: dict[str, Any]) -> dict[str, Any]:
    samples = np.empty((CHANGE + horizon, runs, d))
    for r in range(runs):
        rng = np.random.default_rng((7, d, r))
        samples[:, r] = rng.standard_normal((CHANGE + horizon, d))
        changed = samples[CHANGE:, r].copy()
        change(rng, changed)
        samples[CHANGE:, r] = changed
    first, before, reasons = _first_alarms(samples, settings)
    delays = sorted(at - CHANGE for at in first if at > 0)
    return {
        "runs": runs,
        "found": len(delays),
        "before": before,
        "median": float(np.median(delays)) if delays else None,
        "q90": float(np.quantile(delays, 0.9)) if delays else None,
        "by": sorted(set(reasons)),
    }


def _first_alarms(samples: NDArray[np.float64], settings: dict[str, Any]) -> tuple[list[int], int, list[str]]:
    """Sample of the first alarm after the change in each run (0: none), alarms before it, what the former name."""
    n, runs, d = samples.shape
    bank = RankBank(d, **{"arl": ARL, "dependence": "none", "capacity": runs, "seed": 3, **settings})
    slots = np.array([bank.allocate(b"run-%d" % r) for r in range(runs)])
    first = [0] * runs
    before = 0
    reasons = []
    for at in range(0, n, CHUNK):
        waiting = [r for r in range(runs) if first[r] == 0]
        if not waiting:
            break
        y = samples[at : at + CHUNK, waiting]
        times = np.repeat(np.arange(at, at + len(y)), len(waiting))
        scores = bank.update(np.tile(slots[waiting], len(y)), None, y.reshape(-1, d), times)
        for one in scores.transitions:
            r = int(np.flatnonzero(slots == one.slot)[0])
            if one.kind == "raised" and one.seq <= CHANGE:
                before += 1
            elif one.kind == "raised" and first[r] == 0:
                first[r] = one.seq
                reasons.append(one.reason)
    return first, before, reasons


if __name__ == "__main__":
    rows = run("--short" in sys.argv)
    for name, row in rows.items():
        print(f"{name:22} {row['found']:3} of {row['runs']:3}, {row['before']} before, by {', '.join(row['by'])}")
        print(f"{'':22} median {row['median']}, 90 % {row['q90']}")
    print(json.dumps(rows))
