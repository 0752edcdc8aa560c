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
    reference, gain = z[:learning], _gain(z[:learning])
    within = _kernel(reference, reference, gain)
    limits = _limits(within, run_time)
    alarms: list[int] = []
    begun = 0
    for last, statistic in enumerate(_statistics(z[learning:], reference, float(within.mean()), gain), WINDOW - 1):
        filled = last - begun - WINDOW + 1
        if filled >= 0 and statistic > limits[min(filled, WINDOW - 1)]:
            alarms.append(last + learning)
            begun = last + 1
    return Found(tuple(alarms), tuple(row - WINDOW + 1 for row in alarms))


def _statistics(z: Floats, reference: Floats, own: float, gain: float) -> list[float]:
    """Squared discrepancy of each window of rows from the reference, by the window's last row."""
    blocks = [_kernel(z[at : at + 1000], reference, gain).mean(axis=1) for at in range(0, len(z), 1000)]
    against = _window_sums(np.concatenate(blocks)) / WINDOW
    among = np.full(len(against), float(WINDOW))
    for lag in range(1, WINDOW):
        near = np.exp(gain * np.square(z[lag:] - z[:-lag]).sum(axis=1))
        total = np.concatenate(([0.0], np.cumsum(near)))
        among += 2.0 * (total[WINDOW - lag :] - total[: lag - WINDOW])
    result: list[float] = (among / WINDOW**2 - 2.0 * against + own).tolist()
    return result


def _window_sums(values: Floats) -> Floats:
    total = np.concatenate(([0.0], np.cumsum(values)))
    return total[WINDOW:] - total[:-WINDOW]


def _kernel(x: Floats, y: Floats, gain: float) -> Floats:
    squares = np.square(x).sum(axis=1)[:, None] + np.square(y).sum(axis=1)[None] - 2.0 * x @ y.T
    return np.asarray(np.exp(gain * np.maximum(squares, 0.0)), dtype=np.float64)


def _gain(reference: Floats) -> float:
    some = reference[np.linspace(0, len(reference) - 1, min(len(reference), 300)).astype(int)]
    squares = np.square(some[:, None] - some[None]).sum(axis=2)
    median = float(np.median(squares[np.triu_indices(len(some), 1)]))
    return -0.5 / median if median > 0.0 else -0.5


def _limits(within: Floats, run_time: float) -> Floats:
    """Thresholds of the first WINDOW full windows; the last holds from then on."""
    paths = _paths(within, np.random.default_rng(SEED))
    limits = np.empty(WINDOW)
    for step in range(WINDOW):
        limits[step] = np.quantile(paths[:, step], 1.0 - 1.0 / run_time)
        paths = paths[paths[:, step] <= limits[step]]
    return limits


def _paths(within: Floats, rng: np.random.Generator) -> Floats:
    """float64[BOOTSTRAPS, WINDOW]: the statistics along paths drawn from the reference, against the rest of it."""
    n, length = len(within), 2 * WINDOW - 1
    drawn = rng.permuted(np.tile(np.arange(n), (BOOTSTRAPS, 1)), axis=1)[:, :length]
    inner = within[drawn[:, :, None], drawn[:, None, :]]
    sums = within.sum(axis=1)
    rest = n - length
    outside = (sums[drawn] - inner.sum(axis=2)) / rest
    own = (sums.sum() - 2.0 * sums[drawn].sum(axis=1) + inner.sum(axis=(1, 2))) / rest**2
    windows = [slice(step, step + WINDOW) for step in range(WINDOW)]
    among = np.stack([inner[:, window, window].mean(axis=(1, 2)) for window in windows], axis=1)
    against = np.stack([outside[:, window].mean(axis=1) for window in windows], axis=1)
    return np.asarray(among - 2.0 * against + own[:, None], dtype=np.float64)
