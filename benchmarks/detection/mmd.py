"""Online MMD with thresholds by bootstrap, written here after Cobb, Van Looveren, Klaise, *Sequential multivariate
change detection with calibrated and memoryless false detection rates* (AISTATS 2022), the method of alibi-detect's
`MMDDriftOnline`; that package brings a deep-learning framework along, so it is not a peer by import.

The reference is the part for learning and stays. A window of the last rows is compared with it by the squared maximum
mean discrepancy (Gaussian kernel, median heuristic, biased). Thresholds come from windows drawn of the reference,
compared with the rest of it: at each step of the first windows the share 1 / ERT of the paths that have not alarmed
exceeds the threshold. After an alarm the window begins anew.
"""

from __future__ import annotations

import numpy as np

from benchmarks.detection.detector import LEAST_HISTORY, Detector, scaled
from benchmarks.detection.series import Floats, Found, Series

WINDOW = 20
BOOTSTRAPS = 4000
SEED = 1


def detectors() -> list[Detector]:
    """One detector, in its multivariate form."""
    return [
        Detector(
            "online MMD (as in alibi-detect)",
            "",
            f"window {WINDOW}, expected run time 1,000",
            "expected run time",
            1000.0,
            (100.0, 300.0, 1000.0, 3000.0),
            _find,
        )
    ]


def _find(series: Series, run_time: float) -> Found:
    z = scaled(series)
    learning = max(series.training, LEAST_HISTORY)
    if len(z) <= learning + WINDOW:
        return Found((), ())
    reference = z[:learning]
    gain = _gain(reference)
    limits = _limits(_kernel(reference, reference, gain), run_time)
    against = _kernel(z[learning:], reference, gain).mean(axis=1)
    own = float(_kernel(reference, reference, gain).mean())
    return _walk(z[learning:], learning, against, own, limits, gain)


def _walk(z: Floats, learning: int, against: Floats, own: float, limits: Floats, gain: float) -> Found:
    alarms: list[int] = []
    begun = 0
    for row in range(len(z)):
        filled = row + 1 - begun
        if filled < WINDOW:
            continue
        window = slice(row + 1 - WINDOW, row + 1)
        among = float(_kernel(z[window], z[window], gain).mean())
        if among - 2.0 * float(against[window].mean()) + own > limits[min(filled - WINDOW, WINDOW - 1)]:
            alarms.append(row + learning)
            begun = row + 1
    return Found(tuple(alarms), tuple(row - WINDOW + 1 for row in alarms))


def _kernel(x: Floats, y: Floats, gain: float) -> Floats:
    squares = np.square(x).sum(axis=1)[:, None] + np.square(y).sum(axis=1)[None] - 2.0 * x @ y.T
    return np.asarray(np.exp(gain * np.maximum(squares, 0.0)), dtype=np.float64)


def _gain(reference: Floats) -> float:
    some = reference[np.linspace(0, len(reference) - 1, min(len(reference), 300)).astype(int)]
    squares = np.square(some[:, None] - some[None]).sum(axis=2)
    median = float(np.median(squares[np.triu_indices(len(some), 1)]))
    return -0.5 / median if median > 0.0 else -0.5


def _limits(kernel: Floats, run_time: float) -> Floats:
    """Thresholds of the first WINDOW full windows; the last holds from then on."""
    paths = _paths(kernel, np.random.default_rng(SEED))
    limits = np.empty(WINDOW)
    for step in range(WINDOW):
        limits[step] = np.quantile(paths[:, step], 1.0 - 1.0 / run_time)
        paths = paths[paths[:, step] <= limits[step]]
    return limits


def _paths(kernel: Floats, rng: np.random.Generator) -> Floats:
    """float64[BOOTSTRAPS, WINDOW]: statistics of the windows of paths drawn from the reference, less the rest of it."""
    n, length = len(kernel), 2 * WINDOW - 1
    out = np.empty((BOOTSTRAPS, WINDOW))
    sums = kernel.sum(axis=1)
    for path in out:
        drawn = rng.permutation(n)[: min(length, n - 1)]
        drawn = np.resize(drawn, length)
        inner = kernel[np.ix_(drawn, drawn)]
        rest = n - len(np.unique(drawn))
        outside = (sums[drawn] - inner.sum(axis=1)) / rest
        own = (sums.sum() - 2.0 * sums[drawn].sum() + inner.sum()) / (rest * rest)
        for step in range(WINDOW):
            window = slice(step, step + WINDOW)
            path[step] = inner[window, window].mean() - 2.0 * outside[window].mean() + own
    return out
