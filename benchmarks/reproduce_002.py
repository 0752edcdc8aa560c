"""Low-rank subspace clustering (paper 002): its table 1, first row, and what the stream form is to be used for.

    python -m benchmarks.reproduce_002 [--folds N] [--short]

Data of section 6 there: 100 sensors, four subspaces of dimension 10, 1,000 samples of each, half the entries corrupted
by uniform noise on [-2, 2]. The printed form runs two epochs; U V' and the row space of D V' are clustered spectrally.
The stream form labels each sample as it comes. Further: missing entries, tilted subspaces, naming of a broken sensor,
and false alarms of the rank detector on the scores where nothing changes. Writes out/reproduce-002.png. The last line
is one JSON object; the exit code is 1 where a figure misses its mark.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import eigsh

from benchmarks.subspaces import Union, auc, pump, walk
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.models.olrsc import OlrscModel
from kstream_worker.models.paper.olrsc import PaperOLRSC, expressed_variance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PAPER = 97.59
ARL = 10_000
MARKS = {  # name: (least, most)
    "paper_accuracy": (97.5, None),
    "online_labels": (99.0, None),
    "missing_30": (None, 0.04),
    "tilt_auc": (0.99, None),
    "named": (0.95, None),
    "false_alarms": (None, 1.0),
}


def spectral_labels(affinity: Floats, clusters: int) -> Ints:
    """Ng, Jordan, Weiss (2001), best of twenty starts of k-means."""
    roots = np.sqrt(affinity.sum(axis=1))
    start = np.random.default_rng(0).normal(size=len(affinity))
    _, vectors = eigsh(affinity / np.outer(roots, roots), k=clusters, v0=start, which="LA")
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    tries = [kmeans2(rows, clusters, minit="++", seed=seed) for seed in range(20)]
    return min(tries, key=lambda found: np.square(rows - found[0][found[1]]).sum())[1].astype(np.int64)


def accuracy(truth: Ints, labels: Ints) -> float:
    """Share of samples right under the best matching of names."""
    counts = np.zeros((truth.max() + 1, labels.max() + 1))
    np.add.at(counts, (truth, labels), 1)
    rows, columns = linear_sum_assignment(-counts)
    return float(counts[rows, columns].sum() / len(truth))


def table_1(folds: int) -> dict[str, float]:
    """The printed form, two epochs."""
    found = []
    for fold in range(folds):
        union = Union(np.random.default_rng(fold))
        _, samples, truth = union.draw(4000, 0.5, balanced=True)
        started = time.perf_counter()
        model = PaperOLRSC(100, 40, seed=fold).fit(samples, epochs=2)
        seconds = time.perf_counter() - started
        x = model.u @ model.v.T
        _, _, rows = np.linalg.svd(model.D @ model.v.T, full_matrices=False)
        by_x = accuracy(truth, spectral_labels(np.abs(x) + np.abs(x.T), 4))
        by_rows = accuracy(truth, spectral_labels(np.abs(rows[:40].T @ rows[:40]), 4))
        ev = expressed_variance(model.D, np.hstack(union.bases))
        found.append((100 * by_x, 100 * by_rows, ev, seconds))
        print(f"  fold {fold}: U V' {100 * by_x:.2f} %, row space {100 * by_rows:.2f} %, EV {ev:.3f}, {seconds:.0f} s")
    by_x, by_rows, ev, seconds = np.mean(found, axis=0).tolist()
    return {"paper_accuracy": by_x, "row_space_accuracy": by_rows, "paper_ev": ev, "seconds": seconds}


def online_labels(folds: int) -> dict[str, float]:
    """Labels as each sample comes, in the second pass over the same samples."""
    shares, firsts, costs = [], [], []
    for fold in range(folds):
        union = Union(np.random.default_rng(fold))
        _, samples, truth = union.draw(4000, 0.5, balanced=True)
        model = OlrscModel(union.names, rank=40)
        walk(model, samples[:210])  # compiled
        started = time.process_time()
        values = walk(model, np.vstack((samples, samples))).values
        costs.append((time.process_time() - started) / 8000 * 1e6)
        labels = values[:, 200]
        warm = np.isfinite(labels[:4000])
        firsts.append(100 * accuracy(truth[warm], labels[:4000][warm].astype(np.int64)))
        shares.append(100 * accuracy(truth, labels[4000:].astype(np.int64)))
    return {"online_labels": float(np.mean(shares)), "first_pass": float(np.mean(firsts)), "us": float(np.mean(costs))}


def missing_error(share: float, folds: int) -> float:
    """Error of missing entries before they are learned from, relative to their size, after 6,000 samples."""
    errors = []
    for fold in range(folds):
        union = Union(np.random.default_rng(100 + fold))
        clean, _, _ = union.draw(8000, 0.0)
        mask = np.random.default_rng(200 + fold).random(clean.shape) < share
        given = np.where(mask, np.nan, clean)
        model = OlrscModel(union.names, rank=40, forgetting=0.995, shrinkage=0.01, subspaces=1)
        filled = walk(model, given).values[6000:, :100]
        off = (filled - clean[6000:])[mask[6000:]]
        errors.append(np.sqrt(np.square(off).sum() / np.square(clean[6000:][mask[6000:]]).sum()))
    return float(np.mean(errors))


def tilt(trials: int) -> tuple[float, Floats]:
    """AUC of the score, 500 samples before against 100 behind a tilt of all subspaces by 20 degrees; one trace."""
    found, trace = [], np.empty(0)
    for trial in range(trials):
        union = Union(np.random.default_rng(300 + trial))
        _, before, _ = union.draw(3000, 0.5)
        _, after, _ = union.tilted(20.0).draw(300, 0.5)
        trace = walk(OlrscModel(union.names, rank=40, subspaces=1), np.vstack((before, after))).scores[2500:, 0]
        found.append(auc(trace[:500], trace[500:600]))
    return float(np.mean(found)), trace


def naming(trials: int) -> dict[str, float]:
    """How often the broken one of eight sensors is among the first two named, 60 samples after it broke."""
    faults = ("offset", "stuck", "noise", "decoupled")
    hits = dict.fromkeys(faults, 0)
    for trial in range(trials):
        rng = np.random.default_rng(400 + trial)
        for fault in faults:
            samples, broken = pump(rng, 1560, noise=0.2, fault=fault, at=1500)
            model = OlrscModel([f"s{i}" for i in range(8)], subspaces=1)
            walk(model, samples)
            hits[fault] += f"s{broken}" in [name for name, _ in model.drivers(0)[:2]]
    return {fault: hits[fault] / trials for fault in faults}


def false_alarms(keys: int) -> float:
    """Alarms of the rank detector on the scores of unchanged streams, as a multiple of the stated rate."""
    model = OlrscModel([f"s{i}" for i in range(8)], subspaces=1)
    bank = RankBank(len(model.watched), arl=ARL, alternative="greater", spikes=False, transform="none")
    alarms = samples = 0
    for key in range(keys):
        given, _ = pump(np.random.default_rng(500 + key), 10_000, noise=0.2)
        scores = walk(model, given).scores
        scores = scores[np.isfinite(scores[:, 0])]
        slots = np.full(len(scores), bank.allocate(bytes([key])))
        events = bank.update(slots, None, scores, np.arange(len(scores))).transitions
        alarms += sum(event.kind == "raised" for event in events)
        samples += len(scores)
    return alarms / (samples / ARL)


def picture(path: Path, figures: dict[str, float], trace: Floats) -> None:
    """Accuracies beside the paper's, and the score around a tilt."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    bars = {
        "paper": PAPER,
        "U V', two epochs": figures["paper_accuracy"],
        "row space of D V'": figures["row_space_accuracy"],
        "stream, second pass": figures["online_labels"],
    }
    left.barh(list(bars), list(bars.values()), color=["tab:gray", "tab:blue", "tab:blue", "tab:green"])
    left.set(xlim=(90, 100), xlabel="accuracy, %", title="Table 1, first row")
    left.invert_yaxis()
    right.plot(np.arange(-500, len(trace) - 500), trace, lw=0.8)
    right.axvline(0, color="tab:red", lw=1)
    right.set(xlabel="samples since the tilt by 20 degrees", ylabel="|e|$_1$ / |z|$_1$", title="Change score")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def misses(figures: dict[str, float]) -> list[str]:
    """The figures that miss their mark, in words."""
    words = []
    for name, (least, most) in MARKS.items():
        if (least is not None and figures[name] < least) or (most is not None and figures[name] > most):
            words.append(f"{name} is {figures[name]:.4g}, wanted {'>=' if most is None else '<='} {least or most}")
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=10, help="data sets of table 1")
    parser.add_argument("--short", action="store_true", help="one data set, few trials")
    options = parser.parse_args()
    folds, trials, keys = (1, 5, 8) if options.short else (options.folds, 50, 40)
    print("Table 1, first row, printed form (paper: 97.59 % from U V')")
    figures = table_1(folds)
    figures |= online_labels(min(folds, 5))
    print(
        f"stream form: labels {figures['online_labels']:.2f} % in the second pass, {figures['first_pass']:.2f} % in the"
    )
    print(f"  first behind the warm-up, {figures['us']:.0f} us per sample")
    for percent in (10, 30, 50):
        figures[f"missing_{percent}"] = missing_error(percent / 100, 1 if options.short else 3)
        print(f"{percent} % missing: error of missing entries {figures[f'missing_{percent}']:.4f}")
    figures["tilt_auc"], trace = tilt(1 if options.short else 5)
    print(f"subspaces tilted by 20 degrees: AUC {figures['tilt_auc']:.4f}")
    named = naming(trials)
    figures["named"] = min(named.values())
    print("broken sensor among the first two named:", ", ".join(f"{k} {v:.1%}" for k, v in named.items()))
    figures["false_alarms"] = false_alarms(keys)
    print(f"false alarms: {figures['false_alarms']:.2f} of the stated rate, one in {ARL:,} samples")
    picture(Path("out/reproduce-002.png"), figures, trace)
    wrong = misses(figures)
    print("\n".join(wrong) or "all figures reach their marks; out/reproduce-002.png")
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
