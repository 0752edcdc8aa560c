"""True average run length and delays of the rank detector (one stream per key), against a plain transcription.

`run(short)` gives one dictionary, as `arl_pairs.run` does: samples per false alarm by dimension (stated 10,000, no
change), delays by dimension and change.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.arl_pairs import poisson_interval
from benchmarks.transcription_ranks import first_alarm
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.numerics.random import stream_of

ARL = 10_000.0
DIMS = (1, 2, 5, 10)
WARMUP = 200
CHANGE = 1_000
HORIZON = 2_000  # samples after the change in which an alarm counts
SCENARIOS = ("m.5", "m1", "m2", "var2", "corr")

Matrix = NDArray[np.float64]


def run(short: bool = False) -> dict[str, Any]:
    """Rows of `arl` and `arl_auto` (an AR(1) .6 stream, whitened) by dimension, of `delay` by dimension and change."""
    keys, length, runs = (16, 6_000, 20) if short else (50, 40_000, 200)
    dims = (2,) if short else DIMS
    scenarios = ("m1",) if short else SCENARIOS
    return {
        "arl": {str(d): run_length(d, keys, length, "none") for d in dims},
        "arl_auto": {} if short else {"2": run_length(2, keys, length, "auto", ar=0.6)},
        "delay": {str(d): delays(d, [name for name in scenarios if d > 1 or name != "corr"], runs) for d in dims},
    }


def run_length(d: int, keys: int, length: int, dependence: str, ar: float = 0.0) -> dict[str, Any]:
    """Armed samples per alarm under no change, with the 95 % Poisson interval of the number of alarms.

    Every key starts afresh and is cut off after `length` samples, about one true run length: since an alarm soon after
    arming is rare, the figure is some percent too high.
    """
    bank = RankBank(d, arl=ARL, dependence=dependence, capacity=keys, seed=1)
    slots = np.array([bank.allocate(b"null-%d" % k) for k in range(keys)])
    rng = np.random.default_rng(1_000 + d)
    alarms = 0
    armed = 0
    started = time.perf_counter()
    past = np.zeros((keys, d))
    chunk = 1_000
    for at in range(0, length, chunk):
        y = rng.standard_normal((chunk, keys, d))
        if ar:
            for t in range(chunk):
                past = y[t] = ar * past + math.sqrt(1.0 - ar * ar) * y[t]
        times = np.repeat(np.arange(at, at + chunk), keys)
        scores = bank.update(np.tile(slots, chunk), None, y.reshape(-1, d), times)
        alarms += sum(t.kind == "raised" for t in scores.transitions)
        armed += int((scores.state == 1).sum())
    low, high = poisson_interval(alarms)
    return {
        "arl": round(armed / max(1, alarms)),
        "interval": [round(armed / high), round(armed / low) if low else None],
        "alarms": alarms,
        "samples": armed,
        "us_per_sample": round((time.perf_counter() - started) / (keys * length) * 1e6, 2),
    }


def changed(rng: np.random.Generator, d: int, scenario: str, n: int) -> Matrix:
    """Standard normal samples, changed from row `CHANGE` on."""
    y = rng.standard_normal((n, d))
    if scenario.startswith("m"):
        y[CHANGE:, 0] += float(scenario[1:])
    elif scenario == "var2":
        y[CHANGE:] *= math.sqrt(2.0)
    else:
        y[CHANGE:, 1] = 0.8 * y[CHANGE:, 0] + 0.6 * y[CHANGE:, 1]
    return y


def delays(d: int, scenarios: Sequence[str], runs: int) -> dict[str, dict[str, Any]]:
    """Median delay of bank and transcription on the same samples and draws, by scenario."""
    out = {}
    for name in scenarios:
        samples = [changed(np.random.default_rng((d, r)), d, name, CHANGE + HORIZON) for r in range(runs)]
        bank = bank_delays(samples)
        plain = plain_delays(samples)
        out[name] = {
            "median": float(np.median(bank)),
            "q90": float(np.quantile(bank, 0.9)),
            "missed": sum(delay > HORIZON for delay in bank),
            "transcription_median": float(np.median(plain)),
            "transcription_q90": float(np.quantile(plain, 0.9)),
            "ratio": round(float(np.median(bank) / np.median(plain)), 3),
            "runs": runs,
            "same": sum(a == b for a, b in zip(bank, plain, strict=True)),
            "close": sum(abs(a - b) <= 3 for a, b in zip(bank, plain, strict=True)),
        }
    return out


def bank_delays(samples: list[Matrix]) -> list[int]:
    """Samples from the change to the first alarm; 0 where it came before the change, HORIZON + 1 where none came."""
    d = samples[0].shape[1]
    bank = RankBank(d, arl=ARL, dependence="none", capacity=len(samples), seed=2)
    slots = np.array([bank.allocate(b"run-%d" % r) for r in range(len(samples))])
    result: list[int] = [-1] * len(samples)
    waiting = list(range(len(samples)))
    n = len(samples[0])
    chunk = 100
    for at in range(0, n, chunk):
        if not waiting:
            break
        y = np.stack([samples[r][at : at + chunk] for r in waiting], axis=1).reshape(-1, d)
        times = np.repeat(np.arange(at, at + chunk), len(waiting))
        scores = bank.update(np.tile(slots[waiting], chunk), None, y, times)
        for transition in scores.transitions:
            r = int(np.flatnonzero(slots == transition.slot)[0])
            if transition.kind == "raised" and result[r] < 0:
                result[r] = max(0, transition.seq - CHANGE)
        waiting = [r for r in waiting if result[r] < 0]
    return [HORIZON + 1 if delay < 0 else delay for delay in result]


def plain_delays(samples: list[Matrix]) -> list[int]:
    """The same of the transcription."""
    result = []
    for r, y in enumerate(samples):
        t = first_alarm(y, stream_of(2, b"run-%d" % r), WARMUP, 2.0 * ARL)
        result.append(HORIZON + 1 if t < 0 else max(0, t + 1 - CHANGE))
    return result


if __name__ == "__main__":
    print(json.dumps(run("--short" in sys.argv)))
