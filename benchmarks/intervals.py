"""Prediction intervals of cme: how often they are missed, on either side, where nothing changes and where the law does.

    python -m benchmarks.intervals [--quick]

All at the default coverage of 90 %, 5 % on either side. The last line is one JSON object of figures.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks import cme, dynamics
from kstream_worker.models.cme import CmeModel, intervals

Float = NDArray[np.float64]

SETTLED = 400  # pairs left out at the start, warm-up included
PARTS = (0, 50, 100, 200, 400, 800)  # pairs behind a change, where parts begin
GAUSS = 1.6449  # standard deviations of a normal law's 5 %


def answers(x: Float, y: Float) -> dict[str, Float]:
    """What is said of each value of y, float64[n, streams, dy] each, of x and y alike; and y itself."""
    n, streams, dy = y.shape
    model = CmeModel(tuple(f"x{j}" for j in range(x.shape[2])), tuple(f"y{j}" for j in range(dy)))
    slots = np.tile([model.allocate(b"%d" % i) for i in range(streams)], n)
    rows = n * streams
    said = model.update(slots, x.reshape(rows, -1), y.reshape(rows, dy), np.zeros(rows, dtype=np.int64)).values
    names = ("mean", "sd", "lower", "upper")
    return {name: said[:, k * dy : (k + 1) * dy].reshape(n, streams, dy) for k, name in enumerate(names)} | {"y": y}


def curve(n: int, streams: int, seed: int) -> tuple[Float, Float, Float]:
    """x, sin 2x and normal noise of .3."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(n, streams, 1))
    return x, np.sin(2.0 * x), 0.3 * rng.normal(size=x.shape)


def unchanged(n: int, streams: int) -> Iterator[tuple[str, Float, Float]]:
    """Processes of one law, with their names."""
    for name, make in cme.stationary(n, streams, 7).items():
        path = make()
        yield name, path[:-1], path[1:]
    x, mean, _ = curve(n, streams, 1)
    yield "curve, t3 noise", x, mean + 0.3 * np.random.default_rng(2).standard_t(3, size=x.shape)
    path = uneven_logistic(n, streams, 3)
    yield "logistic map, noise grows", path[:-1], path[1:]


def uneven_logistic(n: int, streams: int, seed: int) -> Float:
    """x' = 3.8 x (1 - x) + noise of .08 x, reflected into [0, 1]."""
    rng, path = np.random.default_rng(seed), np.full((n, streams, 1), 0.3)
    for t in range(1, n):
        last = path[t - 1]
        moved = np.abs(3.8 * last * (1.0 - last) + 0.08 * last * rng.normal(size=last.shape))
        path[t] = np.where(moved > 1.0, 2.0 - moved, moved)
    return path


def changing(n: int, streams: int) -> Iterator[tuple[str, Float, Float]]:
    """Processes whose law changes at pair n / 2, with their names."""
    x, mean, noise = curve(n, streams, 4)
    half, rng = n // 2, np.random.default_rng(5)
    late = np.arange(n)[:, None, None] >= half
    yield "noise x 3", x, mean + np.where(late, 3.0, 1.0) * noise
    yield "noise / 3", x, mean + np.where(late, 1.0 / 3.0, 1.0) * noise
    yield "level + 3.3 sd", x, mean + noise + np.where(late, 1.0, 0.0)
    yield "y follows x no more", x, np.where(late, rng.permutation(mean), mean) + noise
    path = dynamics.logistic(n + 1, streams, 6)
    path[half:] = rng.permutation(path[half:])
    yield "logistic map to iid", path[:-1], path[1:]


