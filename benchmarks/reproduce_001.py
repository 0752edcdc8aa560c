"""Paper 001, certified solves of kernel ridge: are the certificates right, how often are they given, what do they cost.

    python -m benchmarks.reproduce_001 [--systems N] [--short]

The paper prints theorems and an algorithm, and no experiment; what it claims is tried here:

1. random systems (regular, singular, zero, indefinite by rounding; s = 0, T = 0, eta = 0), every status and every bound
   held against exact rational arithmetic;
2. the share of kernel systems certified, by sketch size, of the paper's form (conjugate gradients on the sketch) and of
   `solve_certified` (the sketch preconditions the original system);
3. time beside a dense Cholesky solve without any certificate, one thread, both in this process, alternating;
4. the stream form: cost of a pair by window, and false alarms of the rank detector on its scores under no change.

A plot goes to out/reproduce-001.png. The last line is one JSON object. Exit status 1 where a figure is missed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from benchmarks.arl_pairs import poisson_interval
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.models import CertifiedSolve, Ridge, RidgeModel, solve_certified
from kstream_worker.models.paper import solve_sketched

Floats = NDArray[np.float64]
PICTURE = Path("out/reproduce-001.png")
STATED = 1000.0  # samples between false alarms
WINDOWS = (64, 128, 200, 500)
SHARES = (0.1, 0.25, 0.5)


def rational(values: Any) -> list[Fraction]:
    return [Fraction(float(v)) for v in np.ravel(values)]


def random_system(rng: np.random.Generator) -> tuple[Floats, Floats, float, int, float, int]:
    """K, y, tau, landmarks, eta, budget."""
    n = int(rng.integers(1, 7))
    rank = int(rng.integers(0, n + 1))
    B = rng.integers(-64, 65, size=(n, rank)) / 16.0
    if rng.random() < 0.5:  # rounded from here on, so perhaps slightly indefinite
        B *= np.pi * 2.0 ** rng.integers(-20, 20)
    K = B @ B.T
    y = rng.integers(-64, 65, size=n) / 16.0 * (rng.random() < 0.95)
    eta = float(rng.choice([0.0, 1e-300, 1e-14, 1e-8, 1e-4, 1.0]))
    budget = int(rng.choice([0, 1, 2, 4, 200]))
    return (K + K.T) / 2.0, y, 2.0 ** int(rng.integers(-30, 7)), int(rng.integers(0, n + 1)), eta, budget


def squares(values: list[Fraction]) -> Fraction:
    return sum((v * v for v in values), Fraction(0))


def exact_gap(G: list[list[Fraction]], answer: CertifiedSolve, r: list[Fraction]) -> list[Fraction]:
    """a - b = (K + tau I)^-1 r, by elimination."""
    n = len(r)
    rows = [[*row, r[i]] for i, row in enumerate(G)]
    for i in range(n):
        rows[i][i] += Fraction(answer.tau)
    for i in range(n):
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for k in range(n):
            if k != i and rows[k][i]:
                rows[k] = [a - rows[k][i] * c for a, c in zip(rows[k], rows[i], strict=True)]
    return [row[n] for row in rows]


def faults(system: tuple[Floats, Floats, float, int, float, int], answer: CertifiedSolve) -> list[str]:
    """What exact arithmetic says against an answer."""
    K, y, tau, _, eta, budget = system
    G, b, t = [rational(row) for row in K], rational(answer.b), Fraction(tau)
    r = [
        v - sum((g * c for g, c in zip(row, b, strict=True)), Fraction(0)) - t * own
        for v, row, own in zip(rational(y), G, b, strict=True)
    ]
    found = []
    norm = squares(r)
    certified = answer.status == "certified"
    if certified and norm > Fraction(eta) ** 2:
        found.append("false certificate")
    if norm > Fraction(answer.residual_norm) ** 2:
        found.append("residual understated")
    reachable = 1e-12 * float(np.abs(y).max()) * (float(np.linalg.norm(K)) + tau) / tau
    if answer.solver != "paper" and not certified and eta >= reachable and budget == 200 and y.any():
        found.append("certificate missed")
    if tau > 2.0 * answer.negative:
        gap = exact_gap(G, answer, r)
        if squares(gap) > Fraction(answer.coefficient_bound) ** 2:
            found.append("coefficient bound")
        fit = [v - t * own for v, own in zip(r, gap, strict=True)]  # K (a - b) = r - tau (a - b)
        if squares(fit) > Fraction(answer.fit_bound) ** 2:
            found.append("fit bound")
    return found


def statuses(count: int) -> dict[str, Any]:
    """Every status and bound of random systems against exact arithmetic, by solver."""
    rng = np.random.default_rng(0)
    tallies: dict[str, Counter[str]] = {name: Counter() for name in ("paper", "cg", "cholesky")}
    wrong: Counter[str] = Counter()
    for i in range(count):
        system = random_system(rng)
        K, y, tau, s, eta, budget = system
        solver = ("paper", "cg", "cholesky")[i % 3]
        if solver == "paper":
            answer = solve_sketched(K, y, tau, np.eye(len(y))[:, :s], eta=eta, budget=budget)
        else:
            answer = solve_certified(K, y, tau, eta=eta, budget=budget, landmarks=s, solver=solver)  # type: ignore[arg-type]
        tallies[solver][answer.status] += 1
        wrong.update(faults(system, answer))
    return {"systems": count, "wrong": dict(wrong), **{name: dict(tally) for name, tally in tallies.items()}}


def kernel_system(rng: np.random.Generator, n: int, d: int, width: float) -> tuple[Floats, Floats]:
    """Gaussian kernel of normal points at `width` median distances; y = a smooth function and noise."""
    X = rng.normal(size=(n, d))
    square = np.square(X).sum(axis=1)
    distances = np.maximum(square[:, None] + square - 2.0 * X @ X.T, 0.0)
    np.fill_diagonal(distances, 0.0)
    K = np.exp(distances / (-2.0 * width**2 * np.median(distances)))
    return (K + K.T) / 2.0, np.sin(X[:, 0]) + X[:, -1] ** 2 / 4.0 + 0.1 * rng.normal(size=n)


def certified_shares(n: int, seeds: int) -> dict[str, Any]:
    """Share certified to 1e-8 |y|, by sketch size, over dimensions, widths and ridges; the paper's form in 60 steps."""
    result: dict[str, Any] = {}
    for share in SHARES:
        s = int(share * n)
        outcomes: dict[str, list[tuple[bool, int]]] = {"paper": [], "preconditioned": []}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            for d in (1, 2, 3, 5):
                for width in (0.5, 1.0, 2.0):
                    K, y = kernel_system(rng, n, d, width)
                    S = np.eye(n)[:, rng.choice(n, s, replace=False)]
                    for lam in (1e-6, 1e-4, 1e-2):
                        eta = 1e-8 * float(np.linalg.norm(y))
                        fast = solve_certified(K, y, n * lam, eta=eta, landmarks=s, solver="cg")
                        outcomes["preconditioned"].append((fast.status == "certified", fast.iterations))
                        if seed == 0:
                            plain = solve_sketched(K, y, n * lam, S, eta=eta, budget=60)
                            outcomes["paper"].append((plain.status == "certified", plain.iterations))
        result[str(share)] = {
            name: {
                "certified": round(float(np.mean([c for c, _ in rows])), 4),
                "systems": len(rows),
                "median_iterations": float(np.median([i for _, i in rows])),
            }
            for name, rows in outcomes.items()
        }
    return result


