"""True average run length and detection delays of the explicit-pairs detector, beside a plain transcription of it.

`run(short)` gives one dictionary: `arl` by dimension (stated 10,000 pairs, no change) and `delay` by dimension and
change, bank and transcription on the same seeds.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2

from benchmarks.transcription_pairs import Transcription
from kstream_worker.detectors.pairs import PairBank
from kstream_worker.records import FloatMatrix, IntColumn, Scores

ARL = 10_000.0
WARMUP = 200
CHANGE = 2000
HORIZON = 2000  # pairs after the change before a run counts as a miss
KEYS = 20  # of one batch: their state stays in the cache
DIMS = (1, 2, 5, 10)


def _shift(by: float) -> Callable[[FloatMatrix], FloatMatrix]:
    def change(y: FloatMatrix) -> FloatMatrix:
        moved = y.copy()
        moved[..., 0] += by
        return moved

    return change


def _correlate(y: FloatMatrix) -> FloatMatrix:
    out = y.copy()
    out[..., 1] = 0.8 * y[..., 0] + 0.6 * y[..., 1]
    return out


SCENARIOS: dict[str, Callable[[FloatMatrix], FloatMatrix]] = {
    "m.5": _shift(0.5),
    "m1": _shift(1.0),
    "m2": _shift(2.0),
    "far": _shift(10.0),
    "var2": lambda y: np.sqrt(2.0) * y,  # the covariance doubles
    "obl1": lambda y: y + 1.0 / np.sqrt(y.shape[-1]),
    "corr": _correlate,
}


def poisson_interval(count: int, level: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval for the mean of a Poisson count (Garwood 1936)."""
    tail = (1.0 - level) / 2.0
    low = chi2.ppf(tail, 2 * count) / 2.0 if count else 0.0
    return float(low), float(chi2.ppf(1.0 - tail, 2 * count + 2) / 2.0)


def true_arl(dims: int, pairs: int, arl: float = ARL, seed: int = 0) -> dict[str, Any]:
    """Armed pairs per false alarm over about `pairs` pairs of standard normal data, with a 95 % interval."""
    rng = np.random.default_rng([seed, dims])
    bank = PairBank(dims, arl=arl, capacity=KEYS)
    slots = np.array([bank.allocate(b"%d" % key) for key in range(KEYS)])
    rows = 1000
    armed = alarms = 0
    for start in range(0, pairs // KEYS, rows):
        x, y = rng.standard_normal((2, KEYS * rows, dims))
        times = np.repeat(np.arange(start, start + rows), KEYS)
        scores = bank.update(np.tile(slots, rows), x, y, times)
        armed += int((scores.state == 1).sum())
        alarms += sum(t.kind == "raised" for t in scores.transitions)
    low, high = poisson_interval(alarms)
    return {
        "arl": round(armed / max(alarms, 1)),
        "interval": [round(armed / high), round(armed / low) if low else None],
        "alarms": alarms,
        "pairs": armed,
    }


def _normal(dims: int, run: int, seed: int) -> tuple[FloatMatrix, FloatMatrix]:
    x, y = np.random.default_rng([seed, dims, run]).standard_normal((2, CHANGE + HORIZON, dims))
    return x, y


def _delay(first: list[int]) -> int:
    return first[0] + 1 if first else HORIZON + 1


def bank_delays(dims: int, scenarios: Sequence[str], runs: int, seed: int) -> dict[str, list[int]]:
    """Pairs from the change to the first alarm after it, for each run; HORIZON + 1 where there is none.

    The pairs before the change are walked once; each scenario goes on from snapshots of the keys.
    """
    delays: dict[str, list[int]] = {name: [] for name in scenarios}
    for first in range(0, runs, KEYS):
        series = [_normal(dims, run, seed) for run in range(first, min(first + KEYS, runs))]
        x, y = (np.stack([pair[side] for pair in series], axis=1) for side in (0, 1))
        bank = PairBank(dims, arl=ARL, warmup=WARMUP, capacity=KEYS)
        slots = np.array([bank.allocate(b"%d" % key) for key in range(len(series))])
        _feed(bank, slots, x[:CHANGE], y[:CHANGE])
        before = [bank.snapshot(int(slot)) for slot in slots]
        for name in scenarios:
            for slot, snapshot in zip(slots, before, strict=True):
                bank.restore(int(slot), snapshot)
            delays[name] += _bank_delays_after(bank, slots, x[CHANGE:], SCENARIOS[name](y[CHANGE:]))
    return delays


def _feed(bank: PairBank, slots: IntColumn, x: FloatMatrix, y: FloatMatrix) -> Scores:
    dims = x.shape[2]
    times = np.repeat(np.arange(len(x)), len(slots))
    return bank.update(np.tile(slots, len(x)), x.reshape(-1, dims), y.reshape(-1, dims), times)


def _bank_delays_after(bank: PairBank, slots: IntColumn, x: FloatMatrix, y: FloatMatrix) -> list[int]:
    """Feed blocks until every key has alarmed: most of the horizon need not be walked."""
    found: dict[int, list[int]] = {int(slot): [] for slot in slots}
    for start in range(0, len(x), 50):
        for t in _feed(bank, slots, x[start : start + 50], y[start : start + 50]).transitions:
            if t.kind == "raised":
                found[t.slot].append(start + t.row // len(slots))
        if all(found.values()):
            break
    return [_delay(rows) for rows in found.values()]


def transcription_delays(dims: int, scenarios: Sequence[str], runs: int, seed: int) -> dict[str, list[int]]:
    """The same of the transcription, on the same data."""
    delays: dict[str, list[int]] = {name: [] for name in scenarios}
    for run in range(runs):
        x, y = _normal(dims, run, seed)
        before = Transcription(dims, arl=ARL, warmup=WARMUP)
        before.feed(x[:CHANGE], y[:CHANGE])
        for name in scenarios:
            rows = copy.deepcopy(before).feed(x[CHANGE:], SCENARIOS[name](y[CHANGE:]), first=True)
            delays[name].append(_delay(rows))
    return delays


def delays(dims: int, scenarios: Sequence[str], runs: int = 200, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Medians and 90 % quantiles of both on the same seeds, and the ratio of the medians, by scenario."""
    ours = bank_delays(dims, scenarios, runs, seed)
    plain = transcription_delays(dims, scenarios, runs, seed)
    return {
        name: {
            "median": float(np.median(ours[name])),
            "q90": float(np.quantile(ours[name], 0.9)),
            "missed": sum(delay > HORIZON for delay in ours[name]),
            "transcription_median": float(np.median(plain[name])),
            "transcription_q90": float(np.quantile(plain[name], 0.9)),
            "ratio": round(float(np.median(ours[name]) / np.median(plain[name])), 3),
            "runs": runs,
        }
        for name in scenarios
    }


def run(short: bool) -> dict[str, Any]:
    """Everything, or in the short form one dimension and one change."""
    dims = (2,) if short else DIMS
    names = ("m1",) if short else ("m.5", "m1", "m2", "var2", "corr")
    pairs = {1: 1_000_000, 2: 1_000_000, 5: 1_000_000, 10: 700_000}
    out: dict[str, Any] = {"arl": {}, "delay": {}}
    for d in dims:
        out["arl"][str(d)] = true_arl(d, 200_000 if short else pairs[d], seed=1)
        scenarios = [name for name in names if d > 1 or name != "corr"]
        out["delay"][str(d)] = delays(d, scenarios, runs=20 if short else 200, seed=2)
    return out


if __name__ == "__main__":
    print(json.dumps(run("--short" in sys.argv)))