def measure_unchanged(n: int, streams: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    print(
        f"\nnothing changes, {n} pairs x {streams}: beyond lower, upper; worst of {n // 500 - 1} stretches of 500 (one"
    )
    print("stream, one side); covered by mean +- 1.645 sd; width in sd; misses after a miss; no limit")
    for name, x, y in unchanged(n, streams):
        told = {what: values[SETTLED:] for what, values in answers(x, y).items()}
        beyond = np.stack((told["y"] < told["lower"], told["y"] > told["upper"]))
        stretches = beyond[:, : beyond.shape[1] // 500 * 500].reshape(2, -1, 500, streams * y.shape[2]).mean(axis=2)
        missed = beyond.any(axis=0)
        figures[name] = {
            "sides": beyond.mean(axis=(1, 2, 3)).round(4).tolist(),
            "worst": round(float(stretches.max()), 3),
            "gauss": round(float((np.abs(told["y"] - told["mean"]) <= GAUSS * told["sd"]).mean()), 3),
            "width": round(float(np.median((told["upper"] - told["lower"]) / told["sd"])), 2),
            "again": round(float(missed[1:][missed[:-1]].mean()), 3),
            "no limit": float(np.isinf(told["upper"] - told["lower"]).mean()),
        }
        print(f"  {name:26} {figures[name]}")
    return figures


def measure_places(n: int, streams: int) -> dict[str, object]:
    """Share covered by thirds of x, of a process whose scatter depends on it."""
    path = uneven_logistic(n, streams, 8)
    told = answers(path[:-1], path[1:])
    x = path[SETTLED:-1]
    covered = ((told["lower"] <= told["y"]) & (told["y"] <= told["upper"]))[SETTLED:]
    edges = np.quantile(x, (1.0 / 3.0, 2.0 / 3.0))
    thirds = [round(float(covered[np.searchsorted(edges, x) == k].mean()), 3) for k in range(3)]
    print(f"\nlogistic map, noise grows: covered in thirds of x, from the least: {thirds}")
    return {"thirds": thirds}


def measure_changes(n: int, streams: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    print(f"\nthe law changes at pair {n // 2}, {streams} streams: covered from {PARTS} pairs behind it on, also by")
    print("+- 1.645 sd; pairs until, from then on, the streams' mean over 50 pairs is .85 at least for 200 pairs")
    for name, x, y in changing(n, streams):
        told = {what: values[n // 2 :] for what, values in answers(x, y).items()}
        covered = ((told["lower"] <= told["y"]) & (told["y"] <= told["upper"])).mean(axis=(1, 2))
        gauss = (np.abs(told["y"] - told["mean"]) <= GAUSS * told["sd"]).mean(axis=(1, 2))
        figures[name] = {"covered": by_parts(covered), "gauss": by_parts(gauss), "recovered": recovered(covered)}
        print(f"  {name:22} {figures[name]}")
    return figures


def by_parts(share: Float) -> list[float]:
    return [round(float(part.mean()), 2) for part in np.split(share, PARTS[1:])]


def recovered(share: Float) -> int:
    """First pair from which on each of the next 200 means over 50 pairs is .85 at least."""
    means = np.convolve(share, np.full(50, 0.02), mode="valid")
    well = np.convolve(means >= 0.85, np.ones(200, dtype=int), mode="valid")
    return int(np.argmax(well == 200))


def measure_bound(n: int) -> dict[str, object]:
    """Of one side: the largest surplus of misses over the stated ones, in all stretches of pairs."""
    x, mean, noise = curve(n, 1, 9)
    told = answers(x, mean + noise)
    beyond = (told["y"] > told["upper"])[SETTLED:, 0, 0]
    sums = np.concatenate(([0.0], np.cumsum(beyond - 0.05)))
    found, proven = float(np.ptp(sums)), (2.0 * intervals.MOST + intervals.STEP) / intervals.STEP
    print(f"\n{n} pairs of one law: surplus of misses in any stretch at most {found:.1f}; proven {proven:.0f}")
    return {"found": found, "proven": proven}


def measure_cost() -> dict[str, object]:
    """Microseconds of one pair, one value on each side, with all atoms in use."""
    x, mean, noise = curve(12_000, 1, 10)
    y = mean + noise
    model = CmeModel(("x",), ("y",))
    slot, times = np.full(1000, model.allocate(b"")), np.zeros(1000, dtype=np.int64)
    best = np.inf
    for part in range(12):
        start = time.process_time()
        model.update(slot, x[1000 * part :][:1000, 0], y[1000 * part :][:1000, 0], times)
        best = min(best, (time.process_time() - start) * 1e3) if part else best
    print(f"\n{best:.2f} us a pair, {model.bytes_per_key} bytes per key")
    return {"us": best, "bytes": model.bytes_per_key}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the streams")
    streams = 8 if parser.parse_args().quick else 32
    print(
        json.dumps(
            {
                "unchanged": measure_unchanged(6400, streams // 4),
                "places": measure_places(6400, streams // 4),
                "changes": measure_changes(6000, streams),
                "bound": measure_bound(20_000),
                "cost": measure_cost(),
            }
        )
    )


if __name__ == "__main__":
    main()
