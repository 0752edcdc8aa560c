"""What conditional mean embeddings promise: predictions, changes of dynamics, false alarms, endurance, cost.

    python -m benchmarks.cme [predict | changes | alarms | endurance | cost] [--quick]

Without a name all of them. The last line is one JSON object of figures.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from benchmarks import dynamics
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.models.cme import CmeModel, OnlineCME

ARL = 10_000.0
CHANGE = 3000  # pair of the change
AFTER = 500


def stationary(n: int, streams: int, seed: int) -> dict[str, Callable[[], np.ndarray]]:
    """Processes that do not change, float64[n, streams, d]."""
    return {
        "logistic map": lambda: dynamics.logistic(n, streams, seed),
        "iid": lambda: np.random.default_rng(seed).normal(size=(n, streams, 1)),
        "AR(1) .6": lambda: dynamics.vector_autoregression(n, streams, seed, np.array([[0.6]])),
        "AR(1) .9": lambda: dynamics.vector_autoregression(n, streams, seed, np.array([[0.9]])),
        "AR(1) .5, ARCH .4": lambda: dynamics.vector_autoregression(n, streams, seed, np.array([[0.5]]), square=0.4),
        "VAR(2)": lambda: dynamics.vector_autoregression(n, streams, seed, dynamics.VAR2),
        "Van der Pol": lambda: dynamics.noisy_flow(n, streams, seed, dynamics.van_der_pol, noise=0.1, seconds=0.25),
        "Duffing": lambda: dynamics.noisy_flow(n, streams, seed, dynamics.duffing, noise=0.3, seconds=0.25),
    }


def changed(n: int, streams: int, seed: int) -> dict[str, np.ndarray]:
    """Processes whose dynamics change at `CHANGE`."""
    before = dynamics.logistic(n, streams, seed)
    shuffled = before.copy()
    marginal = dynamics.logistic(4000, streams, seed + 1)
    rng = np.random.default_rng(seed + 2)
    for stream in range(streams):
        shuffled[CHANGE:, stream] = rng.choice(marginal[:, stream], n - CHANGE)
    turned = dynamics.vector_autoregression(n, streams, seed, dynamics.VAR2)
    reversed_noise = dynamics.vector_autoregression(n, streams, seed + 1, dynamics.VAR2.T)
    turned[CHANGE:] = reversed_noise[CHANGE:]
    iid = np.random.default_rng(seed).normal(size=(n, streams, 1)) / 0.8
    ar = dynamics.vector_autoregression(n, streams, seed + 3, np.array([[0.6]]))
    iid[CHANGE:] = ar[CHANGE:]
    return {"logistic map to iid": shuffled, "VAR(2) turning the other way": turned, "iid to AR(1) .6": iid}


def alarms(path: np.ndarray, dependence: str = "auto", arl: float = ARL) -> tuple[list[tuple[int, int]], int]:
    """(pair, stream) of each alarm of cme and the rank detector over lag pairs, and judged pairs in all."""
    n, streams, d = path.shape
    names = tuple(f"f{j}" for j in range(d))
    model = CmeModel(names, names)
    watch = RankBank(
        len(model.watched),
        feature_names=model.watched,
        arl=arl,
        dependence=dependence,
        alternative="greater",
        spikes=False,
        transform="none",
        explained=False,
    )
    slots = np.array([model.allocate(b"%d" % i) for i in range(streams)])
    watched = np.array([watch.allocate(b"%d" % i) for i in range(streams)])
    rows = (n - 1) * streams
    said = model.update(
        np.tile(slots, n - 1), path[:-1].reshape(rows, d), path[1:].reshape(rows, d), np.zeros(rows, dtype=np.int64)
    )
    order = np.argsort(np.tile(watched, n - 1), kind="stable")
    found = watch.follow(np.tile(watched, n - 1)[order], said.scores[order], np.zeros(rows, dtype=np.int64))
    raised = [divmod(int(order[t.row]), streams) for t in found.transitions if t.kind == "raised"]
    return raised, int((found.state > 0).sum())


def measure_alarms(quick: bool) -> dict[str, object]:
    n, streams = (8000, 8) if quick else (20_000, 12)
    figures: dict[str, object] = {}
    print(f"\nfalse alarms per 1e5 judged pairs, stated {1e5 / ARL:.0f} (n pairs {n} x {streams})")
    for name, make in stationary(n, streams, 7).items():
        raised, judged = alarms(make())
        figures[name] = round(1e5 * len(raised) / judged, 2)
        print(f"  {name:22} {figures[name]:6} ({len(raised)} alarms)")
    return figures


def measure_changes(quick: bool) -> dict[str, object]:
    streams = 20 if quick else 60
    figures: dict[str, object] = {}
    print(f"\nchange at pair {CHANGE}: power within {AFTER}, delay median / 90 %, false before ({streams} streams)")
    for name, path in changed(CHANGE + AFTER, streams, 11).items():
        raised, _ = alarms(path)
        early = sum(t < CHANGE - 1 for t, _ in raised)
        first = {}
        for t, stream in raised:
            if t >= CHANGE - 1:
                first.setdefault(stream, t - (CHANGE - 2))
        delays = np.array([first.get(stream, np.inf) for stream in range(streams)])
        late = np.quantile(delays, [0.5, 0.9], method="lower").tolist()
        figures[name] = {"power": float(np.isfinite(delays).mean()), "median": late[0], "q90": late[1], "early": early}
        print(f"  {name:28} {figures[name]}")
    return figures


def measure_predictions(quick: bool) -> dict[str, object]:
    """Squared one-step error over the variance, pairs 2000 to 6000."""
    n = 3000 if quick else 6000
    paper = {"AR(1)": 0.359, "VAR(2)": 0.430, "noisy Duffing": 0.113, "noisy Van der Pol": 0.0096}
    paths = {
        "AR(1)": dynamics.vector_autoregression(n, 4, 3, np.array([[0.8]])),
        "VAR(2)": dynamics.vector_autoregression(n, 4, 3, dynamics.VAR2),
        "noisy Duffing": dynamics.noisy_flow(n, 4, 3, dynamics.duffing, noise=0.3, seconds=0.25),
        "noisy Van der Pol": dynamics.noisy_flow(n, 4, 3, dynamics.van_der_pol, noise=0.1, seconds=0.25),
    }
    figures: dict[str, object] = {}
    print("\none-step error / variance: linear, cme")
    for name, path in paths.items():
        errors = np.zeros((2, 4))
        for stream in range(4):
            x, y = path[:-1, stream], path[1:, stream]
            model = OnlineCME(x.shape[1], y.shape[1], forgetting=1.0)
            said = model.update(x, y).values[:, : y.shape[1]]
            design = np.column_stack((x, np.ones(len(x))))
            linear = design @ np.linalg.lstsq(design[:2000], y[:2000], rcond=None)[0]
            total = y[2000:].var(axis=0).sum()
            for k, guess in enumerate((linear, said)):
                errors[k, stream] = np.square(guess - y)[2000:].mean(axis=0).sum() / total
        mean = errors.mean(axis=1).round(4).tolist()
        figures[name] = {"linear": mean[0], "cme": mean[1]}
        print(f"  {name:20} {mean[0]:.4f} {mean[1]:.4f}   (prototype, other noise: {paper[name]})")
    return figures


def measure_endurance(quick: bool) -> dict[str, object]:
    """Pairs of values that jump and stand still, on a dictionary that admits all, so that it is nearly singular."""
    n = 50_000 if quick else 1_000_000
    rng = np.random.default_rng(0)
    model = OnlineCME(1, 1)
    model._model._plan = model._model._plan._replace(epsilon=0.0)
    worst, largest = 0.0, 0.0
    done = 0
    while done < n:
        size = min(10_000, n - done)
        x = np.round(rng.normal(size=(size, 1)), 2) * (1.0 if done // 100_000 % 2 else 1e-3)
        y = np.where(rng.random((size, 1)) < 0.01, 1e6 * rng.normal(size=(size, 1)), np.sin(x))
        said = model.update(x, y)
        done += size
        kept = said.values[np.isfinite(said.values).all(axis=1)]
        if done > size and (len(kept) < size or not np.isfinite(said.scores).all()):
            raise SystemExit(f"a value was not finite before pair {done}")
        largest = max(largest, float(kept[:, -1].max()))
        worst = max(worst, condition(model))
    print(f"\n{n} pairs: all finite; largest condition number {worst:.3g}, largest norm {largest:.3g}")
    return {"pairs": n, "condition": worst, "norm": largest}


def condition(model: OnlineCME) -> float:
    """Largest condition number of the atoms' kernel matrices with their truncated directions left out."""
    model_, op = model._model, model._model._op
    row, m = model_.slots.floats[0], int(model_.slots.ints[0, 3])
    worst = 1.0
    for at in (op.at_lx, op.at_ly):
        lower = np.zeros((m, m))
        lower[np.tril_indices(m)] = row[at : at + m * (m + 1) // 2]
        kept = np.diag(lower) > 0.0
        singular = np.linalg.svd(lower[np.ix_(kept, kept)], compute_uv=False)
        worst = max(worst, float((singular[0] / singular[-1]) ** 2))
    return worst


def measure_cost(quick: bool) -> dict[str, object]:
    """Microseconds per pair by atoms in use, and the fitted exponent over 100, 200, 300."""
    sizes = (48, 100, 200, 300)
    cost = {}
    for room in sizes:
        rng = np.random.default_rng(0)
        names = tuple("abcdef")
        x = rng.normal(size=(4000, 6))
        y = x + 0.5 * rng.normal(size=x.shape)
        model = CmeModel(names, names, atoms=room, warmup=400)
        slot = np.full(4000, model.allocate(b""))
        times = np.zeros(4000, dtype=np.int64)
        model.update(slot[:2000], x[:2000], y[:2000], times[:2000])
        best = np.inf
        for part in range(2000, 4000, 500):
            start = time.process_time()
            said = model.update(*(a[part : part + 500] for a in (slot, x, y, times)))
            best = min(best, (time.process_time() - start) / 500 * 1e6)
        cost[room] = best
        print(f"  {room} atoms ({said.values[-1, -2]:.0f} in use): {best:.1f} us per pair, {model.bytes_per_key} bytes")
    logs = np.log([[size, cost[size]] for size in sizes[1:]])
    exponent = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    print(f"  exponent over 100, 200, 300: {exponent:.2f}")
    return {"us": cost, "exponent": exponent}


PARTS: dict[str, Callable[[bool], dict[str, object]]] = {
    "predict": measure_predictions,
    "changes": measure_changes,
    "alarms": measure_alarms,
    "endurance": measure_endurance,
    "cost": measure_cost,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=[*PARTS], help="one of them alone")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, wide errors")
    options = parser.parse_args()
    chosen = [options.part] if options.part else [*PARTS]
    print(json.dumps({name: PARTS[name](options.quick) for name in chosen}))


if __name__ == "__main__":
    main()
