"""Paper 004, section 5: experiments I-III of online likelihood-ratio estimation, five estimators.

    python -m benchmarks.reproduce_004 [--seeds N] [--output FOLDER]

The error is the mean of (f - r)^2 over 10,000 fresh points of (1 - alpha) p + alpha q, r the true relative ratio, as in
the third column of the paper's Figure 1. The paper prints curves, no numbers; its claim is that OLRE converges
substantially faster than RULSIF and KLIEP at the same alpha. Here RULSIF is cross-validated anew at each size, KLIEP at
1,000 pairs (and widened where samples fall out of reach); the paper fixes a random dictionary of 100 for both. KLIEP
estimates the plain ratio w; its relative ratio w / (1 - alpha + alpha w) is compared. The last line is one JSON object:
`mse` is the bounded default at alpha .1 after 10,000 pairs, `claim` how often the paper's form is below RULSIF.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models import OLRE
from kstream_worker.models.baselines import KLIEP, RULSIF
from kstream_worker.models.baselines.kernels import median_distance
from kstream_worker.models.paper import PaperOLRE

Floats = NDArray[np.float64]
SIZES = (300, 1_000, 3_000, 10_000)
ALPHAS = (0.1, 0.5)
TEST_POINTS = 10_000
LIMITS = {"I": 0.19, "II": 0.035, "III": 0.012}
CENTRES = np.array([(0.0, 0.0), (0.0, 5.0), (0.0, -5.0), (5.0, 0.0), (-5.0, 0.0)])
CORRELATION = 0.8


class Experiment(NamedTuple):
    """Samplers (rng, n) -> float64[n, d] and densities float64[n, d] -> float64[n] of p and q."""

    draw_p: Callable[[np.random.Generator, int], Floats]
    draw_q: Callable[[np.random.Generator, int], Floats]
    p: Callable[[Floats], Floats]
    q: Callable[[Floats], Floats]


def _normal(z: Floats, variance: float) -> Floats:
    return np.exp(np.square(z).sum(axis=1) / (-2.0 * variance)) / (2.0 * np.pi * variance)


def _correlated(z: Floats) -> Floats:
    rest = 1.0 - CORRELATION**2
    form = np.square(z).sum(axis=1) - 2.0 * CORRELATION * z[:, 0] * z[:, 1]
    return np.exp(form / (-2.0 * rest)) / (2.0 * np.pi * np.sqrt(rest))


def _draw_correlated(rng: np.random.Generator, n: int) -> Floats:
    a, b = rng.normal(size=(2, n))
    return np.stack((a, CORRELATION * a + np.sqrt(1.0 - CORRELATION**2) * b), axis=1)


EXPERIMENTS = {
    "I": Experiment(
        lambda rng, n: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=(n, 1)),
        lambda rng, n: rng.laplace(0.0, np.sqrt(0.5), size=(n, 1)),
        lambda z: (np.abs(z[:, 0]) <= np.sqrt(3.0)) / (2.0 * np.sqrt(3.0)),
        lambda z: np.exp(-np.sqrt(2.0) * np.abs(z[:, 0])) / np.sqrt(2.0),
    ),
    "II": Experiment(lambda rng, n: rng.normal(size=(n, 2)), _draw_correlated, lambda z: _normal(z, 1.0), _correlated),
    "III": Experiment(
        lambda rng, n: rng.normal(scale=np.sqrt(10.0), size=(n, 2)),
        lambda rng, n: rng.normal(scale=np.sqrt(5.0), size=(n, 2)) + CENTRES[rng.integers(5, size=n)],
        lambda z: _normal(z, 10.0),
        lambda z: sum((_normal(z - centre, 5.0) for centre in CENTRES), np.zeros(len(z))) / 5.0,
    ),
}


class Problem(NamedTuple):
    """Pairs to learn from, fresh points, and the truth there."""

    x: Floats
    y: Floats
    z: Floats
    truth: Floats
    alpha: float


def make_problem(name: str, alpha: float, seed: int) -> Problem:
    rng = np.random.default_rng((seed, *name.encode()))
    e = EXPERIMENTS[name]
    x, y = e.draw_p(rng, SIZES[-1]), e.draw_q(rng, SIZES[-1])
    live = rng.uniform(size=(TEST_POINTS, 1)) < alpha
    z = np.where(live, e.draw_q(rng, TEST_POINTS), e.draw_p(rng, TEST_POINTS))
    q = e.q(z)
    return Problem(x, y, z, q / ((1.0 - alpha) * e.p(z) + alpha * q), alpha)


def online(model: OLRE | PaperOLRE, problem: Problem) -> list[float]:
    errors = []
    start = 0
    for size in SIZES:
        model.update(problem.x[start:size], problem.y[start:size])
        errors.append(float(np.square(model.ratio(problem.z) - problem.truth).mean()))
        start = size
    return errors


def bounded(problem: Problem) -> list[float]:
    return online(OLRE(problem.x.shape[1], alpha=problem.alpha, atoms=100), problem)


def bounded_sgd(problem: Problem) -> list[float]:
    return online(OLRE(problem.x.shape[1], alpha=problem.alpha, atoms=100, estimator="sgd"), problem)


def paper(problem: Problem) -> list[float]:
    first = np.concatenate((problem.x[:100], problem.y[:100]))
    with warnings.catch_warnings():  # the paper's own t0 = 100 is below what its Theorem 1 asks at beta = .5
        warnings.simplefilter("ignore", UserWarning)
        model = PaperOLRE(0.7 * median_distance(first, seed=0), alpha=problem.alpha, beta=0.5, a=4.0, t0=100.0)
    return online(model, problem)


def rulsif(problem: Problem) -> list[float]:
    models = [RULSIF(alpha=problem.alpha).fit(problem.x[:n], problem.y[:n]) for n in SIZES]
    return [float(np.square(model.ratio(problem.z) - problem.truth).mean()) for model in models]


def widened_kliep(x: Floats, y: Floats, sigma: float) -> KLIEP:
    """At a width that was right for fewer samples; by half wider where a new sample lies out of reach of every
    kernel.
    """
    while True:
        try:
            return KLIEP(sigma=sigma).fit(x, y)
        except ValueError:
            sigma *= 1.5


def kliep(problem: Problem) -> list[float]:
    sigma = KLIEP().fit(problem.x[:1000], problem.y[:1000]).sigma or 1.0
    errors = []
    for n in SIZES:
        w = widened_kliep(problem.x[:n], problem.y[:n], sigma).ratio(problem.z)
        relative = w / (1.0 - problem.alpha + problem.alpha * w)
        errors.append(float(np.square(relative - problem.truth).mean()))
    return errors


METHODS = {"bounded": bounded, "bounded sgd": bounded_sgd, "paper": paper, "RULSIF": rulsif, "KLIEP": kliep}


Means = dict[str, dict[str, dict[str, list[float]]]]


def draw(means: Means, folder: Path) -> Path:
    """Errors against the number of pairs, a picture for each experiment and alpha."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(ALPHAS), len(EXPERIMENTS), figsize=(12, 7), layout="constrained")
    for column, name in enumerate(EXPERIMENTS):
        for row, alpha in enumerate(ALPHAS):
            axis = axes[row, column]
            for method, errors in means[name][str(alpha)].items():
                axis.loglog(SIZES, errors, marker="o", label=method)
            axis.set_title(f"experiment {name}, alpha {alpha}")
            axis.set_xlabel("pairs")
            axis.set_ylabel("mean of (f - r)^2")
    axes[0, 0].legend()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reproduce_004.png"
    figure.savefig(path, dpi=110)
    return path


