"""Paper 003: what an online estimate of the Koopman operator finds, in its own form and in the bounded one.

    python -m benchmarks.reproduce_003 [PART] [--quick] [--output FOLDER]

Parts: spectra, predictions, changes, spectral, alarms, cost.

The paper proves convergence to the regularised operator U_lambda (eq. 17); it prints no table. So its figure here is
the batch solution of eq. 17 on the pairs the online estimate remembers, and the spectrum where it is known. Systems and
conventions of the table of one-step errors (mean square over variance, on pairs not yet learned) are in
`benchmarks.dynamics`. Without a name all parts run. The last line is one JSON object of figures; a picture of the
spectra is written.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import dynamics
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.models.koopman import KoopmanModel
from kstream_worker.models.paper import PaperKoopman
from kstream_worker.models.scaling import center_and_scale

PAIRS = 4000
REMEMBERED = 1000  # 1 / (1 - forgetting)
SHOWN = 3  # modes compared
ARL = 10_000.0
CHANGE = 3000  # pair of the change
AFTER = 500
WARMUP = 600  # of the detector
RIDGE = 1e-5  # lambda of the batch solution: times 1,000 pairs what the online one has

Figures = dict[str, object]


def pendulum(state: np.ndarray) -> np.ndarray:
    """Time derivative of z'' = -sin z - z'/4."""
    z, v = state[..., 0], state[..., 1]
    return np.stack((v, -np.sin(z) - 0.25 * v), axis=-1)


def processes(n: int, streams: int, seed: int) -> dict[str, Callable[[], np.ndarray]]:
    """float64[n, streams, d] each."""
    one, flow = dynamics.vector_autoregression, dynamics.noisy_flow
    return {
        "AR(1) .8": lambda: one(n, streams, seed, np.array([[0.8]])),
        "VAR(2)": lambda: one(n, streams, seed, dynamics.VAR2),
        "pendulum": lambda: flow(n, streams, seed, pendulum, noise=0.1, seconds=0.5),
        "Duffing": lambda: flow(n, streams, seed, dynamics.duffing, noise=0.3, seconds=0.25),
        "Van der Pol": lambda: flow(n, streams, seed, dynamics.van_der_pol, noise=0.1, seconds=0.25),
    }


def known_spectra() -> dict[str, list[complex]]:
    """Products of the linear part's eigenvalues: leading ones beside 1, of a pair the one above the real line."""
    turn = complex(np.linalg.eigvals(dynamics.VAR2)[0])
    turn = complex(turn.real, abs(turn.imag))
    return {"AR(1) .8": [0.8, 0.64, 0.512], "VAR(2)": [turn, abs(turn) ** 2, turn**2]}


def run(path: np.ndarray, **options: float) -> tuple[KoopmanModel, np.ndarray, np.ndarray]:
    """All streams through one bank: the model, values [n - 1, streams, columns], scores [n - 1, streams, 2]."""
    n, streams, dims = path.shape
    model = KoopmanModel([f"f{j}" for j in range(dims)], **options)  # type: ignore[arg-type]
    slots = np.array([model.allocate(str(k).encode()) for k in range(streams)])
    values, scores = np.empty((n - 1, streams, len(model.columns))), np.empty((n - 1, streams, 2))
    for k, slot in enumerate(slots):
        column = np.full(n - 1, slot)
        said = model.update(column, path[:-1, k].copy(), path[1:, k].copy(), 1000 * np.arange(n - 1))
        values[:, k], scores[:, k] = said.values, said.scores
    return model, values, scores


def column(model: KoopmanModel, name: str) -> int:
    return [c.name for c in model.columns].index(name)


def scaled(z: np.ndarray) -> np.ndarray:
    parts = [center_and_scale(z[:, j].copy(), len(z)) for j in range(z.shape[1])]
    return np.asarray((z - [center for center, _ in parts]) / [scale for _, scale in parts])


def kernel(a: np.ndarray, b: np.ndarray, width: float) -> np.ndarray:
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * a @ b.T
    return np.asarray(np.exp(np.maximum(squares, 0.0) / (-2.0 * width**2)))


