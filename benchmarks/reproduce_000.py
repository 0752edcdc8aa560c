"""Paper 000, section 5: regions of attraction of the Duffing oscillator from a compressed operator.

    python -m benchmarks.reproduce_000 [--seeds N] [--output FOLDER]

355 trajectories from [-2, 2]^2, 0.25 s between samples, 3,550 pairs, Gaussian kernel of width 0.3, step 0.2. Chosen
here, since the paper does not say: lambda 1e-3, ten pairs a trajectory, trajectories one after the other, starts drawn
evenly. How well the basins are told apart is measured on 2,000 fresh points: two means on the values of the two leading
eigenfunctions, each point's scaled to length 1 (far from all atoms they fade), against where the trajectory ends.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.cluster.vq import kmeans2

from benchmarks.dynamics import duffing_ends, duffing_pairs
from kstream_worker.models.paper import PaperCME

SIGMA = 0.3
ETA = 0.2
LAM = 1e-3
BUDGETS = {"2 eta^3": (2.0 * ETA**3, 300), "1.5 eta^2": (1.5 * ETA**2, 190)}
POINTS = 2000


def gaussian(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * a @ b.T
    return np.exp(np.maximum(squares, 0.0) / (-2.0 * SIGMA**2))


def leading_values(x: np.ndarray, y: np.ndarray, w: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of the Koopman operator, largest first, and a real basis of the two leading eigenfunctions' span at
    points.
    """
    values, vectors = np.linalg.eig(w.T @ gaussian(y, x))
    order = np.argsort(-np.abs(values))
    first = vectors[:, order[:2]]
    span = np.column_stack((first[:, 0].real, first[:, 0].imag if values[order[0]].imag else first[:, 1].real))
    return values[order], gaussian(points, x) @ span


def told_apart(functions: np.ndarray, basin: np.ndarray) -> float:
    """Share of points whose cluster of two means names their basin."""
    scaled, _ = np.linalg.qr(functions)
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    _, label = kmeans2(scaled, 2, minit="++", seed=0, iter=50)
    agreement = float((label == basin).mean())
    return max(agreement, 1.0 - agreement)


def one_run(seed: int) -> dict[str, dict[str, float]]:
    """Dictionary size and accuracies of each budget, and of the batch solution."""
    x, y = duffing_pairs(355, 10, seed)
    points = np.random.default_rng(seed + 1000).uniform(-2.0, 2.0, size=(POINTS, 2))
    basin = duffing_ends(points) > 0.0
    result = {}
    for name, (epsilon, _) in BUDGETS.items():
        model = PaperCME(SIGMA, SIGMA, eta=ETA, lam=LAM, epsilon=epsilon)
        model.update(x[: len(x) // 2], y[: len(x) // 2])
        model.start_averaging()
        model.update(x[len(x) // 2 :], y[len(x) // 2 :])
        atoms = model.dictionary
        shares = {}
        for which, averaged in (("last", False), ("averaged", True)):
            _, functions = leading_values(*atoms, model.coefficients(averaged=averaged), points)
            shares[which] = told_apart(functions, basin)
        result[name] = {"atoms": float(len(atoms[0])), **shares}
    return result


def batch_run(seed: int) -> float:
    """The same with the batch solution of eq. 8 on all pairs, which the online ones aim at."""
    x, y = duffing_pairs(355, 10, seed)
    points = np.random.default_rng(seed + 1000).uniform(-2.0, 2.0, size=(POINTS, 2))
    w = np.linalg.inv(gaussian(x, x) + len(x) * LAM * np.eye(len(x)))
    function = np.random.default_rng(0).normal(size=(len(x), 2))
    matrix = w.T @ gaussian(y, x)
    for _ in range(200):
        function, _ = np.linalg.qr(matrix @ function)
    return told_apart(gaussian(points, x) @ function, duffing_ends(points) > 0.0)


def draw(folder: Path) -> Path:
    """The two leading eigenfunctions at both budgets on a grid."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    x, y = duffing_pairs(355, 10, 0)
    side = np.linspace(-2.0, 2.0, 81)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 8), layout="constrained")
    for row, (name, (epsilon, _)) in zip(axes, BUDGETS.items(), strict=True):
        model = PaperCME(SIGMA, SIGMA, eta=ETA, lam=LAM, epsilon=epsilon)
        model.update(x, y)
        atoms = model.dictionary
        values, functions = leading_values(*atoms, model.coefficients(), grid)
        for k, axis in enumerate(row):
            image = axis.pcolormesh(side, side, functions[:, k].reshape(81, 81), cmap="coolwarm")
            figure.colorbar(image, ax=axis)
            axis.scatter(*atoms[0].T, s=3, color="black")
            axis.set_title(f"epsilon = {name}, {len(atoms[0])} atoms, |eigenvalue {k + 1}| = {abs(values[k]):.3f}")
            axis.set_xlabel("position")
            axis.set_ylabel("velocity")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reproduce_000.png"
    figure.savefig(path, dpi=110)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="streams to run")
    parser.add_argument("--output", type=Path, default=Path("out"))
    options = parser.parse_args()
    runs = [one_run(seed) for seed in range(options.seeds)]
    print(f"{'epsilon':10} {'atoms: paper':>12} {'here':>6} {'last iterate':>13} {'averaged':>9}   (median of runs)")
    figures: dict[str, object] = {}
    for name, (_, size) in BUDGETS.items():
        medians = {k: float(np.median([run[name][k] for run in runs])) for k in ("atoms", "last", "averaged")}
        figures[name] = {"paper_atoms": size, **medians}
        print(f"{name:10} {size:12} {medians['atoms']:6.0f} {medians['last']:13.3f} {medians['averaged']:9.3f}")
    figures["batch"] = batch_run(0)
    print(f"batch solution on all pairs: {figures['batch']:.3f}")
    print(f"picture: {draw(options.output)}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