def measure(name: str, alpha: float, seeds: int) -> dict[str, list[float]]:
    """Mean errors of each estimator at each size; prints them with their spread."""
    means = {}
    for method, run in METHODS.items():
        began = time.perf_counter()
        used = 1 if method == "paper" else seeds
        rows = [run(make_problem(name, alpha, seed)) for seed in range(used)]
        seconds = (time.perf_counter() - began) / used
        mean, sd = np.mean(rows, axis=0), np.std(rows, axis=0)
        cells = " ".join(f"{m:8.4f} ({s:.4f})" for m, s in zip(mean, sd, strict=True))
        print(f"{name:4} {alpha:5}  {method:12} {cells} {seconds:7.2f}", flush=True)
        means[method] = mean.tolist()
    return means


def main() -> int:
    """Run the experiments; 1 when the bounded default misses a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, default=5, help="of all estimators but the slow paper form, which runs on the first"
    )
    parser.add_argument("--output", type=Path, default=Path("out"))
    options = parser.parse_args()
    spread = f"standard deviation over {options.seeds} seeds; the paper's form: one seed"
    print(f"mean squared error ({spread}) after so many pairs")
    print(f"{'':4} {'alpha':>5}  {'estimator':12} {' '.join(f'{size:>17,}' for size in SIZES)} {'s/run':>7}")
    means: Means = {name: {str(alpha): measure(name, alpha, options.seeds) for alpha in ALPHAS} for name in EXPERIMENTS}
    print(f"picture: {draw(means, options.output)}")
    mse = {name: means[name]["0.1"]["bounded"][-1] for name in EXPERIMENTS}
    cells = [cell for by_alpha in means.values() for cell in by_alpha.values()]
    below = [p < r for cell in cells for p, r in zip(cell["paper"], cell["RULSIF"], strict=True)]
    claim = f"{sum(below)} of {len(below)}"
    print(f"the paper: its form converges faster than RULSIF; here it is below RULSIF at {claim} points")
    found = {"mse": mse, "limits": LIMITS, "claim": claim, "seeds": options.seeds, "sizes": SIZES, "means": means}
    print(json.dumps(found))
    return int(any(mse[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