def median_width(z: np.ndarray) -> float:
    some = z[:: max(1, len(z) // 256)]
    squares = np.square(some[:, None] - some[None]).sum(axis=2)
    return float(np.sqrt(np.median(squares[squares > 0.0])))


def batch_eigenvalues(z: np.ndarray) -> np.ndarray:
    """Those of the batch solution of eq. 17 on a path, im >= 0, by falling modulus."""
    z = scaled(z)
    x, y, width = z[:-1], z[1:], median_width(z)
    w = np.linalg.inv(kernel(x, x, width) + len(x) * RIDGE * np.eye(len(x)))
    # The rank of W' G_YX is that of the kernel: a basis of the Gram matrix's large eigenvectors is enough.
    values, vectors = np.linalg.eigh(kernel(x, x, width))
    keep = values > 1e-9 * values[-1]
    basis = vectors[:, keep] * np.sqrt(values[keep])
    small = basis.T @ w.T @ kernel(y, x, width) @ (vectors[:, keep] / np.sqrt(values[keep]))
    return above(np.linalg.eigvals(small))


def above(values: np.ndarray) -> np.ndarray:
    values = values[values.imag >= -1e-12]
    return np.asarray(values[np.argsort(-np.abs(values))])


def distance(found: np.ndarray, wanted: list[complex]) -> float:
    """Largest distance of a wanted eigenvalue to the nearest one found, those below the real line turned up."""
    return max(float(np.abs(np.asarray(found) - w).min()) for w in wanted)


def spectra(quick: bool, folder: Path) -> Figures:
    """Leading eigenvalues: online (memory of 1,000 pairs), batch on the last 1,000 pairs, true ones where known."""
    seeds = 2 if quick else 8
    figures: Figures = {}
    print(
        f"{'system':12} {'|online - batch|':>17} {'|online - true|':>16} {'|batch - true|':>15}   (median of {seeds})"
    )
    shown: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in ("AR(1) .8", "VAR(2)", "pendulum", "Duffing"):
        path = processes(PAIRS + 1, seeds, 0)[name]()
        model, _, _ = run(path, modes=12)
        errors = []
        for k in range(seeds):
            online = model.eigenvalues(k)
            batch = batch_eigenvalues(path[-REMEMBERED - 1 :, k])
            leading = [complex(v) for v in batch[1 : 1 + SHOWN]]
            true = known_spectra().get(name)
            errors.append(
                (
                    distance(online, leading),
                    distance(online, true) if true else np.nan,
                    distance(batch, true) if true else np.nan,
                )
            )
            shown[name] = online, batch
        off = np.median(np.array(errors), axis=0)
        figures[name] = {"online_batch": off[0], "online_true": off[1], "batch_true": off[2]}
        print(f"{name:12} {off[0]:17.3f} {off[1]:16.3f} {off[2]:15.3f}")
    figures["paper form, AR(1) .8"] = paper_form(quick)
    print(f"picture: {draw(shown, folder)}")
    return figures


def paper_form(quick: bool) -> Figures:
    """The leading eigenvalues beside 1 of the published algorithm, last and averaged iterates."""
    z = scaled(processes(1001 if quick else 2001, 1, 5)["AR(1) .8"]()[:, 0])
    model = PaperKoopman(median_width(z), eta=0.2, lam=1e-4, epsilon=2 * 0.2**3)
    half = len(z) // 2
    model.update(z[:half], z[1 : half + 1])
    model.start_averaging()
    model.update(z[half:-1], z[half + 1 :])
    said = {
        which: np.abs(above(model.eigenvalues(4, averaged=averaged)))[1:3].round(3).tolist()
        for which, averaged in (("last", False), ("averaged", True))
    }
    print(f"published algorithm, AR(1) .8 (true .8, .64), {len(model.dictionary[0])} atoms: {said}")
    return {"atoms": len(model.dictionary[0]), **said}


def draw(shown: dict[str, tuple[np.ndarray, np.ndarray]], folder: Path) -> Path:
    """Eigenvalues in the unit disc."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(shown), figsize=(4 * len(shown), 4), layout="constrained")
    for axis, (name, (online, batch)) in zip(axes, shown.items(), strict=True):
        axis.add_patch(pyplot.Circle((0.0, 0.0), 1.0, fill=False, color="grey"))
        for values, style, label in ((batch[:12], "o", "batch"), (online, "x", "online")):
            both = np.concatenate((values, values.conj()))
            axis.plot(both.real, both.imag, style, fillstyle="none", label=label)
        if name in known_spectra():
            both = np.array(known_spectra()[name], dtype=np.complex128)
            both = np.concatenate((both, both.conj()))
            axis.plot(both.real, both.imag, "k.", label="true")
        axis.set(title=name, xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
        axis.legend()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reproduce_003.png"
    figure.savefig(path, dpi=110)
    return path


def predictions(quick: bool, folder: Path) -> Figures:
    """One-step errors: least squares, batch solution (on 1,000 pairs), published forecasts; and ten steps ahead."""
    seeds = 2 if quick else 8
    figures: Figures = {}
    print(f"{'system':12} {'linear':>8} {'batch':>8} {'online':>8} {'10 steps':>9}   mean square error / variance")
    for name, make in processes(PAIRS + 1, seeds, 1).items():
        path = make()
        model, values, _ = run(path)
        dims, half = path.shape[2], PAIRS // 2
        one, ten = (values[:, :, column(model, f"forecast.{h}.f0") :][:, :, :dims] for h in (1, 10))
        spread = path.var(axis=(0, 1))
        errors = {
            "linear": np.mean([linear(path[:, k], half) for k in range(seeds)], axis=0),
            "batch": np.mean([batch(path[:, k], half) for k in range(min(seeds, 3))], axis=0),
            "online": np.square(one[half:-1] - path[half + 2 :]).mean(axis=(0, 1)),
            "ten steps": np.square(ten[half:-10] - path[half + 11 :]).mean(axis=(0, 1)),
        }
        said = {which: float((error / spread).mean()) for which, error in errors.items()}
        figures[name] = said
        print(f"{name:12} {said['linear']:8.4f} {said['batch']:8.4f} {said['online']:8.4f} {said['ten steps']:9.3f}")
    return figures


def linear(z: np.ndarray, half: int) -> np.ndarray:
    """Squared errors by feature of least squares with a constant, learned on the first half."""
    terms = np.column_stack((z[:-1], np.ones(len(z) - 1)))
    weights = np.linalg.lstsq(terms[:half], z[1 : half + 1], rcond=None)[0]
    return np.asarray(np.square(terms[half:] @ weights - z[half + 1 :]).mean(axis=0))


def batch(z: np.ndarray, half: int) -> np.ndarray:
    """The same of kernel ridge regression on the 1,000 pairs before, of five ridges the best afterwards."""
    x, width = scaled(z), median_width(scaled(z))
    first = half - REMEMBERED
    gram = kernel(x[first:half], x[first:half], width)
    ahead = kernel(x[half:-1], x[first:half], width)
    mean = z.mean(axis=0)
    found = [
        np.square(
            ahead @ np.linalg.solve(gram + ridge * np.eye(REMEMBERED), z[first + 1 : half + 1] - mean)
            + mean
            - z[half + 1 :]
        )
        for ridge in (1e-3, 1e-2, 1e-1, 1.0, 10.0)
    ]
    return np.asarray(min((error.mean(axis=0) for error in found), key=lambda error: float(error.mean())))


def changed(streams: int, seed: int) -> dict[str, np.ndarray]:
    """The dynamics change at pair `CHANGE`; the law of a single sample stays."""
    n, rng = CHANGE + AFTER + 1, np.random.default_rng(seed)
    mixed = dynamics.logistic(n, streams, seed)
    later = mixed[CHANGE + 1 :].copy()
    for k in range(streams):
        mixed[CHANGE + 1 :, k] = rng.permuted(later[:, k], axis=0)
    one = dynamics.vector_autoregression
    turned = np.concatenate(
        (one(CHANGE + 1, streams, seed, dynamics.VAR2), one(AFTER, streams, seed + 1, dynamics.VAR2.T))
    )
    flipped = np.concatenate(
        (one(CHANGE + 1, streams, seed, np.array([[0.8]])), one(AFTER, streams, seed + 1, np.array([[-0.8]])))
    )
    return {"logistic map to iid": mixed, "VAR(2), turned back": turned, "AR(1) .8 to -.8": flipped}


def first_alarms(scores: np.ndarray, names: tuple[str, ...]) -> list[list[int]]:
    """Pairs of the alarms of each stream, by the detector that the worker puts behind a model."""
    n, streams, _ = scores.shape
    options = {"spikes": False, "transform": "none", "explained": False}  # as the worker has them
    bank = RankBank(len(names), feature_names=names, arl=ARL, alternative="greater", **options)  # type: ignore[arg-type]
    found: list[list[int]] = []
    for k in range(streams):
        slots = np.full(n, bank.allocate(str(k).encode()))
        answer = bank.follow(slots, np.ascontiguousarray(scores[:, k]), 1000 * np.arange(n))
        found.append([t.row for t in answer.transitions if t.kind == "raised"])
    return found


def changes(quick: bool, folder: Path) -> Figures:
    """Power within 500 pairs and median delay, at a mean of 10,000 pairs between false alarms.

    Of streams whose detector is not warming up again after a false alarm when the change comes.
    """
    streams = 20 if quick else 100
    figures: Figures = {}
    print(
        f"{'change':22} {'streams':>8} {'power':>6} {'median delay':>13} {'alarms before':>14} {'expected at most':>17}"
    )
    for name, path in changed(streams, 2).items():
        model, _, scores = run(path)
        rows = first_alarms(scores, model.watched)
        armed = [own for own in rows if not any(CHANGE - WARMUP <= row < CHANGE for row in own)]
        delays = [min((row - CHANGE + 1 for row in own if row >= CHANGE), default=np.inf) for own in armed]
        power, delay = float(np.isfinite(delays).mean()), float(np.median(delays))
        before, expected = sum(row < CHANGE for own in rows for row in own), streams * CHANGE / ARL
        figures[name] = {"power": power, "median_delay": delay, "alarms_before": before, "expected": expected}
        print(f"{name:22} {len(armed):8d} {power:6.2f} {delay:13.0f} {before:14d} {expected:17.1f}")
    return figures


def spectral(quick: bool, folder: Path) -> Figures:
    """The spectral change score: mean and 99 % quantile while nothing changes, median so many pairs after a change."""
    streams, settled, later = 10 if quick else 40, 1000, (20, 50, 100, 200)
    figures: Figures = {}
    print(f"{'stream':22} {'calm':>6} {'99 %':>6}   " + " ".join(f"{f'after {k}':>9}" for k in later))
    paths = {name: (path, later) for name, path in changed(streams, 2).items()}
    paths |= {name: (make(), ()) for name, make in unchanged(CHANGE + 1, streams, 3).items()}
    for name, (path, after) in paths.items():
        model, values, _ = run(path)
        score = values[:, :, column(model, "spectral_change")]
        calm = score[settled:CHANGE]
        said = {"mean": float(calm.mean()), "q99": float(np.quantile(calm, 0.99))}
        said |= {f"after {k}": float(np.median(score[CHANGE + k - 1])) for k in after}
        figures[name] = said
        print(
            f"{name:22} {said['mean']:6.2f} {said['q99']:6.2f}   "
            + " ".join(f"{v:9.2f}" for v in list(said.values())[2:])
        )
    return figures


def unchanged(n: int, streams: int, seed: int) -> dict[str, Callable[[], np.ndarray]]:
    """`processes` and two more."""
    return processes(n, streams, seed) | {
        "logistic map": lambda: dynamics.logistic(n, streams, seed),
        "iid": lambda: np.random.default_rng(seed).normal(size=(n, streams, 1)),
    }


def alarms(quick: bool, folder: Path) -> Figures:
    """False alarms of streams that do not change."""
    n, streams = (6001, 10) if quick else (20_001, 20)
    figures: Figures = {}
    print(f"{'stream':14} {'pairs':>9} {'false alarms':>13} {'expected at most':>17}")
    for name, make in unchanged(n, streams, 3).items():
        model, _, scores = run(make())
        count = sum(map(len, first_alarms(scores, model.watched)))
        figures[name] = {"alarms": count, "expected": n * streams / ARL}
        print(f"{name:14} {n * streams:9d} {count:13d} {n * streams / ARL:17.1f}")
    return figures


def cost(quick: bool, folder: Path) -> Figures:
    """Microseconds a pair, one thread, the computation of the modes every 64 pairs included."""
    figures: Figures = {}
    for atoms in (24, 48, 96):
        z = dynamics.noisy_flow(3001, 1, 4, dynamics.duffing, noise=0.3, seconds=0.25)[:, 0]
        best = np.inf
        for _ in range(1 if quick else 3):
            model = KoopmanModel(("position", "velocity"), atoms=atoms)
            slots = np.full(3000, model.allocate(b""))
            start = time.process_time()
            model.update(slots, z[:-1].copy(), z[1:].copy(), 250 * np.arange(3000))
            best = min(best, time.process_time() - start)
        figures[str(atoms)] = {"us_per_pair": best / 3000 * 1e6, "bytes_per_key": model.bytes_per_key}
        print(f"{atoms} atoms: {best / 3000 * 1e6:.1f} us a pair, {model.bytes_per_key} bytes a key (two features)")
    return figures


PARTS = {
    "spectra": spectra,
    "predictions": predictions,
    "changes": changes,
    "spectral": spectral,
    "alarms": alarms,
    "cost": cost,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=tuple(PARTS))
    parser.add_argument("--quick", action="store_true", help="fewer streams")
    parser.add_argument("--output", type=Path, default=Path("out"))
    options = parser.parse_args()
    figures = {}
    for name, part in PARTS.items():
        if options.part in (None, name):
            print(f"\n{(part.__doc__ or '').splitlines()[0]}")
            figures[name] = part(options.quick, options.output)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