def seconds(function: Callable[[], Any]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def speed(sizes: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Seconds of CPU of `solve_certified` and of a dense Cholesky solve, and their ratio, medians."""
    result = {}
    for n in sizes:
        rows = []
        for d, tau in ((3, 1.0), (5, 0.1), (5, 1.0)):
            K, y = kernel_system(np.random.default_rng(n), n, d, 1.0)
            shifted = K + tau * np.eye(n)

            def dense(matrix: Floats = shifted, target: Floats = y) -> Floats:
                solved: Floats = linalg.cho_solve(linalg.cho_factor(matrix, check_finite=False), target)
                return solved

            for _ in range(repeats):
                ours = seconds(lambda K=K, y=y, tau=tau: solve_certified(K, y, tau))  # type: ignore[misc]
                rows.append((ours, seconds(dense)))
            assert solve_certified(K, y, tau).status == "certified"
        ours, theirs = np.median(rows, axis=0)
        ratio = float(np.median([b / a for a, b in rows]))
        result[str(n)] = {
            "certified_s": round(ours, 4),
            "cholesky_s": round(theirs, 4),
            "times_faster": round(ratio, 2),
        }
    return result


def stream_costs() -> dict[str, Any]:
    """Microseconds of CPU a pair, and bytes a key, by window; three inputs, one output."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3))
    y = np.sin(x[:, :1]) + 0.5 * x[:, 1:2] + 0.1 * rng.normal(size=(3000, 1))
    Ridge(3, 1, window=8).update(x[:20], y[:20])
    result = {}
    for window in WINDOWS:
        model = RidgeModel(["a", "b", "c"], ["y"], window=window)
        slot = model.allocate(b"key")

        def feed(first: int, last: int, model: RidgeModel = model, slot: int = slot) -> Any:
            n = last - first
            return model.update(np.full(n, slot), x[first:last], y[first:last], np.zeros(n, dtype=np.int64)).values

        feed(0, window - 1)
        arming = seconds(lambda window=window, feed=feed: feed(window - 1, window))  # type: ignore[misc]
        best = min(seconds(lambda at=at, feed=feed: feed(at, at + 500)) for at in range(window, 2500, 500))  # type: ignore[misc]
        status = feed(2990, 3000)[:, 0]
        result[str(window)] = {
            "us_per_pair": round(best / 500 * 1e6, 1),
            "arming_ms": round(arming * 1e3, 2),
            "kB_per_key": round(model.bytes_per_key / 1000),
            "certified": bool((status == 0.0).all()),
        }
    return result


def inputs(kind: str, rng: np.random.Generator, n: int) -> Floats:
    """Independent inputs, or slow ones: AR(1) with .95."""
    x = rng.normal(size=(n, 3))
    if kind == "slow":
        for t in range(1, n):
            x[t] = 0.95 * x[t - 1] + np.sqrt(1.0 - 0.95**2) * x[t]
    return x


def false_alarms(keys: int, length: int) -> dict[str, Any]:
    """Samples between alarms of the rank detector on the scores, nothing changing, at a stated 1,000."""
    result = {}
    for kind in ("independent", "slow"):
        alarms = armed = 0
        for key in range(keys):
            rng = np.random.default_rng((7, key))
            x = inputs(kind, rng, length)
            y = (np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.2 * rng.normal(size=length))[:, None]
            scores = Ridge(3, 1).update(x, y).scores
            scores = scores[np.isfinite(scores[:, 0])]
            bank = RankBank(3, arl=STATED, alternative="greater", seed=1)
            slot = bank.allocate(b"%d" % key)
            n = len(scores)
            answer = bank.update(np.full(n, slot), None, scores, np.arange(n))
            alarms += sum(t.kind == "raised" for t in answer.transitions)
            armed += int((answer.state == 1).sum())
        low, high = poisson_interval(alarms)
        result[kind] = {
            "stated": STATED,
            "measured": round(armed / max(1, alarms)),
            "interval": [round(armed / high), round(armed / low) if low else None],
            "alarms": alarms,
        }
    return result


def draw(shares: dict[str, Any], times: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for name, style in (("preconditioned", "o-"), ("paper", "s--")):
        left.plot(SHARES, [100.0 * shares[str(s)][name]["certified"] for s in SHARES], style, label=name)
    left.set(xlabel="sketch size s / n", ylabel="certified, %", ylim=(-3, 103), title="kernel systems certified")
    left.legend()
    sizes = [int(n) for n in times]
    right.loglog(sizes, [times[str(n)]["certified_s"] for n in sizes], "o-", label="solve_certified")
    right.loglog(sizes, [times[str(n)]["cholesky_s"] for n in sizes], "s--", label="Cholesky, no certificate")
    right.set(xlabel="n", ylabel="seconds, one thread", title="time of a solve")
    right.legend()
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def main() -> int:
    """Run all parts; 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=10_000, help="random systems of part 1")
    parser.add_argument("--short", action="store_true", help="fewer repeats, and nothing beyond n = 2,000")
    options = parser.parse_args()
    short = options.short
    status = statuses(options.systems)
    print(
        f"{status['systems']:,} random systems against exact arithmetic; wrong: {status['wrong'] or 'none'}", flush=True
    )
    for name in ("paper", "cg", "cholesky"):
        print(f"  {name:10} " + ", ".join(f"{k} {v:,}" for k, v in sorted(status[name].items())))
    shares = certified_shares(200, 1 if short else 5)
    print("certified to 1e-8 |y|, by sketch size (the paper's form: conjugate gradients on the sketch)")
    for share, row in shares.items():
        cells = "; ".join(
            f"{name} {v['certified']:.1%} in {v['median_iterations']:.0f} iterations" for name, v in row.items()
        )
        print(f"  s = {share} n: {cells}", flush=True)
    times = speed((1000, 2000) if short else (1000, 2000, 4000), 2 if short else 5)
    for size, row in times.items():
        print(f"n = {size}: certified {row['certified_s']} s, Cholesky {row['cholesky_s']} s: x {row['times_faster']}")
    costs = stream_costs()
    for window, row in costs.items():
        memory = f"{row['kB_per_key']} kB a key"
        print(f"window {window}: {row['us_per_pair']} us a pair, arming {row['arming_ms']} ms, {memory}", flush=True)
    alarms = false_alarms(*(4, 4000) if short else (20, 10_000))
    for kind, row in alarms.items():
        print(f"{kind} inputs, no change: {row['measured']:,} pairs between alarms, stated {row['stated']:,.0f}")
    draw(shares, times)
    met = {
        "statuses": not status["wrong"],
        "certified": shares["0.1"]["preconditioned"]["certified"] >= 0.92,
        "faster": all(row["times_faster"] > 1.0 for size, row in times.items() if int(size) >= 2000),
        "step": costs["500"]["us_per_pair"] <= 300.0,
        "alarms": all(row["measured"] >= row["stated"] for row in alarms.values()),
    }
    figures = {"statuses": status, "shares": shares, "speed": times, "stream": costs, "alarms": alarms, "met": met}
    print(json.dumps(figures))
    return int(not all(met.values()))


if __name__ == "__main__":
    raise SystemExit(main())
